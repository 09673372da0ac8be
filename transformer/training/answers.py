"""How well a language model answers the prompts of a held-out split."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import Config
from transformer.data.batches import Batch, prefetch
from transformer.data.objectives import held_out_batches
from transformer.data.pipeline import PairSplit
from transformer.data.tokenizer import Tokenizer
from transformer.functional.losses import LossSums
from transformer.functional.partition import batch_shards, map_rows
from transformer.models.decoder import Decoder
from transformer.parallel.sharding import copied, with_empty_rows
from transformer.training.losses import loss_sums
from transformer.training.metrics import loss_means


class AnswerEvaluator:
    """Evaluates parameters on one split, every prompt of it once.

    ``loss`` is the training objective (label-smoothed) and ``nll`` the plain cross-entropy, both
    a mean over all tokens of the answers. ``exact_match`` is the part of the prompts whose greedy
    output is their (first) answer, token by token: this is so if and only if each token of the
    answer, and then the end, is the most probable one after those before it, so nothing needs to
    be generated.
    """

    def __init__(
        self, config: Config, model: Decoder, tokenizer: Tokenizer, split: PairSplit
    ) -> None:
        self._batches = held_out_batches(split, config.data, tokenizer)
        self._examples = len(split)
        self._step = make_answer_step(model, tokenizer, config.train.label_smoothing)

    def __call__(self, params: Any) -> dict[str, float]:
        """The metrics, by name."""
        found = []
        for _, batch in prefetch(self._batches, 0, self._batches.steps_per_epoch):
            sums, right = jax.device_get(self._step(params, batch))
            found.append([*sums, (right & (batch["ids"] >= 0)).sum()])
        *sums, right = np.asarray(found, np.float64).sum(axis=0)
        return {**loss_means(LossSums(*sums)), "exact_match": float(right / self._examples)}


def make_answer_step(
    model: Decoder, tokenizer: Tokenizer, label_smoothing: float
) -> Callable[[Any, Batch], Any]:
    """Builds ``step(params, batch) -> (sums, right)``: `LossSums`, and bool ``[R]``: whether each
    target that counts is the most probable token that may be generated."""
    allowed = np.arange(model.config.vocab_size or 0) < tokenizer.vocab_size
    allowed[[i for i in tokenizer.special.never if i != tokenizer.special.end]] = False

    @jax.jit
    def step(params: Any, batch: Any) -> Any:
        hidden: Any = model.apply({"params": params}, batch["inputs"], method="hidden")

        def right(row: Any) -> jax.Array:  # by row: all logits together may not fit
            logits: Any = model.apply({"params": params}, row["hidden"][None], method="logits")
            best = jnp.where(allowed, logits[0], -jnp.inf).argmax(axis=-1)
            return ((best == row["targets"]) | (row["weights"] == 0)).all()

        rows = {"hidden": hidden, "targets": batch["targets"], "weights": batch["weights"]}
        return loss_sums(model, params, batch, label_smoothing), map_rows(right, rows)

    names = ("inputs", "targets", "weights")

    def call(params: Any, batch: Batch) -> Any:
        read = {name: batch[name] for name in names}
        sums, right = step(params, with_empty_rows(read, batch_shards()))
        return sums, copied(right)[: len(batch["inputs"])]

    return call


def describe_answers(scores: dict[str, float], examples: int) -> list[str]:
    """The metrics of `AnswerEvaluator` as lines for a person."""
    return [
        f"exact match {scores['exact_match']:.2%} of {examples:,} greedy answers",
        f"nll {scores['nll']:.4f} nats a token of the answers, perplexity "
        f"{scores['perplexity']:.4f}",
    ]
