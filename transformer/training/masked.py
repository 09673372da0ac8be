"""How well an encoder tells hidden tokens, and whether one text follows another."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from transformer.config import Config
from transformer.data.batches import Batch, prefetch
from transformer.data.masking import ordinary_ids, unigram_entropy
from transformer.data.objectives import held_out_batches
from transformer.data.sentence_pairs import IS_RANDOM
from transformer.data.sentences import SentenceSplit
from transformer.data.tokenizer import Tokenizer
from transformer.functional.losses import LossSums, cross_entropy
from transformer.functional.partition import batch_shards, map_rows
from transformer.models.encoder import Encoder
from transformer.parallel.sharding import with_empty_rows
from transformer.training.metrics import loss_means

_READ = ("inputs", "token_types", "places", "targets", "weights", "follows")


class MaskedSums(NamedTuple):
    """Sums over a batch, as scalars."""

    tokens: LossSums
    """Of the hidden tokens."""
    tokens_right: Float[Array, ""]
    """How many of them have the highest logit."""
    pairs: LossSums
    """Of the pairs of texts; all 0 where rows are single texts."""
    pairs_right: Float[Array, ""]
    pairs_random: Float[Array, ""]
    """How many second texts are random."""


class MaskedEvaluator:
    """Evaluates parameters on one split, every example of it once a draw, always hidden alike.

    With more draws than one other tokens are hidden in each, and other texts paired, so that a
    small split gives steadier figures.

    ``loss`` is the training objective; ``nll``, ``perplexity`` and ``masked_accuracy`` are of the
    hidden tokens, means over all those of the split. ``unigram_entropy`` is the ``nll`` of
    knowing no more than how often each token occurs in this split: what is below it comes from
    context. With ``data.next_sentence`` there are ``next_sentence_nll`` and
    ``next_sentence_accuracy``, means over the pairs, and ``next_sentence_majority``, the accuracy
    of always giving the more frequent answer.
    """

    def __init__(
        self,
        config: Config,
        model: Encoder,
        tokenizer: Tokenizer,
        split: SentenceSplit,
        draws: int = 1,
    ) -> None:
        self._draws = draws
        self._batches = held_out_batches(split, config.data, tokenizer)
        self._step = make_masked_step(model, config.train.label_smoothing)
        self._entropy = unigram_entropy(split.words, ordinary_ids(tokenizer))

    def __call__(self, params: Any) -> dict[str, float]:
        """The metrics, by name."""
        return self.means(self.sums(params))

    def sums(self, params: Any) -> MaskedSums:
        """Over the whole split, all draws together; float64."""
        batches = prefetch(self._batches, 0, self._draws * self._batches.steps_per_epoch)
        found = jax.device_get([self._step(params, batch) for _, batch in batches])
        return jax.tree.map(lambda *parts: np.sum(parts, dtype=np.float64), *found)

    def means(self, sums: MaskedSums) -> dict[str, float]:
        """The metrics that follow from `sums`."""
        tokens, right, pairs, pairs_right, random = sums
        scores = loss_means(tokens) | {
            "masked_accuracy": float(right / tokens.weight),
            "unigram_entropy": self._entropy,
        }
        if not pairs.weight:
            return scores
        share = float(random / pairs.weight)
        return scores | {
            "loss": scores["loss"] + float(pairs.loss / pairs.weight),
            "next_sentence_nll": float(pairs.nll / pairs.weight),
            "next_sentence_accuracy": float(pairs_right / pairs.weight),
            "next_sentence_majority": max(share, 1 - share),
        }


def make_masked_step(model: Encoder, label_smoothing: float) -> Callable[[Any, Batch], MaskedSums]:
    """Builds ``step(params, batch) -> sums``, without dropout."""

    @jax.jit
    def step(params: Any, batch: dict[str, Any]) -> MaskedSums:
        def call(method: str, *arguments: Any, **named: Any) -> Any:
            return model.apply({"params": params}, *arguments, **named, method=method)

        hidden = call("hidden", batch["inputs"], token_types=batch["token_types"])
        rows = {name: batch[name] for name in ("targets", "weights")}

        def of_row(row: Any) -> Any:  # by row: all logits together may not fit
            logits = call("logits", row["vectors"][None])[0]
            right = (logits.argmax(axis=-1) == row["targets"]) * row["weights"]
            return cross_entropy(logits, row["targets"], row["weights"], label_smoothing), right

        rows["vectors"] = call("masked", hidden, batch["places"])
        tokens, right = jax.tree.map(jnp.sum, map_rows(of_row, rows))
        zero = jnp.zeros(())
        if not model.config.next_sentence or "follows" not in batch:
            return MaskedSums(tokens, right, LossSums(zero, zero, zero), zero, zero)
        logits, follows = call("follows", hidden), batch["follows"]
        pairs = cross_entropy(logits, jnp.maximum(follows, 0), (follows >= 0).astype(jnp.float32))
        return MaskedSums(
            tokens,
            right,
            pairs,
            (logits.argmax(axis=-1) == follows).sum(dtype=jnp.float32),
            (follows == IS_RANDOM).sum(dtype=jnp.float32),
        )

    def call(params: Any, batch: Batch) -> MaskedSums:
        read = {name: batch[name] for name in _READ if name in batch}
        return step(params, with_empty_rows(read, batch_shards()))

    return call


def describe_masked(sums: MaskedSums, scores: dict[str, float]) -> list[str]:
    """The metrics of `MaskedEvaluator` as lines for a person."""
    lines = [
        f"nll {scores['nll']:.4f} nats a hidden token, perplexity {scores['perplexity']:.4f} "
        f"({sums.tokens.weight:,.0f} tokens); unigram entropy {scores['unigram_entropy']:.4f}",
        f"masked accuracy {scores['masked_accuracy']:.2%}",
    ]
    if sums.pairs.weight:
        lines.append(
            f"next sentence accuracy {scores['next_sentence_accuracy']:.2%} of "
            f"{sums.pairs.weight:,.0f} pairs, nll {scores['next_sentence_nll']:.4f}; always the "
            f"more frequent answer {scores['next_sentence_majority']:.2%}"
        )
    return lines
