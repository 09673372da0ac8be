import numpy as np
import pytest
import sacrebleu

from transformer.config import DataConfig
from transformer.errors import UserError
from transformer.training.metrics import (
    class_scores,
    describe,
    phoneme_error_rate,
    score,
    scored_by_errors,
    text_scores,
    word_error_rate,
)


def test_phoneme_error_rate_takes_the_closest_pronunciation():
    hypotheses = ["T AH M EY T OW", "K AE", "D AO G Z"]
    references = [["T AH M AA T OW", "T AH M EY T OW"], ["K AE T"], ["D AO G", "D AA G"]]
    # 0 of 6, 1 of 3 (one missing), 1 of 3 (one too many)
    assert phoneme_error_rate(hypotheses, references) == pytest.approx(2 / 12)


def test_phoneme_error_rate_is_a_ratio_of_sums():
    """A mean of the examples' rates would be (1 + 0) / 2."""
    references = [["A"], ["A B C D E F G"]]
    assert phoneme_error_rate(["B", "A B C D E F G"], references) == pytest.approx(1 / 8)


def test_phoneme_error_rate_does_not_depend_on_the_references_order():
    answers = ["A B C D", "A B"]
    rates = {phoneme_error_rate(["A B C"], [order]) for order in (answers, answers[::-1])}
    assert rates == {1 / 2}


def test_word_error_rate_accepts_any_reference():
    hypotheses = ["A B", "A  B", "B A", ""]
    references = [["C", "A B"], ["A B"], ["A B"], ["A"]]
    assert word_error_rate(hypotheses, references) == 2 / 4


def test_text_scores_are_sacrebleus_on_raw_text():
    """The same output was once scored 37 or 32, by who had tokenised it."""
    hypotheses = ["The cat sat on the mat.", "Hello there, world!", "A third sentence here."]
    references = [
        ["The cat sat on a mat.", "A cat sat on the mat."],
        ["Hello, world!"],
        ["Another third sentence here."],
    ]
    scores = text_scores(hypotheses, references)
    streams = [
        ["The cat sat on a mat.", "Hello, world!", "Another third sentence here."],
        ["A cat sat on the mat.", None, None],
    ]
    assert scores.bleu == pytest.approx(sacrebleu.corpus_bleu(hypotheses, streams).score)
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(hypotheses, streams).score)
    assert 0 < scores.bleu < 100
    assert "tok:13a" in scores.bleu_signature and "nrefs:var" in scores.bleu_signature
    assert "version" in scores.chrf_signature


def test_a_perfect_output_scores_100():
    lines = ["one two three four five", "six seven eight nine ten"]
    scores = score(False, lines, [[line] for line in lines])
    assert scores == {"bleu": pytest.approx(100), "chrf": pytest.approx(100)}


def test_score_suits_the_dataset():
    assert score(True, ["A"], [["B"]]) == {"per": 1.0, "wer": 1.0}


def test_describe_gives_the_numbers_and_the_signatures():
    (line,) = describe(True, ["A B", "C"], [["A B"], ["C D"]])
    assert line.startswith("phoneme error rate 25.00%, word error rate 50.00% (2 words")
    bleu, lower, chrf = describe(False, ["a b c d e"], [["a B c d e"]])
    assert not bleu.startswith("BLEU 100.00") and "case:mixed" in bleu
    assert lower.startswith("BLEU 100.00  nrefs:1|") and "case:lc" in lower
    assert chrf.startswith("chrF ") and "nrefs:1|" in chrf


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], [["a"], ["b"]])])
def test_unequal_numbers_are_an_error(hypotheses, references):
    with pytest.raises(UserError, match="expected equal numbers"):
        score(False, hypotheses, references)


@pytest.mark.parametrize(
    ("dataset", "metric", "by_errors"),
    [("cmudict", "auto", True), ("tfds:cmudict", "auto", True), ("tfds:x/y", "auto", False),
     ("cmudict", "bleu", False), ("tfds:x/y", "error_rate", True)],
)  # fmt: skip
def test_phonemes_are_not_scored_by_bleu(dataset, metric, by_errors):
    """The dictionary through TFDS got BLEU of its phonemes."""
    assert scored_by_errors(DataConfig(dataset=dataset, metric=metric)) is by_errors


def test_class_scores_of_two_classes_by_hand():
    """TP 3, FN 1, FP 2, TN 4: MCC = (3 4 - 2 1) / sqrt(5 4 6 5)."""
    labels = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    predictions = np.array([1, 1, 1, 0, 1, 1, 0, 0, 0, 0])
    scores = class_scores(predictions, labels, 2)
    assert scores["accuracy"] == 0.7
    assert scores["matthews"] == pytest.approx(10 / 600**0.5)
    assert scores["f1"] == pytest.approx(6 / 9)
    assert scores["majority"] == 0.6


def test_class_scores_of_three_classes_by_hand():
    """Right 5 of 6, true (2, 3, 1), predicted (3, 2, 1): (5 6 - 13) / (36 - 14)."""
    labels, predictions = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 0, 1, 1, 0, 2])
    scores = class_scores(predictions, labels, 3)
    assert scores["matthews"] == pytest.approx(17 / 22)
    assert "f1" not in scores and scores["majority"] == 0.5


@pytest.mark.parametrize("classes", [2, 3])
def test_matthews_is_the_correlation_of_indicators(classes):
    """For two classes Pearson's; for more its generalisation (covariances summed over classes)."""
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, 101)
    predictions = np.where(rng.random(101) < 0.6, labels, rng.integers(0, classes, 101))
    x, y = np.eye(classes)[labels], np.eye(classes)[predictions]
    x, y = x - x.mean(0), y - y.mean(0)
    expected = (x * y).sum() / ((x * x).sum() * (y * y).sum()) ** 0.5
    found = class_scores(predictions, labels, classes)["matthews"]
    assert found == pytest.approx(expected)


def test_a_constant_prediction_has_no_correlation():
    scores = class_scores(np.zeros(5, int), np.array([0, 0, 1, 0, 1]), 2)
    assert scores == {"accuracy": 0.6, "matthews": 0.0, "majority": 0.6, "f1": 0.0}
