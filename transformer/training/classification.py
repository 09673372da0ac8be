"""How well a classifier tells the classes of a held-out split apart."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import Batch, prefetch
from transformer.data.classification import (
    ClassSplit,
    Composer,
    class_batch,
    with_delimiters,
)
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


class TextClassifier:
    """Classifies texts that are in no data set.

    Attributes:
        names: of the classes.
        paired: whether it expects pairs of texts.
        cut: how many of the texts so far were longer than the model was trained with.

    Args:
        model: the network.
        params: its parameters.
        tokenizer: that of the checkpoint.
        data: its settings of the data, which name the classes.
        batch_size: texts classified together; the result does not depend on it.
    """

    def __init__(
        self,
        model: Classifier,
        params: Any,
        tokenizer: Tokenizer,
        data: DataConfig,
        batch_size: int = 64,
    ) -> None:
        self.names, self.paired, self.cut = data.labels, "text2" in data.columns, 0
        self._params, self._tokenizer, self._batch_size = params, tokenizer, batch_size
        self._composer = Composer(with_delimiters(tokenizer), self.paired, data.max_length)
        self._classify = make_classify(model)
        self._most = data.max_length

    def __call__(self, texts: Sequence[tuple[str, str]]) -> np.ndarray:
        """The probability of each class, float32 ``[texts, classes]``.

        Args:
            texts: each with the other of its pair, or with "".
        """
        sides = zip(*texts, strict=True) if texts else ((), ())
        firsts, seconds = (self._tokenizer.encode_targets(list(side)) for side in sides)
        sequences = []
        for first, second in zip(firsts, seconds, strict=True):
            sequence = self._composer.compose(np.array(first, int), np.array(second, int))
            whole = len(first) + len(second) + 2 + self.paired
            self.cut += len(sequence) < whole
            sequences.append(sequence)
        order = np.argsort([len(sequence) for sequence in sequences], kind="stable")
        found = np.zeros((len(texts), len(self.names)), np.float32)
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            longest = len(sequences[rows[-1]])
            # Powers of two, so that few shapes are compiled.
            length = min(1 << (longest - 1).bit_length(), self._most)
            pad = self._tokenizer.special.pad
            batch = class_batch([sequences[i] for i in rows], length, self._batch_size, pad)
            found[rows] = np.asarray(self._classify(self._params, batch))[: len(rows)]
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
