"""How well an encoder finds the answers to questions in texts, and the answers themselves."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import Batch, prefetch
from transformer.data.classification import InputMaker
from transformer.data.objectives import held_out_batches
from transformer.data.plan import length_batches
from transformer.data.questions import Question, Questions
from transformer.data.tokenizer import Tokenizer
from transformer.data.windows import SpanSplit, make_windows, row_lengths, window_batch
from transformer.decoding.spans import KEPT, Spans, best_spans, null_scores, probabilities, top
from transformer.models.encoder import Encoder
from transformer.training.heads import Predict, make_predict
from transformer.training.span_metrics import span_scores


class Found(NamedTuple):
    """What a model finds in the contexts of some questions.

    Attributes:
        spans: the best ones of each question (``row``), at tokens of its context.
        null: float ``[Q]``, the score of "no answer": the lowest of the question's windows.
        loss: the mean over the windows of half the cross-entropies of beginning and end.
    """

    spans: Spans
    null: np.ndarray
    loss: float

    @property
    def best(self) -> np.ndarray:
        """The number of each question's best span: int ``[Q]``."""
        return np.searchsorted(self.spans.row, np.arange(len(self.null)))

    @property
    def odds(self) -> np.ndarray:
        """Of "no answer": its score less that of the best span, ``[Q]``."""
        return self.null - self.spans.score[self.best]

    def texts(self, split: SpanSplit) -> list[str]:
        """The best span of each question as it stands in the context."""
        spans = zip(*(field[self.best].tolist() for field in self.spans[:3]), strict=True)
        return [split.text(*span) for span in spans]


def find(predict: Predict, params: Any, split: SpanSplit, batches: Iterable[Batch]) -> Found:
    """The best spans of every question, over all windows of its context.

    A span counts in the window in which its first token has most context, as published.

    Args:
        predict: from `make_predict`.
        params: of the model.
        split: the questions.
        batches: with every window of `split` once.
    """
    windows = split.windows
    parts: list[Spans] = []
    null = np.full(len(split), np.inf, np.float32)
    loss = 0.0
    for batch in batches:
        rows = batch["ids"] >= 0
        ids = batch["ids"][rows]
        starts, ends = np.moveaxis(predict(params, batch)[rows], -1, 0)
        shift = windows.shift[ids]
        stop = windows.first[ids] + windows.length[ids] + shift
        low, high = windows.low[ids] + shift, windows.high[ids] + shift
        row, first, last, score = best_spans(starts, ends, low, high, stop)
        parts.append(Spans(ids[row], first - shift[row], last - shift[row], score))
        np.minimum.at(null, windows.question[ids], null_scores(starts, ends))
        for logits, places in ((starts, windows.starts[ids]), (ends, windows.ends[ids])):
            loss += _nll(logits, places) / 2
    found = Spans(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))
    order = np.argsort(found.row, kind="stable")  # so that of equal spans the first window's wins
    window, first, last, score = (field[order] for field in found)
    best = top(Spans(windows.question[window], first, last, score), KEPT)
    return Found(best, null, loss / len(windows.first))


def _nll(logits: np.ndarray, places: np.ndarray) -> float:
    """The cross-entropy of places, summed over the rows; in float64."""
    logits = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    right = logits[np.arange(len(places)), places]
    return float((np.log(np.exp(logits).sum(axis=1)) - right).sum())


class SpanEvaluator:
    """Evaluates parameters on one split, every question of it once.

    ``loss`` is the training objective, a mean over the windows. The scores are those of
    `span_scores`.
    """

    def __init__(
        self, model: Encoder, data: DataConfig, tokenizer: Tokenizer, split: SpanSplit
    ) -> None:
        self._split = split
        self._batches = held_out_batches(split, data, tokenizer)
        self._predict = make_predict(model)

    def __call__(self, params: Any) -> dict[str, float]:
        """``loss`` and the scores."""
        found = self.find(params)
        return {"loss": found.loss, **self.scores(found)}

    def find(self, params: Any) -> Found:
        """What the model finds, for `scores`, and for the files of predictions."""
        batches = prefetch(self._batches, 0, self._batches.steps_per_epoch)
        return find(self._predict, params, self._split, (batch for _, batch in batches))

    def scores(self, found: Found, threshold: float | None = None) -> dict[str, float]:
        """Of what `find` returned; see `predictions` for the threshold."""
        questions = self._split.questions.questions
        right = [[text for text, _ in question.answers] for question in questions]
        threshold = self._threshold(threshold)
        odds = None if threshold is None else found.odds
        return span_scores(found.texts(self._split), right, odds, threshold or 0.0)

    def predictions(self, found: Found, threshold: float | None = None) -> dict[str, str]:
        """Each question's answer by its id, in the split's order, as SQuAD's evaluation reads them.

        Args:
            found: from `find`.
            threshold: the answer is empty where the score of "no answer" exceeds that of the best
                span by more than this; None: 0 in a split with questions without an answer,
                else every question is answered.
        """
        threshold = self._threshold(threshold)
        silent = found.odds > (np.inf if threshold is None else threshold)
        questions, texts = self._split.questions.questions, found.texts(self._split)
        answers = zip(questions, texts, silent, strict=True)
        return {question.name: "" if no else text for question, text, no in answers}

    def _threshold(self, threshold: float | None) -> float | None:
        mixed = self._split.labelled and self._split.questions.unanswerable
        return 0.0 if threshold is None and mixed else threshold

    def null_odds(self, found: Found) -> dict[str, float]:
        """`Found.odds` by the questions' ids."""
        return {
            question.name: float(odds)
            for question, odds in zip(self._split.questions.questions, found.odds, strict=True)
        }


