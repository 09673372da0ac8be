"""How well an encoder chooses the right ending on a held-out split."""

from typing import Any

import numpy as np

from transformer.config import DataConfig
from transformer.data.choices import ChoiceSplit
from transformer.data.objectives import held_out_batches
from transformer.data.tokenizer import Tokenizer
from transformer.models.encoder import Encoder
from transformer.training.heads import make_predict, predict_all
from transformer.training.metrics import class_scores, mean_nll


class ChoiceEvaluator:
    """Evaluates parameters on one split, every example of it once.

    ``loss`` is the mean cross-entropy of the right endings.
    """

    def __init__(
        self, model: Encoder, data: DataConfig, tokenizer: Tokenizer, split: ChoiceSplit
    ) -> None:
        self._split = split
        self._batches = held_out_batches(split, data, tokenizer)
        self._predict = make_predict(model)

    def __call__(self, params: Any) -> dict[str, float]:
        """``loss`` and the scores."""
        outputs = self.outputs(params)
        return {"loss": mean_nll(outputs, self._split.labels), **self.scores(outputs)}

    def scores(self, outputs: np.ndarray) -> dict[str, float]:
        """Of what `outputs` returned: `choice_scores`."""
        return choice_scores(outputs, self._split.labels)

    def outputs(self, params: Any) -> np.ndarray:
        """The probability of each example's endings, float32 ``[N, C]``, in the split's order."""
        size = len(self._split), self._split.choices
        return predict_all(self._predict, params, self._batches, *size)


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
