"""Prompts with their answers as one sequence, of which the answer alone is learnt."""

from collections.abc import Sequence

import numpy as np

from transformer.data.batches import Batch
from transformer.data.plan import BatchPlan
from transformer.data.sources import Log
from transformer.data.store import TokenStore
from transformer.data.tokenizer import SpecialIds
from transformer.errors import UserError


def fitting(store: TokenStore, max_length: int, what: str, log: Log = print) -> np.ndarray:
    """The pairs whose sequence has at most `max_length` tokens: int64, their numbers.

    Args:
        store: the prompts (sources) and answers (targets).
        max_length: most tokens of begin, prompt, answer and end together.
        what: the pairs' split, for messages.
        log: is told how many are left out.

    Raises:
        UserError: none fits.
    """
    kept = np.flatnonzero(_lengths(store) <= max_length)
    left = len(store) - len(kept)
    if not len(kept):
        raise UserError(
            f"data.max_length = {max_length}: every prompt with its answer is longer in {what}"
        )
    if left:
        log(f"{what}: {left} of {len(store)} longer than {max_length} tokens left out")
    return kept


def _lengths(store: TokenStore) -> np.ndarray:
    """Of ``BEGIN prompt answer END``; a prompt's own end symbol is not used."""
    return store.source_lengths + store.target_lengths


class AnswerBatches:
    """Batches of prompts with their answers, bucketed by length (see `Batches`).

    A prompt ``p q`` with the answer ``a`` is ``BEGIN p q a END``: the model predicts each token
    from those before it, and the loss is on ``a END``.

    Args:
        store: the prompts (sources) and answers (targets).
        kept: the pairs that take part, from `fitting`.
        special: the tokenizer's special ids.
        texts: the prompts, for messages.
        plan_settings: of `BatchPlan`, besides the lengths.
    """

    def __init__(
        self,
        store: TokenStore,
        kept: np.ndarray,
        special: SpecialIds,
        texts: Sequence[str],
        **plan_settings,
    ) -> None:
        self._store, self._kept, self._special, self._texts = store, kept, special, texts
        # Each token but the last is an input.
        lengths = _lengths(store)[kept] - 1
        self._plan = BatchPlan(lengths, lengths, **plan_settings)

    @property
    def steps_per_epoch(self) -> int:
        return self._plan.steps_per_epoch

    @property
    def summary(self) -> str:
        return (
            f"{len(self._kept):,} prompts with answers in {self.steps_per_epoch:,} steps an epoch, "
            f"{self._plan.efficiency:.0%} of their tokens not padding"
        )

    def batch(self, step: int) -> Batch:
        """The pairs of a step, padded; an empty row is padding throughout, of weight 0."""
        rows, (_, length, _) = self._plan.indices(step)
        ids = np.where(rows >= 0, self._kept[rows], -1)
        inputs = np.full((len(ids), length), self._special.pad, np.int32)
        targets, weights = inputs.copy(), np.zeros(inputs.shape, np.float32)
        for row, i in enumerate(ids[ids >= 0]):
            prompt, answer = self._store.source(i)[:-1], self._store.target(i)
            sequence = np.concatenate([[self._special.begin], prompt, answer])
            count = len(sequence) - 1
            inputs[row, :count], targets[row, :count] = sequence[:-1], sequence[1:]
            weights[row, len(prompt) : count] = 1
        return {
            "inputs": inputs,
            "targets": targets,
            "weights": weights,
            "ids": ids.astype(np.int32),
        }

    def example(self, number: int) -> str:
        return self._texts[number]
