"""Exact match and F1 of answers, as SQuAD's evaluation defines them (Rajpurkar et al. 2016, 2018).

Both are of normalised texts (see `normalised`) and the best over a question's answers. The right
answer to a question without one is the empty text.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Lower case, without ASCII punctuation, without articles, words separated by one space.

    >>> normalised("The  Eiffel-Tower, (an) Icon.")
    'eiffeltower icon'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def answer_scores(predictions: Sequence[str], answers: Sequence[Sequence[str]]) -> np.ndarray:
    """Exact match and F1 of each prediction: float64 ``[N, 2]``, in [0, 1].

    An answer of which nothing is left by normalisation does not count, unless there is no other:
    then the right answer is the empty text.

    Args:
        predictions: of each question.
        answers: of each question the right ones; (): there is none.
    """
    found = np.zeros((len(predictions), 2))
    for i, (prediction, right) in enumerate(zip(predictions, answers, strict=True)):
        given = normalised(prediction)
        wanted = [text for text in map(normalised, right) if text] or [""]
        found[i] = max(given == text for text in wanted), max(_f1(given, text) for text in wanted)
    return found


def _f1(given: str, wanted: str) -> float:
    """The harmonic mean of precision and recall of the words, with their multiplicities."""
    ours, theirs = given.split(), wanted.split()
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * common / (len(ours) + len(theirs))


def best_threshold(
    answered: np.ndarray, silent: np.ndarray, odds: np.ndarray
) -> tuple[float, float]:
    """The best mean score, and the threshold of "no answer" that reaches it.

    Args:
        answered: float ``[N]``, the score of each question where it is answered.
        silent: float ``[N]``, where it is not.
        odds: float ``[N]``, of "no answer"; a question is answered if they are at most the
            threshold.

    Returns:
        The mean and the lowest of the thresholds that reach it.
    """
    order = np.argsort(odds, kind="stable")
    odds = odds[order]
    gained = silent.sum() + np.concatenate([[0], np.cumsum((answered - silent)[order])])
    # Questions of equal odds are answered together.
    thresholds = np.concatenate([[odds[0] - 1], odds])
    last = np.append(thresholds[1:] != thresholds[:-1], True)
    best = int(np.flatnonzero(last)[gained[last].argmax()])
    return float(gained[best] / len(odds)), float(thresholds[best])


def span_scores(
    texts: Sequence[str],
    answers: Sequence[Sequence[str]],
    odds: np.ndarray | None = None,
    threshold: float = 0.0,
) -> dict[str, float]:
    """``exact_match`` and ``f1``, as fractions; more where there are questions without an answer.

    Those are: both of the questions with and without an answer apart (``answerable_...`` and
    ``unanswerable_...``), and both at the best threshold of each (``best_...`` and
    ``best_..._threshold``), chosen on these very questions as in the official evaluation.

    Args:
        texts: the best answer to each question, not empty.
        answers: of each question the right ones.
        odds: float ``[N]``, the score of "no answer" less that of the text; None: all questions
            have an answer.
        threshold: where `odds` are above it the answer is the empty text.
    """
    answered = answer_scores(texts, answers)
    if odds is None:
        return dict(zip(_NAMES, answered.mean(axis=0).tolist(), strict=True))
    silent = answer_scores([""] * len(texts), answers)
    scores = np.where((odds > threshold)[:, None], silent, answered)
    impossible = np.array([not right for right in answers])
    parts = {"": slice(None), "answerable_": ~impossible, "unanswerable_": impossible}
    found: dict[str, float] = {}
    for prefix, chosen in parts.items():
        for i, name in enumerate(_NAMES):
            part = scores[chosen, i]
            if len(part):
                found[prefix + name] = float(part.mean())
    for i, name in enumerate(_NAMES):
        best = best_threshold(answered[:, i], silent[:, i], odds)
        found |= {f"best_{name}": best[0], f"best_{name}_threshold": best[1]}
    return found


_NAMES = ("exact_match", "f1")
