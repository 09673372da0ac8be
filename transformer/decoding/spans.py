"""The best answers to a question among the spans of a text (Devlin et al. 2019, section 4.2).

A span's score is the logit of its first token as a beginning plus that of its last token as an
end. The score of "no answer" is that of the span [CLS] alone.
"""

from typing import NamedTuple

import numpy as np

LONGEST = 30
"""Most tokens of an answer, as in the published program."""
KEPT = 20
"""Spans kept of a window, and of a question, as in the published program."""


class Spans(NamedTuple):
    """Spans of some rows, each row's best first; every field is ``[N]``.

    Attributes:
        row: int, in ascending order.
        first: int, the place of the first token.
        last: int, of the last.
        score: float.
    """

    row: np.ndarray
    first: np.ndarray
    last: np.ndarray
    score: np.ndarray


def best_spans(
    starts: np.ndarray,
    ends: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    stop: np.ndarray,
    longest: int = LONGEST,
    count: int = KEPT,
) -> Spans:
    """The best spans of each row, of all that are allowed.

    (The published program looks at the best 20 beginnings and ends only, so that it may miss
    some.) Of equal scores the span goes first that begins earlier, then the shorter one.

    Args:
        starts: float ``[R, T]``, logits of beginning at each place.
        ends: float ``[R, T]``, of ending there.
        low: int ``[R]``, the first place where a span may begin.
        high: int ``[R]``, one past the last such place.
        stop: int ``[R]``, one past the last place where it may end.
        longest: most tokens of a span.
        count: most spans of a row.
    """
    rows, length = starts.shape
    place = np.arange(length)
    starts = np.where((place >= low[:, None]) & (place < high[:, None]), starts, -np.inf)
    ends = np.where(place < stop[:, None], ends, -np.inf)
    longest = min(longest, length)
    scores = np.full((rows, length, longest), -np.inf, np.float32)
    for more in range(longest):
        scores[:, : length - more, more] = starts[:, : length - more] + ends[:, more:]
    scores = scores.reshape(rows, -1)
    # Only what is at least as good as the last one kept needs to be put in order.
    worth = scores > -np.inf
    if count < scores.shape[1]:
        worth &= scores >= np.partition(scores, -count, axis=1)[:, [-count]]
    row, cell = np.nonzero(worth)
    first, more = np.divmod(cell, longest)
    return top(Spans(row, first, first + more, scores[row, cell]), count)


def top(spans: Spans, count: int) -> Spans:
    """The best `count` spans of each row; of equal scores the one that is given first."""
    order = np.lexsort((np.arange(len(spans.row)), -spans.score, spans.row))
    rows = spans.row[order]
    rank = np.arange(len(rows)) - np.searchsorted(rows, rows, "left")
    return Spans(*(field[order[rank < count]] for field in spans))


def null_scores(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The score of "no answer" in each row: ``[R, T]`` twice to ``[R]``."""
    return starts[:, 0] + ends[:, 0]


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Of each of some scores against the others: their softmax, float64 ``[N]``."""
    weights = np.exp(np.asarray(scores, np.float64) - np.max(scores))
    return weights / weights.sum()
