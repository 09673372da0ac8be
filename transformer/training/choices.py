"""How well an encoder chooses the right ending on a held-out split."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import Batch, prefetch
from transformer.data.choices import ChoiceSplit
from transformer.data.objectives import held_out_batches
from transformer.data.tokenizer import Tokenizer
from transformer.models.encoder import Encoder
from transformer.training.metrics import class_scores


class ChoiceEvaluator:
    """Evaluates parameters on one split, every example of it once.

    ``loss`` is the mean cross-entropy of the right endings; by it the best checkpoint is chosen.
    """

    def __init__(
        self, model: Encoder, data: DataConfig, tokenizer: Tokenizer, split: ChoiceSplit
    ) -> None:
        self._split = split
        self._batches = held_out_batches(split, data, tokenizer)
        self._choose = make_choose(model)

    def __call__(self, params: Any) -> dict[str, float]:
        """``loss`` and the scores."""
        outputs, labels = self.outputs(params), self._split.labels
        right = outputs[np.arange(len(labels)), labels].astype(np.float64)
        loss = float(-np.log(np.maximum(right, 1e-30)).mean())
        return {"loss": loss, **self.scores(outputs)}

    def scores(self, outputs: np.ndarray) -> dict[str, float]:
        """Of what `outputs` returned: `choice_scores`."""
        return choice_scores(outputs, self._split.labels)

    def outputs(self, params: Any) -> np.ndarray:
        """The probability of each example's endings, float32 ``[N, C]``, in the split's order."""
        found = np.zeros((len(self._split), self._split.choices), np.float32)
        for _, batch in prefetch(self._batches, 0, self._batches.steps_per_epoch):
            rows = batch["ids"] >= 0
            found[batch["ids"][rows]] = np.asarray(self._choose(params, batch))[rows]
        return found


def make_choose(model: Encoder) -> Callable[[Any, Batch], jax.Array]:
    """Builds ``choose(params, batch) -> probabilities``, float32 ``[R, C]``."""

    @jax.jit
    def choose(params: Any, inputs: jax.Array, token_types: jax.Array) -> jax.Array:
        rows, types = (array.reshape(-1, array.shape[-1]) for array in (inputs, token_types))
        hidden: Any = model.apply({"params": params}, rows, token_types=types, method="hidden")
        logits: Any = model.apply({"params": params}, hidden, method="classify")
        return jax.nn.softmax(logits.reshape(inputs.shape[:2]))

    return lambda params, batch: choose(
        params, jnp.asarray(batch["inputs"]), jnp.asarray(batch["token_types"])
    )


def choice_scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """``accuracy``, that of always choosing the most frequent place (``majority``), and that of a
    guess (``chance``).

    Args:
        probabilities: ``[N, C]``.
        labels: int ``[N]``, the right ones.
    """
    choices = probabilities.shape[1]
    scores = class_scores(probabilities.argmax(axis=1), labels, choices)
    return {
        "accuracy": scores["accuracy"],
        "majority": scores["majority"],
        "chance": 1 / choices,
    }


def describe_choices(scores: dict[str, float], examples: int) -> list[str]:
    """The scores of `choice_scores` as lines for a person."""
    return [
        f"accuracy {scores['accuracy']:.2%} of {examples:,} examples; a guess "
        f"{scores['chance']:.2%}, always the most frequent place {scores['majority']:.2%}"
    ]
