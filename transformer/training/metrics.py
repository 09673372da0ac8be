"""Means of losses; scores of predicted text (BLEU, chrF, error rates) and of predicted classes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from transformer.config import DataConfig
from transformer.errors import UserError
from transformer.functional.losses import LossSums

References = Sequence[Sequence[str]]
"""For every hypothesis, all its right answers (at least one)."""


def loss_means(sums: LossSums) -> dict[str, float]:
    """``loss`` and ``nll`` a token, and the ``perplexity``, of sums over a whole split."""
    loss, nll, weight = sums
    return {
        "loss": float(loss / weight),
        "nll": float(nll / weight),
        "perplexity": float(np.exp(nll / weight)),
    }


class TextScores(NamedTuple):
    """Corpus scores (0 to 100) with the signatures that make them comparable."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def text_scores(
    hypotheses: Sequence[str], references: References, lowercase: bool = False
) -> TextScores:
    """sacreBLEU (Post 2018) and chrF (Popović 2015) of raw, detokenised text.

    With `lowercase` case does not count: for models whose output has none.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    _require_aligned(hypotheses, references)
    # sacreBLEU wants the first references of all sentences, then the second ones, ...
    # with None where there is none, which its annotations do not say.
    streams: Any = [
        [answers[i] if i < len(answers) else None for answers in references]
        for i in range(max(map(len, references)))
    ]
    bleu, chrf = BLEU(lowercase=lowercase), CHRF(lowercase=lowercase)
    return TextScores(
        bleu.corpus_score(hypotheses, streams).score,
        chrf.corpus_score(hypotheses, streams).score,
        str(bleu.get_signature()),
        str(chrf.get_signature()),
    )


def phoneme_error_rate(hypotheses: Sequence[str], references: References) -> float:
    """Edits to the closest reference over that reference's length, summed over the corpus.

    Phonemes are separated by spaces. Of equally close references the shorter
    counts. A fraction; above 1 when the hypotheses are much too long.
    """
    _require_aligned(hypotheses, references)
    edits = length = 0
    for hypothesis, answers in zip(hypotheses, references, strict=True):
        symbols = hypothesis.split()
        nearest = min(
            (Levenshtein.distance(symbols, answer.split()), len(answer.split()))
            for answer in answers
        )
        edits += nearest[0]
        length += nearest[1]
    return edits / length


def word_error_rate(hypotheses: Sequence[str], references: References) -> float:
    """Fraction of words whose prediction equals none of the references, symbol by symbol."""
    _require_aligned(hypotheses, references)
    wrong = sum(
        hypothesis.split() not in [answer.split() for answer in answers]
        for hypothesis, answers in zip(hypotheses, references, strict=True)
    )
    return wrong / len(hypotheses)


def class_scores(predictions: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """How well classes are predicted.

    ``accuracy``; ``matthews``, the correlation of both (Matthews 1975; for more than two classes
    Gorodkin 2004, equation 8), 0 where either is constant; with two classes ``f1`` of the second;
    and ``majority``, the accuracy of always giving the label that is most frequent here.

    Args:
        predictions: int ``[examples]``, each in [0, classes).
        labels: int ``[examples]``, the right ones.
        classes: how many there are.
    """
    confusion = np.zeros((classes, classes))
    np.add.at(confusion, (labels, predictions), 1)
    total, right = confusion.sum(), np.trace(confusion)
    true, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    spread = (total**2 - true @ true) * (total**2 - predicted @ predicted)
    scores = {
        "accuracy": right / total,
        "matthews": (right * total - true @ predicted) / spread**0.5 if spread > 0 else 0.0,
        "majority": true.max() / total,
    }
    if classes == 2:
        scores["f1"] = 2 * confusion[1, 1] / max(true[1] + predicted[1], 1.0)
    return {name: float(value) for name, value in scores.items()}


def scored_by_errors(data: DataConfig) -> bool:
    """Whether outputs are scored by error rates (else by BLEU and chrF)."""
    if data.metric == "auto":
        return data.origin in ("cmudict", "tfds:cmudict")
    return data.metric == "error_rate"


def score(by_errors: bool, hypotheses: Sequence[str], references: References) -> dict[str, float]:
    """PER and WER if `by_errors`, else BLEU and chrF."""
    if by_errors:
        return {
            "per": phoneme_error_rate(hypotheses, references),
            "wer": word_error_rate(hypotheses, references),
        }
    scores = text_scores(hypotheses, references)
    return {"bleu": scores.bleu, "chrf": scores.chrf}


def describe(by_errors: bool, hypotheses: Sequence[str], references: References) -> list[str]:
    """The scores of `score` as lines for a person, with what makes them comparable."""
    if by_errors:
        values = score(by_errors, hypotheses, references)
        return [
            f"phoneme error rate {values['per']:.2%}, word error rate {values['wer']:.2%} "
            f"({len(hypotheses)} words; any listed pronunciation counts as right)"
        ]
    scores = text_scores(hypotheses, references)
    lower = text_scores(hypotheses, references, lowercase=True)
    return [
        f"BLEU {scores.bleu:.2f}  {scores.bleu_signature}",
        f"BLEU {lower.bleu:.2f}  {lower.bleu_signature}",
        f"chrF {scores.chrf:.2f}  {scores.chrf_signature}",
    ]


def _require_aligned(hypotheses: Sequence[str], references: References) -> None:
    if not hypotheses or len(hypotheses) != len(references):
        raise UserError(
            f"score: found {len(hypotheses)} hypotheses for {len(references)} references, "
            "expected equal numbers above 0"
        )
