"""Batches of a source and a target each, for teacher forcing."""

from collections.abc import Sequence

import numpy as np

from transformer.data.batches import ALL, Batch, Rows
from transformer.data.plan import BatchPlan, PlannedBatches
from transformer.data.store import TokenStore
from transformer.data.tokenizer import SpecialIds


class PairBatches(PlannedBatches):
    """Batches of pairs, bucketed by length (see `Batches` and `BatchPlan`).

    For a target ``a b END`` the decoder's inputs are ``BEGIN a b``.

    Args:
        store: the pairs' tokens.
        plan: says which pairs make up a step.
        special: the tokenizer's special ids.
        texts: the source of each pair, for messages.
    """

    def __init__(
        self, store: TokenStore, plan: BatchPlan, special: SpecialIds, texts: Sequence[str]
    ) -> None:
        self._store, self._plan, self._special, self._texts = store, plan, special, texts

    @property
    def summary(self) -> str:
        return (
            f"{len(self._store):,} pairs in {self.steps_per_epoch:,} steps an epoch, "
            f"{self._plan.efficiency:.0%} of their tokens not padding"
        )

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The pairs of a step, padded; an empty row is padding throughout, of weight 0."""
        pad, begin = self._special.pad, self._special.begin
        store = self._store
        ids, (_, source_length, target_length) = self._plan.indices(step, rows)
        source, _ = gather(store.source_tokens, store.source_offsets, ids, source_length, pad)
        targets, inside = gather(store.target_tokens, store.target_offsets, ids, target_length, pad)
        first = np.full((len(ids), 1), begin, np.int32)
        shifted = np.concatenate([first, targets[:, :-1]], axis=1)
        return {
            "source": source,
            "inputs": np.where(inside, shifted, np.int32(pad)),
            "targets": targets,
            "weights": inside.astype(np.float32),
            "ids": ids.astype(np.int32),
        }

    def example(self, number: int) -> str:
        return self._texts[number]


def gather(
    tokens: np.ndarray, offsets: np.ndarray, ids: np.ndarray, length: int, pad: int
) -> tuple[np.ndarray, np.ndarray]:
    """Some sequences of a store as rows of `length`.

    Args:
        tokens: all sequences one after the other.
        offsets: sequence i lies between offsets i and i + 1.
        ids: the sequences asked for; -1 is an empty row.
        length: of each row.
        pad: what fills it up.

    Returns:
        int32 [rows, length], and where it is no padding, bool of the same shape.
    """
    starts, ends = offsets[ids], offsets[ids + 1]
    places = starts[:, None] + np.arange(length)
    inside = (places < ends[:, None]) & (ids >= 0)[:, None]
    return np.where(inside, tokens[np.where(inside, places, 0)], np.int32(pad)), inside
