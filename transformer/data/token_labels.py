"""Sentences with a label for each word, such as the names in them, from CoNLL-like files.

A file has a word a line, a blank line after each sentence. A word's line is columns separated by
TABs, or where it has none by white space: the first is the word and the last its label (Tjong Kim
Sang and De Meulder 2003). Lines that begin with ``-DOCSTART-`` are not read. A file without labels
has one column.

As published (Devlin et al. 2019, section 5.3) a word's label is that of its first token; its others
have none.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import ALL, Batch, Rows
from transformer.data.composing import layout_of, padded
from transformer.data.labelled import Labelled, label_numbers
from transformer.data.plan import BatchPlan, PlannedBatches
from transformer.data.sources import Log, SplitName, read_lines
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class Words:
    """The words of some sentences, one after the other.

    Attributes:
        words: of all sentences.
        labels: of each word; none in a set without labels.
        places: where each word was found, FILE:LINE.
        starts: the number of each sentence's first word, and at the end that of all words.
    """

    words: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])

    def __len__(self) -> int:
        """How many sentences there are."""
        return len(self.starts) - 1


def read_words(paths: Sequence[str], split: SplitName, log: Log = print) -> Words:
    """The sentences of some files, in order.

    Args:
        paths: the files; .gz is read too.
        split: what they are for.
        log: is told how many sentences and words there are.

    Raises:
        UserError: a file is missing or not UTF-8; a word has no label though others have one, or
            in training (names file and line); there is no word.
    """
    setting = f"data.{split}"
    found = Words()
    labelled = True if split == "train" else None
    for path in paths:
        for number, line in enumerate([*read_lines(path, setting), ""], start=1):
            place = f"{path}:{number}"
            if not line.strip():
                if len(found.words) > found.starts[-1]:
                    found.starts.append(len(found.words))
                continue
            cells = [cell.strip() for cell in (line.split("\t") if "\t" in line else line.split())]
            if cells[0] == _DOCUMENT:
                continue
            labelled = len(cells) > 1 if labelled is None else labelled
            if labelled != (len(cells) > 1) or not all((cells[0], cells[-1])):
                expected = "a word and its label" if labelled else "a word without a label"
                raise UserError(
                    f"{place}: {line.strip()[:40]!r}: expected {expected}"
                    f"{'' if split == 'train' else ', as in the first line'}"
                )
            found.words.append(cells[0])
            found.places.append(place)
            found.labels.extend(cells[-1:] * labelled)
    if not len(found):
        raise UserError(f"{setting}: no words in {', '.join(paths)}")
    note = "" if labelled else " without labels"
    log(f"{split}: {len(found):,} sentences of {len(found.words):,} words{note}")
    return found


@dataclass(frozen=True)
class TokenSplit:
    """Sentences as rows of tokens. A sentence that is too long goes on in further rows.

    Attributes:
        words: the sentences.
        labels: the number of each word's class, int32 ``[words]``; -1 in a set without labels.
        names: of the classes.
        tokens_of_words: of all words, one after the other, int32.
        offsets: word i's lie between offsets i and i + 1, int64 ``[words + 1]``.
        rows: the first word of each row and one past its last, int64 ``[rows, 2]``.
        fingerprint: a hash of all this and of the tokenizer.
    """

    words: Words
    labels: np.ndarray
    names: tuple[str, ...]
    tokens_of_words: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        """How many sentences there are."""
        return len(self.words)

    @property
    def tokens(self) -> tuple[np.ndarray, ...]:
        """Every token of the split, in some arrays."""
        return (self.tokens_of_words,)

    @property
    def labelled(self) -> bool:
        """Whether there are labels."""
        return bool(self.words.labels)

    def lengths(self, tokenizer: Tokenizer) -> np.ndarray:
        """The tokens of each row, with those around a text: int64 ``[rows]``."""
        layout = layout_of(tokenizer)
        inner = self.offsets[self.rows[:, 1]] - self.offsets[self.rows[:, 0]]
        return inner + len(layout.begin) + len(layout.end)


def tokenise_words(
    found: Words,
    names: tuple[str, ...],
    config: DataConfig,
    tokenizer: Tokenizer,
    what: str,
    log: Log = print,
) -> TokenSplit:
    """The tokens of words that have labels.

    Each word is encoded alone. One that has no token (an odd control character) stands as the
    end symbol, so that there is a label for it, too; one that is longer than a row is cut.

    Args:
        found: from `read_words`.
        names: from `class_names`.
        config: the length limit.
        tokenizer: an encoder's.
        what: the split, for messages.
        log: is told how many sentences are divided.

    Raises:
        UserError: an unknown label.
    """
    labels = label_numbers(as_labelled(found), names)
    layout = layout_of(tokenizer)
    room = config.max_length - len(layout.begin) - len(layout.end)
    distinct = list(dict.fromkeys(found.words))
    empty = list(layout.end)
    encoded = dict(zip(distinct, tokenizer.encode_targets(distinct), strict=True))
    parts = [(encoded[word] or empty)[:room] for word in found.words]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    tokens = np.array([token for part in parts for token in part], np.int32)
    rows = [
        row
        for start, stop in zip(found.starts, found.starts[1:], strict=False)
        for row in _divide(start, stop, offsets, room)
    ]
    if divided := len(rows) - len(found):
        log(
            f"{what}: {divided} more rows, as sentences have more than data.max_length = "
            f"{config.max_length} tokens"
        )
    key = f"{tokenizer.fingerprint} {config.max_length} {names} {found.words}"
    digest = hashlib.sha256(key.encode("utf-8"))
    digest.update(labels.tobytes() + np.array(found.starts).tobytes())
    return TokenSplit(found, labels, names, tokens, offsets, np.array(rows), digest.hexdigest())


def _divide(start: int, stop: int, offsets: np.ndarray, room: int) -> list[tuple[int, int]]:
    """A sentence's words in rows of at most `room` tokens."""
    rows = []
    while start < stop:
        last = int(np.searchsorted(offsets, offsets[start] + room, side="right")) - 1
        rows.append((start, min(last, stop)))
        start = rows[-1][1]
    return rows


