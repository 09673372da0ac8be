"""Where the data comes from and how it becomes batches."""

from dataclasses import dataclass
from typing import Literal

from transformer.config.require import require

Objective = Literal[
    "translation",
    "language_model",
    "span_corruption",
    "answers",
    "masked_language_model",
    "classification",
    "regression",
    "token_labels",
    "multiple_choice",
    "spans",
]

_EMBEDDED = {
    "translation": "cmudict",
    "answers": "cmudict",
    "language_model": "python_docs",
    "span_corruption": "python_docs",
    "masked_language_model": "python_docs",
}
_PAIRS = "one TSV file or two parallel files"
_TEXTS = "one or more text files"
_TABLES = "one or more TSV files (see data.columns)"
_FORMS = {
    "translation": _PAIRS,
    "answers": _PAIRS,
    "language_model": _TEXTS,
    "span_corruption": _TEXTS,
    "masked_language_model": _TEXTS,
    "classification": _TABLES,
    "regression": _TABLES,
    "token_labels": "one or more files of tokens with their labels",
    "multiple_choice": "one or more files of choices",
    "spans": "one or more JSON files in SQuAD's format",
}


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from and how it becomes batches."""

    objective: Objective = "translation"
    """What is learnt. translation: a target for each source (an encoder_decoder); language_model:
    each next token of texts (a decoder); span_corruption: what was cut out of texts (T5, an
    encoder_decoder); answers: what follows each prompt (a decoder); masked_language_model: tokens
    that are hidden (BERT, an encoder); classification: the class of each text or pair of texts
    (GPT-1, a decoder; BERT, an encoder); of an encoder besides regression: a number for each;
    token_labels: a label for each token; multiple_choice: which ending is right; spans: where in
    a text the answer to a question stands."""
    dataset: str = "auto"
    """files (see train, validation, test); tfds:NAME[/CONFIG], such as
    tfds:ted_hrlr_translate/pt_to_en or tfds:lm1b; embedded ones: cmudict (pairs), python_docs
    (texts). auto: files where train is given, else the embedded one of the objective."""
    train: tuple[str, ...] = ()
    """Files to train on; .gz is read too. Pairs, and prompts with answers: one TSV file (source
    TAB target) or two line-parallel files; texts: one or more text files; classification: one or
    more TSV files (see columns)."""
    validation: tuple[str, ...] = ()
    """Held-out files for the loss and score during training, in the same form as train."""
    test: tuple[str, ...] = ()
    """Held-out files for `transformer evaluate`, in the same form as train."""
    documents: Literal["file", "line", "paragraph"] = "file"
    """What of a text (a file, a record of a TFDS set, a topic of python_docs) is one document:
    all of it, each line, or each paragraph (between blank lines). None sees another's tokens."""
    validation_fraction: float = 0.1
    """The last so much of the training text, by characters, is held out where a set of texts
    has no validation split."""
    source_language: str | None = None
    """With tfds: the language translated from; None: the first of the set's pair."""
    data_dir: str | None = None
    """Where TFDS sets and tokenised copies are kept; None: ~/.cache/transformer."""
    tokenizer: Literal["sentencepiece", "symbols", "bytes", "file"] = "symbols"
    """sentencepiece: subwords, one vocabulary for both sides, trained on the training split;
    symbols: every distinct symbol of the training split (see source_symbols); bytes: of UTF-8;
    file: see tokenizer_file."""
    tokenizer_file: str | None = None
    """With tokenizer = file: the tokenizer.json of a published model (extra hf)."""
    source_symbols: Literal["characters", "words"] = "characters"
    """With symbols: what one source symbol is; words are separated by spaces."""
    target_symbols: Literal["characters", "words"] = "words"
    """With symbols: what one symbol of a target, or of a text, is."""
    vocab_size: int = 8000
    """With sentencepiece: pieces, specials and bytes included."""
    sentencepiece_type: Literal["bpe", "unigram"] = "bpe"
    """The subword algorithm."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """With sentencepiece: identity keeps text exactly; nfkc unifies characters; nfkc_cf also
    lower-cases."""
    max_length: int = 256
    """Training pairs with more tokens than this on either side are left out, and counted; with
    answers all whose prompt and answer have more together. Classified texts are cut to it."""
    block_length: int = 1024
    """With language_model: tokens of a row; documents follow each other without padding. With
    span_corruption: of a source."""
    noise_density: float = 0.15
    """With span_corruption: the part of the tokens that is cut out."""
    mean_span: float = 3.0
    """With span_corruption: tokens of a span that is cut out, on average."""
    separator: str = "\n"
    """With answers: text between a prompt and its answer. Give it to the model in use, too."""
    columns: tuple[str, ...] = ("text", "label")
    """With classification: what each column of the files holds: text, text2 (the other of a
    pair), label or - (not read)."""
    header: bool = False
    """With classification: the first line of each file is no example."""
    labels: tuple[str, ...] = ()
    """With classification: the classes, in the order of their numbers; (): the labels of the
    training split, sorted."""
    batch_tokens: int = 4096
    """Padded tokens of a batch, at most: rows times the longer of the two padded lengths, or
    rows times block_length."""
    metric: Literal["auto", "bleu", "error_rate"] = "auto"
    """Scores of outputs: bleu (with chrF), error_rate (of symbols and of whole outputs), or what
    suits the dataset."""
    num_buckets: int = 8
    """Number of padded shapes the batches come in (each is compiled once)."""

    def __post_init__(self) -> None:
        embedded, form = _EMBEDDED.get(self.objective), _FORMS[self.objective]
        known = self.dataset in ("auto", "files") or (
            embedded is not None
            and (
                self.dataset == embedded
                or (self.dataset.startswith("tfds:") and len(self.dataset) > len("tfds:"))
            )
        )
        expected = f"auto, {embedded}, files or tfds:NAME" if embedded else "auto or files"
        if self.objective != "translation":
            expected += f", because data.objective = {self.objective!r}"
        require(known, "data.dataset", self.dataset, expected)
        for name in ("train", "validation", "test"):
            value = getattr(self, name)
            pairs = form == _PAIRS
            require(not pairs or len(value) <= 2, f"data.{name}", value, form)
            require(
                not value or self.dataset in ("auto", "files"),
                f"data.{name}",
                value,
                f"data.dataset = 'files', found {self.dataset!r}",
            )
        needs_files = self.dataset == "files" or self.validation or self.test or not embedded
        require(
            not needs_files or len(self.train) > 0,
            "data.train",
            self.train,
            f"{form}, because data.dataset = 'files'"
            if self.dataset == "files"
            else f"{form}, because data.objective = {self.objective!r}"
            if not embedded
            else f"{form}, as data.validation or data.test is given",
        )
        for name in ("vocab_size", "max_length", "block_length", "batch_tokens", "num_buckets"):
            value = getattr(self, name)
            require(value >= 1, f"data.{name}", value, "at least 1")
        require(
            form != _TEXTS or self.batch_tokens >= self.block_length,
            "data.batch_tokens",
            self.batch_tokens,
            f"at least data.block_length = {self.block_length}",
        )
        self._check_objective()
        require(
            0 <= self.validation_fraction < 1,
            "data.validation_fraction",
            self.validation_fraction,
            "a fraction in [0, 1)",
        )
        require(
            (self.tokenizer == "file") == (self.tokenizer_file is not None),
            "data.tokenizer_file",
            self.tokenizer_file,
            "the path of a tokenizer.json, because data.tokenizer = 'file'"
            if self.tokenizer == "file"
            else f"None, because data.tokenizer = {self.tokenizer!r}",
        )

    def _check_objective(self) -> None:
        if self.objective == "span_corruption":
            require(self.block_length >= 3, "data.block_length", self.block_length, "at least 3")
        density, span = self.noise_density, self.mean_span
        require(0 < density < 1, "data.noise_density", density, "a fraction in (0, 1)")
        require(span >= 1, "data.mean_span", span, "at least 1")
        names = [name for name in self.columns if name != "-"]
        require(
            sorted(names) in (["label", "text"], ["label", "text", "text2"]),
            "data.columns",
            self.columns,
            "text and label, each once, text2 for pairs, and - for others",
        )
        require(
            len(self.labels) != 1 and len(set(self.labels)) == len(self.labels),
            "data.labels",
            self.labels,
            "two or more different ones, or none",
        )
        if self.objective == "classification":
            require(self.max_length >= 5, "data.max_length", self.max_length, "at least 5")

    @property
    def origin(self) -> str:
        """`dataset`, with auto resolved."""
        if self.dataset != "auto":
            return self.dataset
        return "files" if self.train else _EMBEDDED.get(self.objective, "files")
