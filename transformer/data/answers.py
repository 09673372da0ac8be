"""Prompts with their answers as one sequence, of which the answer alone is learnt."""

from collections.abc import Sequence

import numpy as np

from transformer.data.batches import ALL, Batch, Rows
from transformer.data.plan import BatchPlan, PlannedBatches
from transformer.data.store import TokenStore, document_ends
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError


class AnswerBatches(PlannedBatches):
    """Batches of prompts with their answers, bucketed by length (see `Batches`).

    A prompt ``p q`` with the answer ``a`` is ``BEGIN p q a END`` (begin and end as of a document,
    see `document_ends`): the model predicts each token from those before it, and the loss is on
    ``a END``.

    Args:
        store: the prompts (sources) and answers (targets).
        tokenizer: what they were made with.
        texts: the prompts, for messages.
        plan_settings: of `BatchPlan`, besides the lengths.

    Raises:
        UserError: the tokenizer has no end symbol.
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        texts: Sequence[str],
        **plan_settings,
    ) -> None:
        self._store, self._texts, self._pad = store, texts, tokenizer.special.pad
        self._begin, end = document_ends(tokenizer)
        if not end:
            raise UserError("data.tokenizer: it has no end symbol, which ends an answer")
        # A prompt's own end symbol is not used, and each token but the last is an input.
        lengths = store.source_lengths + store.target_lengths + len(self._begin) - 2
        self._plan = BatchPlan(lengths, lengths, **plan_settings)

    @property
    def summary(self) -> str:
        return (
            f"{len(self._store):,} prompts with answers in {self.steps_per_epoch:,} steps an "
            f"epoch, {self._plan.efficiency:.0%} of their tokens not padding"
        )

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The pairs of a step, padded; an empty row is padding throughout, of weight 0."""
        ids, (_, length, _) = self._plan.indices(step, rows)
        inputs = np.full((len(ids), length), self._pad, np.int32)
        targets, weights = inputs.copy(), np.zeros(inputs.shape, np.float32)
        for row, i in enumerate(ids[ids >= 0]):
            prompt, answer = self._store.source(i)[:-1], self._store.target(i)
            sequence = np.concatenate([self._begin, prompt, answer]).astype(np.int32)
            count = len(sequence) - 1
            inputs[row, :count], targets[row, :count] = sequence[:-1], sequence[1:]
            weights[row, count - len(answer) : count] = 1
        return {
            "inputs": inputs,
            "targets": targets,
            "weights": weights,
            "ids": ids.astype(np.int32),
        }

    def example(self, number: int) -> str:
        return self._texts[number]
