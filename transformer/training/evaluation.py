"""How good a model is on a held-out split: its loss, and the score of its greedy output."""

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

from transformer.config import Config, DecodeConfig
from transformer.data.batches import prefetch
from transformer.data.choices import ChoiceSplit
from transformer.data.classification import ClassSplit
from transformer.data.objectives import held_out_batches
from transformer.data.pipeline import PairSplit, Split
from transformer.data.sentences import SentenceSplit
from transformer.data.token_labels import TokenSplit
from transformer.data.tokenizer import Tokenizer
from transformer.data.windows import SpanSplit
from transformer.decoding.translate import Translator
from transformer.errors import UserError
from transformer.functional.losses import LossSums
from transformer.functional.partition import placing
from transformer.models.build import Model
from transformer.models.classifier import Classifier
from transformer.models.decoder import Decoder
from transformer.models.encoder import Encoder
from transformer.models.seq2seq import Seq2Seq
from transformer.parallel import hosts
from transformer.parallel.sharding import Sharding, copied
from transformer.training.answers import AnswerEvaluator
from transformer.training.choices import ChoiceEvaluator
from transformer.training.classification import ClassEvaluator
from transformer.training.masked import MaskedEvaluator
from transformer.training.metrics import loss_means, score, scored_by_errors
from transformer.training.spans import SpanEvaluator
from transformer.training.step import make_eval_step
from transformer.training.token_labels import TokenEvaluator


def evenly_spread(count: int, total: int) -> list[int]:
    """`count` of the numbers 0 ... `total` - 1, evenly spread, from the first on."""
    return [i * total // count for i in range(count)]


_LABELLED = ClassSplit | TokenSplit | ChoiceSplit | SpanSplit


def make_evaluator(
    config: Config,
    model: Model,
    tokenizer: Tokenizer,
    split: Split,
    sharding: Sharding | None = None,
) -> Callable[[Any], dict[str, float]]:
    """What makes metrics of parameters, on one split.

    On a mesh (`sharding`) each device takes its part of the parameters, batches and caches.

    Raises:
        UserError: the split has no labels, which the metrics need.
    """
    evaluator = _evaluator(config, model, tokenizer, split, sharding)

    def evaluate(params: Any) -> dict[str, float]:
        with placing(sharding and sharding.placing):
            return evaluator(params)

    return evaluate


def _evaluator(
    config: Config, model: Model, tokenizer: Tokenizer, split: Split, sharding: Sharding | None
) -> Callable[[Any], dict[str, float]]:
    if isinstance(split, _LABELLED) and not split.labelled:
        raise UserError("data.validation: expected labels, which its loss and scores need")
    if isinstance(split, ClassSplit):
        assert isinstance(model, Classifier | Encoder)
        return ClassEvaluator(model, config.data, tokenizer, split)
    if isinstance(split, TokenSplit):
        assert isinstance(model, Encoder)
        return TokenEvaluator(model, config.data, tokenizer, split)
    if isinstance(split, ChoiceSplit):
        assert isinstance(model, Encoder)
        return ChoiceEvaluator(model, config.data, tokenizer, split)
    if isinstance(split, SpanSplit):
        assert isinstance(model, Encoder)
        return SpanEvaluator(model, config.data, tokenizer, split)
    if isinstance(split, SentenceSplit):
        assert isinstance(model, Encoder)
        return MaskedEvaluator(config, model, tokenizer, split)
    if isinstance(split, PairSplit) and isinstance(model, Decoder):
        return AnswerEvaluator(config, model, tokenizer, split)
    return Evaluator(config, model, tokenizer, split, sharding)


class Evaluator:
    """Evaluates parameters on one split, the same way each time it is called.

    The loss is the training objective (label-smoothed) and ``nll`` the plain
    cross-entropy, both a mean over all tokens of the whole split. The score, where outputs are
    scored, is of ``train.eval_examples`` examples spread evenly over the split.
    """

    def __init__(
        self,
        config: Config,
        model: Model,
        tokenizer: Tokenizer,
        split: Split,
        sharding: Sharding | None = None,
    ):
        self._by_errors = scored_by_errors(config.data)
        self._batches = held_out_batches(split, config.data, tokenizer)
        self._step = make_eval_step(model, config.train.label_smoothing, sharding)
        self._rows = sharding and sharding.rows
        pairs = split if isinstance(split, PairSplit) else None
        if pairs and config.model.positions == "learned":
            _check_lengths(pairs, config.model.max_positions or 0)
        count = min(config.train.eval_examples, len(pairs)) if pairs else 0
        chosen = evenly_spread(count, len(split))
        self._sources = [pairs.sources[i] for i in chosen] if pairs else []
        self._references = [pairs.references[i] for i in chosen] if pairs else []
        self._model, self._tokenizer = model, tokenizer
        self._greedy: DecodeConfig = dataclasses.replace(config.decode, beam_size=1)

    def __call__(self, params: Any) -> dict[str, float]:
        """``loss``, ``nll``, ``perplexity`` and the dataset's scores, as fractions or points."""
        return {**self.loss(params), **self.score(params)}

    def loss(self, params: Any) -> dict[str, float]:
        """Mean loss over every example of the split, each taken once."""
        return loss_means(self.sums(params))

    def sums(self, params: Any) -> LossSums:
        """As `loss`, before the division; float64."""
        batches = prefetch(self._batches, 0, self._batches.steps_per_epoch, rows=self._rows)
        sums = jax.device_get([self._step(params, batch) for _, batch in batches])
        return LossSums(*np.asarray(sums, np.float64).sum(axis=0))

    def score(self, params: Any) -> dict[str, float]:
        """Scores of greedy output; empty for texts, or if ``train.eval_examples`` is 0."""
        if not self._sources:
            return {}
        assert isinstance(self._model, Seq2Seq)
        # Each of several hosts decodes a part, by itself: how long that takes depends on the part.
        count, texts = hosts.count(), [""] * len(self._sources)
        with placing(None) if hosts.several() else nullcontext():
            translator = Translator(self._model, copied(params), self._tokenizer, self._greedy)
            outputs = translator.translate(self._sources[hosts.index() :: count])
        for index, part in enumerate(hosts.gather([best[0].text for best in outputs])):
            texts[index::count] = part
        return score(self._by_errors, texts, self._references)


def _check_lengths(split: PairSplit, longest: int) -> None:
    """Beyond the table of positions a device would take its last row."""
    lengths = np.maximum(split.pairs.source_lengths, split.pairs.target_lengths)
    if lengths.max() > longest:
        source = split.sources[int(lengths.argmax())]
        raise UserError(
            f"held-out pair with the source {source[:40]!r}: {lengths.max()} tokens, the end "
            f"counted: expected at most model.max_positions = {longest}"
        )
