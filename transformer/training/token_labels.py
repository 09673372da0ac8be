"""How well the labels of words in a held-out split are found."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import prefetch
from transformer.data.objectives import held_out_batches
from transformer.data.plan import length_batches
from transformer.data.token_labels import TokenSplit, Words, tokenise_words, word_batch
from transformer.data.tokenizer import Tokenizer
from transformer.models.encoder import Encoder
from transformer.training.entities import are_entities, entity_scores
from transformer.training.heads import make_predict
from transformer.training.metrics import mean_nll


class TokenEvaluator:
    """Evaluates parameters on one split, every word of it once.

    ``loss`` is the mean cross-entropy of the words' labels.
    """

    def __init__(
        self, model: Encoder, data: DataConfig, tokenizer: Tokenizer, split: TokenSplit
    ) -> None:
        self._split = split
        self._batches = held_out_batches(split, data, tokenizer)
        self._predict = make_predict(model)

    def __call__(self, params: Any) -> dict[str, float]:
        """``loss`` and the scores."""
        outputs = self.outputs(params)
        return {"loss": mean_nll(outputs, self._split.labels), **self.scores(outputs)}

    def outputs(self, params: Any) -> np.ndarray:
        """Each word's probability of each class, float32 ``[words, classes]``."""
        found = np.zeros((len(self._split.labels), len(self._split.names)), np.float32)
        for _, batch in prefetch(self._batches, 0, self._batches.steps_per_epoch):
            _place(found, batch["words"], self._predict(params, batch))
        return found

    def scores(self, outputs: np.ndarray) -> dict[str, float]:
        """Of what `outputs` returned: ``accuracy``, the part of the words with the right label;
        ``majority``, that of always giving the most frequent one; and where the labels mark
        entities their ``precision``, ``recall`` and ``f1`` (see `entity_scores`)."""
        labels, found = self._split.labels, outputs.argmax(axis=1)
        scores = {
            "accuracy": float((found == labels).mean()),
            "majority": float(np.bincount(labels).max() / len(labels)),
        }
        if are_entities(self._split.names):
            by_sentence = (sentences(self._split, numbers) for numbers in (found, labels))
            scores |= entity_scores(*by_sentence)
        return scores


class WordLabeller:
    """Labels the words of sentences that are in no data set.

    Attributes:
        names: of the classes.

    Args:
        model: the network.
        params: its parameters.
        tokenizer: that of the checkpoint.
        data: its settings of the data, which name the classes.
        batch_tokens: of rows worked on together, at most; the result does not depend on it.
    """

    def __init__(
        self,
        model: Encoder,
        params: Any,
        tokenizer: Tokenizer,
        data: DataConfig,
        batch_tokens: int = 4096,
    ) -> None:
        self.names = data.labels
        self._params, self._tokenizer, self._data = params, tokenizer, data
        self._batch_tokens = batch_tokens
        self._predict = make_predict(model)

    def __call__(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """For each sentence, given as its words, float32 ``[words, classes]``."""
        starts = np.cumsum([0, *map(len, texts)]).tolist()
        words = Words([word for text in texts for word in text], [], [], starts)
        found = np.zeros((len(words.words), len(self.names)), np.float32)
        if words.words:
            split = tokenise_words(
                words, self.names, self._data, self._tokenizer, "", log=lambda _: None
            )
            lengths = split.lengths(self._tokenizer)
            for rows, count, length in length_batches(
                lengths, self._batch_tokens, self._data.max_length
            ):
                filled = np.concatenate([rows, np.full(count - len(rows), -1)])
                batch = word_batch(split, filled, length, self._tokenizer)
                _place(found, batch["words"], self._predict(self._params, batch))
        return np.split(found, starts[1:-1]) if texts else []


def _place(found: np.ndarray, words: np.ndarray, outputs: np.ndarray) -> None:
    """Writes the outputs at each word's first token ``[R, T, C]`` into ``[words, C]``."""
    first = words >= 0
    found[words[first]] = outputs[first]


def sentences(split: TokenSplit, numbers: np.ndarray) -> list[list[str]]:
    """Classes of all words as the labels of each sentence."""
    names, starts = split.names, split.words.starts
    return [[names[i] for i in numbers[start:stop]] for start, stop in itertools.pairwise(starts)]


def describe_words(scores: dict[str, float], words: int) -> list[str]:
    """The scores of `TokenEvaluator` as lines for a person."""
    lines = [
        f"accuracy {scores['accuracy']:.2%} of {words:,} words; always the most frequent label "
        f"{scores['majority']:.2%}"
    ]
    if "f1" in scores:
        lines.append(
            f"entities: F1 {scores['f1']:.2%}, precision {scores['precision']:.2%}, recall "
            f"{scores['recall']:.2%}"
        )
    return lines