def as_labelled(found: Words) -> Labelled:
    """The words as examples, for `class_names` and `label_numbers`."""
    return Labelled(found.words, [""] * len(found.words), found.labels, found.places)


def word_batch(
    split: TokenSplit, rows: np.ndarray, length: int, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """Rows of a split as arrays.

    Args:
        split: the sentences.
        rows: int ``[R]``, which; -1: an empty row.
        length: of each row.
        tokenizer: what its tokens were made with.

    Returns:
        ``inputs``, ``token_types``, ``labels``, and ``words`` int32 ``[R, T]``, the number of the
        word whose first token it is, else -1.
    """
    layout = layout_of(tokenizer)
    begin, end = (np.array(ids, np.int32) for ids in (layout.begin, layout.end))
    sequences, words = [], np.full((len(rows), length), -1, np.int32)
    for at, row in enumerate(rows[rows >= 0]):
        first, stop = split.rows[row]
        inner = split.tokens_of_words[split.offsets[first] : split.offsets[stop]]
        sequences.append(np.concatenate([begin, inner, end]))
        places = split.offsets[first:stop] - split.offsets[first] + len(begin)
        words[at, places] = np.arange(first, stop)
    inputs = padded(sequences, len(rows), length, tokenizer.special.pad)
    labels = np.where(words >= 0, split.labels[words], -1).astype(np.int32)
    return {
        "inputs": inputs,
        "token_types": np.zeros_like(inputs),
        "labels": labels,
        "words": words,
    }


class TokenBatches(PlannedBatches):
    """Batches of sentences with a label for each word, bucketed by length (see `Batches`).

    Args:
        split: the sentences.
        tokenizer: what their tokens were made with.
        plan_settings: of `BatchPlan`, besides the lengths.
    """

    def __init__(self, split: TokenSplit, tokenizer: Tokenizer, **plan_settings) -> None:
        self._split, self._tokenizer = split, tokenizer
        lengths = split.lengths(tokenizer)
        self._plan = BatchPlan(lengths, lengths, **plan_settings)

    @property
    def summary(self) -> str:
        counts = Counter(self._split.labels.tolist())
        shares = ", ".join(f"{name} {counts[i]:,}" for i, name in enumerate(self._split.names))
        return (
            f"{len(self._split):,} sentences ({shares}) in {self.steps_per_epoch:,} steps an "
            f"epoch, {self._plan.efficiency:.0%} of their tokens not padding"
        )

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The rows of a step, and ``words`` (see `word_batch`); an empty row has labels -1."""
        ids, (_, length, _) = self._plan.indices(step, rows)
        batch = word_batch(self._split, ids, length, self._tokenizer)
        return {**batch, "ids": ids.astype(np.int32)}

    def example(self, number: int) -> str:
        first, stop = self._split.rows[number]
        return " ".join(self._split.words.words[first:stop])
