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
_PAIR_ROLES = ["label", "text", "text2"]
_PAIRS = "one TSV file or two parallel files"
_TEXTS = "one or more text files"
_TABLES = "one or more TSV, CSV or JSONL files (see data.columns)"
_FORMS = {
    "translation": _PAIRS,
    "answers": _PAIRS,
    "language_model": _TEXTS,
    "span_corruption": _TEXTS,
    "masked_language_model": _TEXTS,
    "classification": _TABLES,
    "regression": _TABLES,
    "token_labels": "one or more files of tokens with their labels",
    "multiple_choice": _TABLES,
    "spans": "one or more JSON files in SQuAD's format",
}
# Besides those with an embedded one, what can be read from a TFDS set.
_SETS = ("spans", "classification", "regression")


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
    (texts); glue:TASK, such as glue:cola: files in the form that task of GLUE is published in.
    auto: files where train is given, else the embedded one of the objective."""
    train: tuple[str, ...] = ()
    """Files to train on; .gz is read too. Pairs, and prompts with answers: one TSV file (source
    TAB target) or two line-parallel files; texts: one or more text files; classification and
    regression, multiple_choice: one or more TSV, .csv or .jsonl files (see columns); token_labels:
    one or more files of a word, and its label, a line and blank lines between sentences; spans:
    one or more JSON files in the format of SQuAD 1.1 or 2.0."""
    validation: tuple[str, ...] = ()
    """Held-out files for the loss and score during training, in the same form as train."""
    test: tuple[str, ...] = ()
    """Held-out files for `transformer evaluate`, in the same form as train."""
    documents: Literal["file", "line", "paragraph"] = "file"
    """What of a text (a file, a record of a TFDS set, a topic of python_docs) is one document:
    all of it, each line, or each paragraph (between blank lines). None sees another's tokens,
    but for the pairs of next_sentence."""
    sentences: Literal["line", "prose"] = "line"
    """With masked_language_model: what of a document is a sentence. line: each line (with
    documents = paragraph that is BERT's published format). prose: parts of a paragraph, whose
    line breaks are spaces, that end after . ! or ? where white space and no lower-case letter
    follow."""
    validation_fraction: float = 0.1
    """The last so much of the training text, by characters, is held out where a set of texts
    has no validation split. Of spans whole contexts with their questions, of multiple_choice the
    last rows."""
    source_language: str | None = None
    """With tfds: the language translated from; None: the first of the set's pair."""
    data_dir: str | None = None
    """Where TFDS sets and tokenised copies are kept; None: ~/.cache/transformer."""
    tokenizer: Literal["sentencepiece", "wordpiece", "symbols", "bytes", "file"] = "symbols"
    """sentencepiece: subwords, one vocabulary for both sides, trained on the training split;
    wordpiece: likewise, BERT's (extra hf); symbols: every distinct symbol of the training split
    (see source_symbols); bytes: of UTF-8; file: see tokenizer_file."""
    tokenizer_file: str | None = None
    """With tokenizer = file: the tokenizer.json of a published model (extra hf)."""
    source_symbols: Literal["characters", "words"] = "characters"
    """With symbols: what one source symbol is; words are separated by spaces."""
    target_symbols: Literal["characters", "words"] = "words"
    """With symbols: what one symbol of a target, or of a text, is."""
    vocab_size: int = 8000
    """With sentencepiece, wordpiece: pieces, specials and bytes included."""
    sentencepiece_type: Literal["bpe", "unigram"] = "bpe"
    """The subword algorithm."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """With sentencepiece: identity keeps text exactly; nfkc unifies characters; nfkc_cf also
    lower-cases. With wordpiece: identity is BERT's cased vocabulary, nfkc_cf its uncased one,
    which has no accents either."""
    max_length: int = 256
    """Training pairs with more tokens than this on either side are left out, and counted; with
    answers all whose prompt and answer have more together. Classified texts are cut to it, and
    contexts with spans into windows of it (see stride)."""
    stride: int = 128
    """With spans: a context that is longer than a row has windows that begin so many tokens
    apart."""
    question_length: int = 64
    """With spans: most tokens of a question; of a longer one the end is cut off."""
    block_length: int = 1024
    """With language_model: tokens of a row; documents follow each other without padding. With
    span_corruption: of a source. With masked_language_model: of a row, specials included."""
    noise_density: float = 0.15
    """With span_corruption: the part of the tokens that is cut out; with masked_language_model:
    that is to be told though hidden (8 in 10), replaced (1) or left as it is (1)."""
    mean_span: float = 3.0
    """With span_corruption: tokens of a span that is cut out, on average."""
    whole_words: bool = False
    """With masked_language_model: choose whole words, not pieces of them."""
    next_sentence: bool = True
    """With masked_language_model: rows are pairs, the second text being the next one or, half of
    the time, one of another document, and the model learns to tell which (BERT). False: rows are
    one text of whole sentences (RoBERTa)."""
    separator: str = "\n"
    """With answers: text between a prompt and its answer. Give it to the model in use, too."""
    columns: tuple[str, ...] = ("text", "label")
    """With classification and regression: what each column of the files holds: text, text2 (the
    other of a pair), label or - (not read); or by the names in their header, as keys of JSONL or
    as features of a TFDS set, such as text=question text2=sentence label=label. With
    multiple_choice: text, one choice for each, label (the right one's number, from 0), text2
    (what every choice begins with)."""
    header: bool = False
    """With columns in their order: the first line of each file is no example."""
    labels: tuple[str, ...] = ()
    """With classification and token_labels: the classes, in the order of their numbers; (): the
    labels of the training split, sorted."""
    batch_size: int | None = None
    """Rows of a batch, however long they are, instead of what batch_tokens allows; None: see
    there."""
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
        sets = embedded is not None or self.objective in _SETS
        named = self.dataset.startswith("tfds:") and len(self.dataset) > len("tfds:")
        files = ("auto", "files")
        glued = form == _TABLES and self.objective != "multiple_choice"
        glue = self.dataset.startswith("glue:") and glued
        known = self.dataset in ("auto", "files", embedded) or (sets and named) or glue
        forms = ["auto", *filter(None, [embedded]), "files", *["tfds:NAME"] * sets]
        forms += ["glue:TASK"] * glued
        expected = f"{', '.join(forms[:-1])} or {forms[-1]}"
        if self.objective != "translation":
            expected += f", because data.objective = {self.objective!r}"
        require(known, "data.dataset", self.dataset, expected)
        for name in ("train", "validation", "test"):
            value = getattr(self, name)
            pairs = form == _PAIRS
            require(not pairs or len(value) <= 2, f"data.{name}", value, form)
            require(
                not value or self.dataset in files or glue,
                f"data.{name}",
                value,
                f"data.dataset = 'files', found {self.dataset!r}",
            )
        needs_files = self.dataset == "files" or glue or self.validation or self.test
        needs_files = needs_files or not (embedded or (sets and named))
        require(
            not needs_files or len(self.train) > 0,
            "data.train",
            self.train,
            f"{form}, because data.dataset = {self.dataset!r}"
            if self.dataset == "files" or glue
            else f"{form}, because data.objective = {self.objective!r}"
            if not embedded
            else f"{form}, as data.validation or data.test is given",
        )
        sizes = ("vocab_size", "max_length", "block_length", "batch_tokens", "num_buckets")
        for name in (*sizes, "stride", "question_length", "batch_size"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"data.{name}", value, "at least 1")
        require(
            form != _TEXTS or bool(self.batch_size) or self.batch_tokens >= self.block_length,
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
        if self.objective == "masked_language_model":
            what = "a pair of texts" if self.next_sentence else "a text"
            least = 5 if self.next_sentence else 3
            expected = f"at least {least}, for {what} with [CLS] and [SEP]"
            require(self.block_length >= least, "data.block_length", self.block_length, expected)
        known = self.tokenizer != "wordpiece" or self.normalization != "nfkc"
        expected = "identity (cased) or nfkc_cf (uncased), because data.tokenizer = 'wordpiece'"
        require(known, "data.normalization", self.normalization, expected)
        density, span = self.noise_density, self.mean_span
        require(0 < density < 1, "data.noise_density", density, "a fraction in (0, 1)")
        require(span >= 1, "data.mean_span", span, "at least 1")
        self._check_columns()
        own = self.dataset.startswith("glue:")
        require(
            not own or (self.columns == ("text", "label") and not self.header),
            "data.columns",
            self.columns,
            f"none and no data.header, because data.dataset = {self.dataset!r} tells its own",
        )
        require(
            len(self.labels) != 1 and len(set(self.labels)) == len(self.labels),
            "data.labels",
            self.labels,
            "two or more different ones, or none",
        )
        if self.objective in ("classification", "regression", "token_labels"):
            require(self.max_length >= 5, "data.max_length", self.max_length, "at least 5")
        if self.objective == "spans":
            # Around the two texts are four control tokens at most (RoBERTa).
            least = self.question_length + 5
            expected = f"at least data.question_length + 5 = {least}"
            require(self.max_length >= least, "data.max_length", self.max_length, expected)

    def _check_columns(self) -> None:
        named = any("=" in column for column in self.columns)
        roles = sorted(c.partition("=")[0] for c in self.columns if c != "-" or named)
        pairs = all(not named or c.partition("=")[2] for c in self.columns)
        if self.objective == "multiple_choice":
            choices = roles.count("choice")
            known = choices >= 2 and roles[choices:] in (["label", "text"], _PAIR_ROLES)
            expected = (
                "text and label, each once, choice at least twice, text2 for what every choice "
                "begins with, and - for others; or text=NAME choice=NAME ... label=NAME"
            )
        else:
            known = roles in (["text"], ["text", "text2"], ["label", "text"], _PAIR_ROLES)
            expected = (
                "text and label, each once, text2 for pairs, and - for others; or text=NAME "
                "text2=NAME label=NAME"
            )
        require(known and pairs, "data.columns", self.columns, expected)

    @property
    def origin(self) -> str:
        """`dataset`, with auto resolved."""
        if self.dataset != "auto":
            return self.dataset
        return "files" if self.train else _EMBEDDED.get(self.objective, "files")
