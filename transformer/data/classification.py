"""Labelled texts, and pairs of texts, for classification (Radford et al. 2018, section 3.3).

A text becomes ``<start> text <end>`` and a pair ``<start> text <delimiter> text2 <end>``. The
class is read off the last token, which the paper therefore calls "extract" as well.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import Batch
from transformer.data.extended_tokenizer import END, START, ExtendedTokenizer, extended
from transformer.data.plan import BatchPlan
from transformer.data.sources import Log, data_directory, read_lines
from transformer.data.store import TokenStore, fingerprint, open_or_build
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

DELIMITER = "<delimiter>"


@dataclass(frozen=True)
class Labelled:
    """Row i of every field belongs to the same example.

    Attributes:
        texts: the texts, or the first of each pair.
        seconds: the other texts of the pairs; empty strings where a row is a single text.
        labels: the names of the classes.
        places: where each example was found, FILE:LINE.
        paired: whether the rows are pairs.
    """

    texts: list[str]
    seconds: list[str]
    labels: list[str]
    places: list[str]
    paired: bool

    def __len__(self) -> int:
        return len(self.texts)


def read_labelled(
    paths: Sequence[str], columns: Sequence[str], header: bool, setting: str, log: Log = print
) -> Labelled:
    """The examples of some TSV files, in order; those with a blank text are left out.

    Quotes are text. White space at either end of a cell does not count.

    Args:
        paths: the files; .gz is read too.
        columns: what each column holds: text, text2, label or "-".
        header: whether a file's first line is no example.
        setting: that names the files, for messages.
        log: is told how many examples there are, and how many were blank.

    Raises:
        UserError: a file is missing or not UTF-8; a row has more or fewer columns, or no
            label (names file and line); there is no example.
    """
    place_of = {name: i for i, name in enumerate(columns)}
    paired = "text2" in place_of
    found = Labelled([], [], [], [], paired)
    blank = 0
    for path in paths:
        for number, line in enumerate(read_lines(path, setting), start=1):
            if header and number == 1:
                continue
            if not line.strip():
                blank += 1
                continue
            cells = line.split("\t")
            if len(cells) != len(columns):
                raise UserError(
                    f"{path}:{number}: {len(cells)} column{'s' * (len(cells) > 1)}; "
                    f"expected {len(columns)} ({' TAB '.join(columns)}, see data.columns)"
                )
            text, label = cells[place_of["text"]].strip(), cells[place_of["label"]].strip()
            second = cells[place_of["text2"]].strip() if paired else ""
            if not label:
                raise UserError(f"{path}:{number}: no label; expected one in column label")
            if not text or (paired and not second):
                blank += 1
                continue
            found.texts.append(text)
            found.seconds.append(second)
            found.labels.append(label)
            found.places.append(f"{path}:{number}")
    if not len(found):
        raise UserError(f"{setting}: no examples in {', '.join(paths)}")
    note = f" ({blank} with a blank text left out)" if blank else ""
    log(f"{setting.removeprefix('data.')}: {len(found)} examples{note}")
    return found


def class_names(given: Sequence[str], train: Labelled | None) -> tuple[str, ...]:
    """The classes, in the order of their numbers: those given, or the training labels sorted.

    Raises:
        UserError: fewer than two; or one of those given has no example in the training split.
    """
    found = sorted(set(train.labels)) if train else []
    names = tuple(given) or tuple(found)
    if len(names) < 2:
        raise UserError(f"data.labels: found only {', '.join(names)}; expected two or more classes")
    missing = [name for name in names if train and name not in found]
    if missing:
        raise UserError(
            f"data.labels: {missing[0]!r} has no example in the training split; expected at "
            f"least one of each, found {', '.join(found)}"
        )
    return names


def label_numbers(examples: Labelled, names: Sequence[str]) -> np.ndarray:
    """The number of each example's class: int32 ``[examples]``.

    Raises:
        UserError: a label that is no class (names file and line).
    """
    numbers = {name: i for i, name in enumerate(names)}
    for label, place in zip(examples.labels, examples.places, strict=True):
        if label not in numbers:
            raise UserError(f"{place}: label {label!r}: expected one of {', '.join(names)}")
    return np.array([numbers[label] for label in examples.labels], np.int32)


def with_delimiters(tokenizer: Tokenizer) -> ExtendedTokenizer:
    """`tokenizer` with the start, delimiter and end tokens, whose embeddings are new."""
    return extended(tokenizer, (START, DELIMITER, END))


class Composer:
    """Puts the tokens of a text, or of a pair, together as the classifier reads them.

    Args:
        tokenizer: from `with_delimiters`.
        paired: whether the examples are pairs.
        max_length: most tokens of a sequence; of a longer text the end is cut off, of a pair
            that of the longer text first.
    """

    def __init__(self, tokenizer: ExtendedTokenizer, paired: bool, max_length: int) -> None:
        self._start, self._delimiter, self._end = (
            np.array([tokenizer.id_of(name)], np.int32) for name in (START, DELIMITER, END)
        )
        self._paired = paired
        self._room = max_length - 2 - paired

    def lengths(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens of each text are kept, given how many there are: int ``[N]`` each."""
        if not self._paired:
            return np.minimum(first, self._room), np.zeros_like(first)
        kept = np.minimum(second, np.maximum(self._room // 2, self._room - first))
        return np.minimum(first, self._room - kept), kept

    def total(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The length of each sequence, given those of its texts: int ``[N]``."""
        kept = self.lengths(first, second)
        return kept[0] + kept[1] + 2 + self._paired

    def compose(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The sequence of one example: int32."""
        a, b = self.lengths(np.array([len(first)]), np.array([len(second)]))
        between = [self._delimiter, second[: b[0]]] if self._paired else []
        return np.concatenate([self._start, first[: a[0]], *between, self._end])


@dataclass(frozen=True)
class ClassSplit:
    """Labelled texts with their tokens; row i of every field belongs to the same example.

    Attributes:
        texts: of each example, the two of a pair joined by a TAB.
        labels: int32 ``[examples]``, the numbers of their classes.
        names: of the classes.
        paired: whether the examples are pairs.
        store: the tokens of the texts (sources) and of the others of the pairs (targets).
        fingerprint: a hash of all this, of the tokenizer and the length limit.
    """

    texts: list[str]
    labels: np.ndarray
    names: tuple[str, ...]
    paired: bool
    store: TokenStore
    fingerprint: str

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def tokens(self) -> tuple[np.ndarray, ...]:
        """Every token of the split, in some arrays."""
        return self.store.source_tokens, self.store.target_tokens


def tokenise_labelled(
    examples: Labelled,
    names: tuple[str, ...],
    config: DataConfig,
    tokenizer: ExtendedTokenizer,
    what: str,
    log: Log = print,
) -> ClassSplit:
    """The tokens of labelled texts, made once and kept in the data directory.

    Args:
        examples: from `read_labelled`.
        names: from `class_names`.
        config: the length limit, and where tokens are kept.
        tokenizer: from `with_delimiters`.
        what: the split, for messages.
        log: is told how many examples are cut.

    Raises:
        UserError: an unknown label.
    """
    labels = label_numbers(examples, names)
    texts = examples.texts, examples.seconds
    key = fingerprint(*texts, tokenizer, None, together=True)
    directory = data_directory(config) / "tokens"
    store = open_or_build(directory, key, *texts, tokenizer, None, together=True)
    lengths = store.source_lengths - 1, store.target_lengths - 1
    kept = Composer(tokenizer, examples.paired, config.max_length).lengths(*lengths)
    cut = int(((kept[0] < lengths[0]) | (kept[1] < lengths[1])).sum())
    if cut:
        log(f"{what}: {cut} of {len(examples)} cut to data.max_length = {config.max_length} tokens")
    digest = hashlib.sha256(f"{key} {config.max_length} {names} {examples.paired}".encode())
    digest.update(labels.tobytes())
    joined = [f"{a}\t{b}" for a, b in zip(*texts, strict=True)]
    shown = joined if examples.paired else examples.texts
    return ClassSplit(shown, labels, names, examples.paired, store, digest.hexdigest())


def class_batch(
    sequences: Sequence[np.ndarray], length: int, rows: int, pad: int
) -> dict[str, np.ndarray]:
    """Composed sequences as rows of `length`; those that are missing are empty rows.

    Returns:
        ``inputs``, ``targets``, ``weights``, ``ends`` (see `Batch`). The weights of a row's
        targets have the sum 1, so that the auxiliary loss of each example is its mean over its
        tokens, as in the authors' program.
    """
    inputs = np.full((rows, length), pad, np.int32)
    targets, weights = inputs.copy(), np.zeros((rows, length), np.float32)
    ends = np.zeros(rows, np.int32)
    for row, sequence in enumerate(sequences):
        count = len(sequence)
        inputs[row, :count] = sequence
        targets[row, : count - 1] = sequence[1:]
        weights[row, : count - 1] = 1 / (count - 1)
        ends[row] = count - 1
    return {"inputs": inputs, "targets": targets, "weights": weights, "ends": ends}


class ClassBatches:
    """Batches of labelled texts, bucketed by length (see `Batches`).

    Args:
        split: the examples.
        tokenizer: what their tokens were made with, from `with_delimiters`.
        max_length: most tokens of a sequence.
        plan_settings: of `BatchPlan`, besides the lengths.
    """

    def __init__(
        self, split: ClassSplit, tokenizer: ExtendedTokenizer, max_length: int, **plan_settings
    ) -> None:
        self._split, self._pad = split, tokenizer.special.pad
        self._composer = Composer(tokenizer, split.paired, max_length)
        # A store's sequences carry an end symbol, which is not used here.
        store = split.store
        lengths = self._composer.total(store.source_lengths - 1, store.target_lengths - 1)
        self._plan = BatchPlan(lengths, lengths, **plan_settings)

    @property
    def steps_per_epoch(self) -> int:
        return self._plan.steps_per_epoch

    @property
    def summary(self) -> str:
        counts = Counter(self._split.labels.tolist())
        shares = ", ".join(f"{name} {counts[i]:,}" for i, name in enumerate(self._split.names))
        return (
            f"{len(self._split):,} examples ({shares}) in {self.steps_per_epoch:,} steps an "
            f"epoch, {self._plan.efficiency:.0%} of their tokens not padding"
        )

    def batch(self, step: int) -> Batch:
        """The examples of a step; an empty row has the label -1 and weights 0."""
        ids, (_, length, _) = self._plan.indices(step)
        store, labels = self._split.store, self._split.labels
        sequences = [
            self._composer.compose(store.source(i)[:-1], store.target(i)[:-1])
            for i in ids[ids >= 0]
        ]
        return {
            **class_batch(sequences, length, len(ids), self._pad),
            "labels": np.where(ids >= 0, labels[ids], -1).astype(np.int32),
            "ids": ids.astype(np.int32),
        }

    def example(self, number: int) -> str:
        return self._split.texts[number]
