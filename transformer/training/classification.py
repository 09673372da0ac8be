"""How well the classes, or the numbers, of texts in a held-out split are found."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer.config import DataConfig
from transformer.data.classification import ClassSplit, InputMaker
from transformer.data.labelled import is_paired
from transformer.data.objectives import held_out_batches
from transformer.data.plan import length_batches
from transformer.data.tokenizer import Tokenizer
from transformer.models.classifier import Classifier
from transformer.models.encoder import Encoder
from transformer.training.heads import make_predict, predict_all
from transformer.training.metrics import class_scores, mean_nll, value_scores


class ClassEvaluator:
    """Evaluates parameters on one split, every example of it once.

    ``loss`` is the mean cross-entropy of the classes alone, without the auxiliary loss of the
    tokens, or the mean squared error of numbers. The scores are those of `class_scores`, or of
    `value_scores`.
    """

    def __init__(
        self, model: Classifier | Encoder, data: DataConfig, tokenizer: Tokenizer, split: ClassSplit
    ) -> None:
        self._split = split
        self._batches = held_out_batches(split, data, tokenizer)
        self._predict = make_predict(model)

    def __call__(self, params: Any) -> dict[str, float]:
        """``loss`` and the scores."""
        outputs, labels = self.outputs(params), self._split.labels
        if self._split.names:
            loss = mean_nll(outputs, labels)
        else:
            loss = float(((outputs[:, 0].astype(np.float64) - labels) ** 2).mean())
        return {"loss": loss, **self.scores(outputs)}

    def scores(self, outputs: np.ndarray) -> dict[str, float]:
        """Of what `outputs` returned."""
        labels, names = self._split.labels, self._split.names
        if not names:
            return value_scores(outputs[:, 0], labels)
        return class_scores(outputs.argmax(axis=1), labels, len(names))

    def outputs(self, params: Any) -> np.ndarray:
        """Each example's probability of each class, or its number, in the split's order.

        Returns:
            float32 ``[examples, classes]``, or ``[examples, 1]``.
        """
        size = len(self._split), len(self._split.names) or 1
        return predict_all(self._predict, params, self._batches, *size)


class TextClassifier:
    """Classifies texts that are in no data set, or finds their numbers.

    Attributes:
        names: of the classes; () where it finds numbers.
        paired: whether it expects pairs of texts.
        cut: how many of the texts so far were longer than the model was trained with.

    Args:
        model: the network.
        params: its parameters.
        tokenizer: that of the checkpoint.
        data: its settings of the data, which name the classes.
        batch_tokens: of texts classified together, at most; the result does not depend on it.
    """

    def __init__(
        self,
        model: Classifier | Encoder,
        params: Any,
        tokenizer: Tokenizer,
        data: DataConfig,
        batch_tokens: int = 4096,
    ) -> None:
        self.names, self.paired, self.cut = data.labels, is_paired(data), 0
        self._params, self._tokenizer, self._batch_tokens = params, tokenizer, batch_tokens
        self._inputs = InputMaker(tokenizer, self.paired, data.max_length)
        self._predict = make_predict(model)
        self._most = data.max_length

    def __call__(self, texts: Sequence[tuple[str, str]]) -> np.ndarray:
        """The probability of each class, or the number: float32 ``[texts, classes or 1]``.

        Args:
            texts: each with the other of its pair, or with "".
        """
        sides = zip(*texts, strict=True) if texts else ((), ())
        tokens = (self._tokenizer.encode_targets(list(side)) for side in sides)
        pairs = [tuple(np.array(x, np.int32) for x in pair) for pair in zip(*tokens, strict=True)]
        sizes = np.array([[len(x) for x in pair] for pair in pairs], int).reshape(-1, 2).T
        lengths = self._inputs.composer.total(*sizes)
        self.cut += int(self._inputs.composer.cuts(*sizes).sum())
        found = np.zeros((len(texts), len(self.names) or 1), np.float32)
        for rows, count, length in length_batches(lengths, self._batch_tokens, self._most):
            batch = self._inputs([pairs[i] for i in rows], count, length)
            found[rows] = self._predict(self._params, batch)[: len(rows)]
        return found


def describe_classes(scores: dict[str, float], examples: int) -> list[str]:
    """The scores of `class_scores` as lines for a person."""
    lines = [
        f"accuracy {scores['accuracy']:.2%} of {examples:,} examples; always the most frequent "
        f"class {scores['majority']:.2%}",
        f"Matthews correlation {scores['matthews']:.4f}",
    ]
    if "f1" in scores:
        lines[1] += f", F1 of the second class {scores['f1']:.2%}"
    else:
        lines[1] += f", mean F1 of the classes {scores['macro_f1']:.2%}"
    return lines


def describe_values(scores: dict[str, float], examples: int) -> list[str]:
    """The scores of `value_scores` as lines for a person."""
    return [
        f"Pearson correlation {scores['pearson']:.4f}, Spearman {scores['spearman']:.4f} "
        f"({examples:,} examples)",
        f"mean squared error {scores['mse']:.4f}; always the mean {scores['mean_mse']:.4f}",
    ]