def describe_spans(scores: dict[str, float], questions: int) -> list[str]:
    """The scores of `span_scores` as lines for a person."""

    def both(prefix: str) -> str:
        return f"exact match {scores[prefix + 'exact_match']:.2%}, F1 {scores[prefix + 'f1']:.2%}"

    lines = [f"{both('')} of {questions:,} questions"]
    for prefix, kind in (("answerable_", "with an answer"), ("unanswerable_", "without one")):
        if prefix + "f1" in scores:
            lines.append(f"{both(prefix)} of the questions {kind}")
    if "best_f1" in scores:
        thresholds = (f"{scores[f'best_{n}_threshold']:.4f}" for n in ("exact_match", "f1"))
        lines.append(
            f"{both('best_')} at the best thresholds of these questions, {' and '.join(thresholds)}"
        )
    return lines


class Answer(NamedTuple):
    """An answer to a question.

    Attributes:
        text: as it stands in the context; empty: the context does not answer the question.
        start: the character it begins at; -1: there is no answer.
        probability: against the other answers that were considered.
    """

    text: str
    start: int
    probability: float


class QuestionAnswerer:
    """Answers questions that are in no data set.

    Attributes:
        cut: how many of the questions so far were longer than the model reads them.

    Args:
        model: the network.
        params: its parameters.
        tokenizer: that of the checkpoint.
        data: its settings of the data.
        threshold: "no answer" is the answer where its score exceeds that of the best span by more
            than this; None: every question is answered.
        batch_tokens: of windows read together, at most; the answers do not depend on it.
    """

    def __init__(
        self,
        model: Encoder,
        params: Any,
        tokenizer: Tokenizer,
        data: DataConfig,
        threshold: float | None = None,
        batch_tokens: int = 4096,
    ) -> None:
        self._params, self._tokenizer, self._data = params, tokenizer, data
        self._threshold, self._batch_tokens, self.cut = threshold, batch_tokens, 0
        self._predict = make_predict(model)

    def __call__(self, asked: Sequence[tuple[str, str]], places: Sequence[str]) -> list[Answer]:
        """An answer to each.

        Args:
            asked: each a question and its context.
            places: where each stands, for messages.

        Raises:
            UserError: a context has no token.
        """
        if not asked:
            return []
        contexts: dict[str, int] = {}
        questions = [
            Question(place, text, contexts.setdefault(context, len(contexts)), (), place)
            for (text, context), place in zip(asked, places, strict=True)
        ]
        whole = Questions(list(contexts), questions)
        split = make_windows(whole, self._data, self._tokenizer, "", lambda _: None)
        self.cut += split.cut
        found = find(self._predict, self._params, split, self._batches(split))
        return [self._answer(found, split, number) for number in range(len(asked))]

    def _batches(self, split: SpanSplit) -> Iterator[Batch]:
        most = self._data.max_length
        inputs = InputMaker(self._tokenizer, True, most)
        lengths = row_lengths(split, inputs)
        for rows, count, length in length_batches(lengths, self._batch_tokens, most):
            empty = np.full(count - len(rows), -1)
            yield window_batch(split, inputs, np.concatenate([rows, empty]), length)

    def _answer(self, found: Found, split: SpanSplit, question: int) -> Answer:
        rows = found.spans.row == question
        spans = list(zip(*(field[rows].tolist() for field in found.spans), strict=True))
        considered: dict[str, tuple[int, float]] = {}  # the best of each text, the best one first
        for _, first, last, score in spans:
            start = split.start(question, first)
            considered.setdefault(split.text(question, first, last), (start, score))
        null = float(found.null[question])
        best = next(iter(considered))
        scores = [score for _, score in considered.values()]
        if self._threshold is not None:
            scores.append(null)
        shares = probabilities(np.array(scores))
        if self._threshold is not None and null - scores[0] > self._threshold:
            return Answer("", -1, float(shares[-1]))
        return Answer(best, considered[best][0], float(shares[0]))
