"""Texts for language models: files, TFDS sets, Python's documentation."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import numpy as np

from transformer.config import DataConfig
from transformer.data import python_docs
from transformer.data.sources import Log, SplitName, data_directory, read_text, read_tfds_texts
from transformer.data.splits import read_splits
from transformer.data.store import DocumentStore, fingerprint, open_or_build_documents
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
"""What paragraphs are divided by."""


@dataclass(frozen=True)
class TextSplit:
    """Documents.

    Attributes:
        documents: their texts, none of them blank.
        store: their tokens.
        fingerprint: a hash of the texts and the tokenizer.
    """

    documents: list[str]
    store: DocumentStore
    fingerprint: str

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def tokens(self) -> tuple[np.ndarray, ...]:
        """Every token of the split, in some arrays."""
        return (self.store.tokens,)

    @property
    def characters(self) -> int:
        """Of all documents."""
        return sum(map(len, self.documents))

    @property
    def bytes(self) -> int:
        """Of all documents, in UTF-8."""
        return sum(len(text.encode("utf-8")) for text in self.documents)


def read_documents(
    config: DataConfig, splits: Collection[SplitName], log: Log = print
) -> dict[SplitName, list[str]]:
    """The documents of the splits that were asked for and exist; blank ones are left out.

    Where a set has no validation split, the last part of the training text is held out.

    Raises:
        UserError: a file or set is missing, broken or has no text.
    """
    divide = config.origin == "files" and config.documents == "file"
    present = read_splits(
        splits,
        partial(_documents, config),
        partial(hold_out, fraction=config.validation_fraction, divide=divide),
    )
    for split, documents in present.items():
        count, size = len(documents), sum(map(len, documents))
        log(f"{split}: {count:,} document{'s' * (count > 1)}, {size:,} characters")
    return present


def hold_out(
    documents: list[str], fraction: float, divide: bool
) -> tuple[list[str], list[str] | None]:
    """The last `fraction` of the documents, by characters, apart from the others.

    Args:
        documents: all of them.
        fraction: in [0, 1); 0 holds nothing out.
        divide: cut the document that lies on the border, as one must where there is only one;
            else it stays with the first ones.

    Raises:
        UserError: either part would be empty.
    """
    if fraction == 0:
        return documents, None
    total = sum(map(len, documents))
    border = int(total * (1 - fraction))
    first, last = [], []
    at = 0
    for text in documents:
        cut = min(max(border - at, 0), len(text))
        at += len(text)
        if 0 < cut < len(text) and not divide:
            cut = len(text)
        first += [text[:cut]] * bool(text[:cut].strip())
        last += [text[cut:]] * bool(text[cut:].strip())
    if not first or not last:
        raise UserError(
            f"data.validation_fraction = {fraction}: leaves no text for "
            f"{'validation' if first else 'training'}, of {len(documents)} document"
            f"{'s' * (len(documents) > 1)} and {total} characters"
        )
    return first, last


def tokenise(documents: list[str], config: DataConfig, tokenizer: Tokenizer) -> TextSplit:
    """The tokens of some documents, made once and kept in the data directory."""
    key = fingerprint(documents, [], tokenizer, None)
    directory = data_directory(config) / "tokens"
    return TextSplit(documents, open_or_build_documents(directory, key, documents, tokenizer), key)


def _documents(config: DataConfig, split: SplitName) -> list[str] | None:
    """The documents of a split, without blank ones; None if there is no such split."""
    texts = _read(config, split)
    if texts is None:
        return None
    documents = [part for text in texts for part in _divide(text, config.documents)]
    kept = [text for text in documents if text.strip()]
    if not kept:
        where = ", ".join(getattr(config, split)) or config.origin
        raise UserError(f"data.{split}: no text in {where}")
    return kept


def _read(config: DataConfig, split: SplitName) -> list[str] | None:
    """The texts of a split before they are divided into documents."""
    if config.origin == "files":
        paths: tuple[str, ...] = getattr(config, split)
        return [read_text(path, f"data.{split}") for path in paths] if paths else None
    if config.origin == "python_docs":
        topics = python_docs.load().get(split)
        return list(topics.values()) if topics else None
    return read_tfds_texts(config, split)


def _divide(text: str, documents: str) -> list[str]:
    match documents:
        case "line":
            return text.split("\n")
        case "paragraph":
            return BLANK_LINES.split(text.strip("\n"))
        case _:
            return [text]
