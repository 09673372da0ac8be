"""Labelled texts, and pairs of texts, as batches: a class for each, or a number.

What a decoder reads of them, and what an encoder does, is in `transformer.data.composing`.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import ALL, Batch, Rows
from transformer.data.composing import Composer, layout_of, padded
from transformer.data.labelled import Labelled, label_numbers, label_values
from transformer.data.plan import BatchPlan, PlannedBatches
from transformer.data.sources import Log, data_directory
from transformer.data.store import TokenStore, fingerprint, open_or_build
from transformer.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class ClassSplit:
    """Labelled texts with their tokens; row i of every field belongs to the same example.

    Attributes:
        texts: of each example, the two of a pair joined by a TAB.
        labels: the number of each class, int32 ``[examples]``, or with data.objective =
            regression float32 values; -1, or NaN, in a set without labels.
        names: of the classes; () with regression.
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

    @property
    def labelled(self) -> bool:
        """Whether there are labels."""
        return bool((self.labels >= 0).all() if self.names else np.isfinite(self.labels).all())


def tokenise_labelled(
    examples: Labelled,
    names: tuple[str, ...],
    config: DataConfig,
    tokenizer: Tokenizer,
    what: str,
    log: Log = print,
) -> ClassSplit:
    """The tokens of labelled texts, made once and kept in the data directory.

    Args:
        examples: from `read_labelled`.
        names: from `class_names`; () where labels are numbers to be found.
        config: the length limit, and where tokens are kept.
        tokenizer: from `with_delimiters` for a decoder.
        what: the split, for messages.
        log: is told how many examples are cut.

    Raises:
        UserError: an unknown label, or one that is no number.
    """
    labels = label_numbers(examples, names) if names else label_values(examples)
    texts = examples.texts, examples.seconds
    key = fingerprint(*texts, tokenizer, None, together=True)
    directory = data_directory(config) / "tokens"
    store = open_or_build(directory, key, *texts, tokenizer, None, together=True)
    lengths = store.source_lengths - 1, store.target_lengths - 1
    composer = Composer(layout_of(tokenizer), examples.paired, config.max_length)
    cut = int(composer.cuts(*lengths).sum())
    if cut:
        log(f"{what}: {cut} of {len(examples)} cut to data.max_length = {config.max_length} tokens")
    digest = hashlib.sha256(f"{key} {config.max_length} {names} {examples.paired}".encode())
    digest.update(labels.tobytes())
    joined = [f"{a}\t{b}" for a, b in zip(*texts, strict=True)]
    shown = joined if examples.paired else examples.texts
    return ClassSplit(shown, labels, names, examples.paired, store, digest.hexdigest())


class InputMaker:
    """Makes what a network reads of texts and pairs, as arrays.

    Args:
        tokenizer: from `with_delimiters` for a decoder.
        paired: whether the examples are pairs.
        max_length: most tokens of a sequence, see `Composer`.
    """

    def __init__(self, tokenizer: Tokenizer, paired: bool, max_length: int) -> None:
        layout = layout_of(tokenizer)
        self.composer = Composer(layout, paired, max_length)
        self._pad, self._extract = tokenizer.special.pad, layout.extract

    def __call__(
        self, examples: Sequence[tuple[np.ndarray, np.ndarray]], rows: int, length: int
    ) -> Batch:
        """Some examples as rows of `length`; those that are missing are empty rows.

        Args:
            examples: the tokens of each text and of the other of its pair, or none.
            rows: of the arrays.
            length: of each row, at least that of the longest sequence.

        Returns:
            ``inputs`` and ``token_types`` for an encoder; for a decoder ``inputs``, ``targets``,
            ``weights`` and ``ends`` (see `Batch`). The weights of a row's targets have the sum
            1, so that the auxiliary loss of each example is its mean over its tokens, as in the
            authors' program.
        """
        sequences, types = [], []
        for first, second in examples:
            tokens, kinds = self.composer.compose(first, second)
            sequences.append(tokens)
            types.append(kinds)
        table = partial(padded, rows=rows, length=length)
        inputs = table(sequences, fill=self._pad)
        if not self._extract:
            return {"inputs": inputs, "token_types": table(types, fill=0)}
        counts = np.array([len(tokens) - 1 for tokens in sequences] + [0] * rows, np.int32)[:rows]
        inside = np.arange(length) < counts[:, None]
        return {
            "inputs": inputs,
            "targets": table([tokens[1:] for tokens in sequences], fill=self._pad),
            "weights": (inside / np.maximum(counts, 1)[:, None]).astype(np.float32),
            "ends": counts,
        }


class ClassBatches(PlannedBatches):
    """Batches of labelled texts, bucketed by length (see `Batches`).

    Args:
        split: the examples.
        tokenizer: what their tokens were made with.
        max_length: most tokens of a sequence.
        plan_settings: of `BatchPlan`, besides the lengths.
    """

    def __init__(
        self, split: ClassSplit, tokenizer: Tokenizer, max_length: int, **plan_settings
    ) -> None:
        self._split = split
        self._inputs = InputMaker(tokenizer, split.paired, max_length)
        # A store's sequences carry an end symbol, which is not used here.
        ends = split.store.source_lengths - 1, split.store.target_lengths - 1
        lengths = self._inputs.composer.total(*ends)
        self._plan = BatchPlan(lengths, lengths, **plan_settings)

    @property
    def summary(self) -> str:
        labels, names = self._split.labels, self._split.names
        if names:
            counts = Counter(labels.tolist())
            shown = ", ".join(f"{name} {counts[i]:,}" for i, name in enumerate(names))
        else:
            shown = f"{labels.min():g} to {labels.max():g}, mean {labels.mean():.4g}"
        return (
            f"{len(self._split):,} examples ({shown}) in {self.steps_per_epoch:,} steps an "
            f"epoch, {self._plan.efficiency:.0%} of their tokens not padding"
        )

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The examples of a step; an empty row has the label -1 and weights 0."""
        ids, (_, length, _) = self._plan.indices(step, rows)
        store, labels = self._split.store, self._split.labels
        examples = [(store.source(i)[:-1], store.target(i)[:-1]) for i in ids[ids >= 0]]
        batch = self._inputs(examples, len(ids), length)
        if self._split.names:
            batch["labels"] = np.where(ids >= 0, labels[ids], -1).astype(np.int32)
        else:
            known = (ids >= 0) & np.isfinite(labels[ids])
            batch["values"] = np.where(known, labels[ids], 0).astype(np.float32)
            batch["weights"] = known.astype(np.float32)
        return {**batch, "ids": ids.astype(np.int32)}

    def example(self, number: int) -> str:
        return self._split.texts[number]
