"""Scores of predicted text: BLEU and chrF, phoneme and word error rate."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rapidfuzz.distance import Levenshtein

from transformer.errors import UserError

References = Sequence[Sequence[str]]
"""For every hypothesis, all its right answers (at least one)."""


class TextScores(NamedTuple):
    """Corpus scores (0 to 100) with the signatures that make them comparable."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def text_scores(hypotheses: Sequence[str], references: References) -> TextScores:
    """sacreBLEU (Post 2018) and chrF (Popović 2015) of raw, detokenised text."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    _require_aligned(hypotheses, references)
    # sacreBLEU wants the first references of all sentences, then the second ones, ...
    # with None where there is none, which its annotations do not say.
    streams: Any = [
        [answers[i] if i < len(answers) else None for answers in references]
        for i in range(max(map(len, references)))
    ]
    bleu, chrf = BLEU(), CHRF()
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


def score(dataset: str, hypotheses: Sequence[str], references: References) -> dict[str, float]:
    """The scores that suit a dataset: PER and WER for ``cmudict``, BLEU and chrF for text."""
    if dataset == "cmudict":
        return {
            "per": phoneme_error_rate(hypotheses, references),
            "wer": word_error_rate(hypotheses, references),
        }
    scores = text_scores(hypotheses, references)
    return {"bleu": scores.bleu, "chrf": scores.chrf}


def describe(dataset: str, hypotheses: Sequence[str], references: References) -> list[str]:
    """The scores of `score` as lines for a person, with what makes them comparable."""
    if dataset == "cmudict":
        values = score(dataset, hypotheses, references)
        return [
            f"phoneme error rate {values['per']:.2%}, word error rate {values['wer']:.2%} "
            f"({len(hypotheses)} words; any listed pronunciation counts as right)"
        ]
    scores = text_scores(hypotheses, references)
    return [
        f"BLEU {scores.bleu:.2f}  {scores.bleu_signature}",
        f"chrF {scores.chrf:.2f}  {scores.chrf_signature}",
    ]


def _require_aligned(hypotheses: Sequence[str], references: References) -> None:
    if not hypotheses or len(hypotheses) != len(references):
        raise UserError(
            f"score: found {len(hypotheses)} hypotheses for {len(references)} references, "
            "expected equal numbers above 0"
        )
