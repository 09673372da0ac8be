"""How well a classifier tells the classes of a held-out split apart."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import Batch, prefetch
from transformer.data.classification import ClassSplit
from transformer.data.objectives import held_out_batches
from transformer.data.tokenizer import Tokenizer
from transformer.models.classifier import Classifier
from transformer.training.metrics import class_scores


class ClassEvaluator:
    """Evaluates parameters on one split, every example of it once.

    ``loss`` is the mean cross-entropy of the classes alone, without the auxiliary loss of the
    tokens; by it the best checkpoint is chosen. The scores are those of `class_scores`.
    """

    def __init__(
        self, model: Classifier, data: DataConfig, tokenizer: Tokenizer, split: ClassSplit
    ) -> None:
        self._split = split
        self._batches = held_out_batches(split, data, tokenizer)
        self._classify = make_classify(model)

    def __call__(self, params: Any) -> dict[str, float]:
        """``loss`` and the scores."""
        labels, classes = self._split.labels, len(self._split.names)
        probabilities = self.probabilities(params)
        right = probabilities[np.arange(len(labels)), labels].astype(np.float64)
        loss = float(-np.log(np.maximum(right, 1e-30)).mean())
        return {"loss": loss, **class_scores(probabilities.argmax(axis=1), labels, classes)}

    def probabilities(self, params: Any) -> np.ndarray:
        """Of each example and class, float32 ``[examples, classes]``, in the split's order."""
        found = np.zeros((len(self._split), len(self._split.names)), np.float32)
        for _, batch in prefetch(self._batches, 0, self._batches.steps_per_epoch):
            rows = batch["ids"] >= 0
            found[batch["ids"][rows]] = np.asarray(self._classify(params, batch))[rows]
        return found


def make_classify(model: Classifier) -> Callable[[Any, Batch], jax.Array]:
    """Builds ``classify(params, batch) -> probabilities``, float32 ``[R, classes]``."""

    @jax.jit
    def classify(params: Any, inputs: jax.Array, ends: jax.Array) -> jax.Array:
        hidden: Any = model.apply({"params": params}, inputs, method="hidden")
        logits: Any = model.apply({"params": params}, hidden, ends, method="classify")
        return jax.nn.softmax(logits)

    return lambda params, batch: classify(
        params, jnp.asarray(batch["inputs"]), jnp.asarray(batch["ends"])
    )


def describe_classes(scores: dict[str, float], examples: int) -> list[str]:
    """The scores of `class_scores` as lines for a person."""
    lines = [
        f"accuracy {scores['accuracy']:.2%} of {examples:,} examples; always the most frequent "
        f"class {scores['majority']:.2%}",
        f"Matthews correlation {scores['matthews']:.4f}",
    ]
    if "f1" in scores:
        lines[1] += f", F1 of the second class {scores['f1']:.2%}"
    return lines
