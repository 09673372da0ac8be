"""Means of losses; scores of predicted text (BLEU, chrF, error rates), of classes and numbers."""

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
    Gorodkin 2004, equation 8), 0 where either is constant; with two classes ``f1`` of the second,
    with more ``macro_f1``, the mean over all; and ``majority``, the accuracy of always giving the
    label that is most frequent here.

    Args:
        predictions: int ``[examples]``, each in [0, classes).
        labels: int ``[examples]``, the right ones.
        classes: how many there are.
    """
    from sklearn import metrics  # here: it takes a second to import

    # Typed as if both had to be texts.
    options: Any = {"average": "binary" if classes == 2 else "macro", "zero_division": 0}
    known = None if classes == 2 else range(classes)
    return {
        "accuracy": float(metrics.accuracy_score(labels, predictions)),
        "matthews": float(metrics.matthews_corrcoef(labels, predictions)),
        "majority": float(np.bincount(labels).max() / len(labels)),
        "f1" if classes == 2 else "macro_f1": float(
            metrics.f1_score(labels, predictions, labels=known, **options)
        ),
    }


def mean_nll(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """The mean cross-entropy of the right classes.

    Args:
        probabilities: float32 ``[examples, classes]``.
        labels: int ``[examples]``, the right ones.
    """
    right = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return float(-np.log(np.maximum(right, 1e-30)).mean())


def value_scores(predictions: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """How well numbers are predicted.

    ``pearson`` and ``spearman``, the correlations of both and of their ranks, 0 where either is
    constant; ``mse``, the mean squared error; and ``mean_mse``, that of always giving the mean of
    the values here.

    Args:
        predictions: float ``[examples]``.
        values: float ``[examples]``, the right ones.
    """
    from scipy import stats

    found, right = (np.asarray(x, np.float64) for x in (predictions, values))
    varied = min(len(np.unique(found)), len(np.unique(right))) > 1
    correlations: Any = (stats.pearsonr, stats.spearmanr)
    pearson, spearman = (float(f(found, right).statistic) if varied else 0.0 for f in correlations)
    return {
        "pearson": pearson,
        "spearman": spearman,
        "mse": float(((found - right) ** 2).mean()),
        "mean_mse": float(right.var()),
    }


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
