"""SQuAD's scores, worked out by hand from the definition of its official evaluation."""

import numpy as np
import pytest

from transformer.training.span_metrics import (
    answer_scores,
    best_threshold,
    normalised,
    span_scores,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Eiffel-Tower", "eiffeltower"),
        ("an  apple\n a day", "apple day"),
        ("Theatre in Athens", "theatre in athens"),
        ("the", ""),
        ("“Zürich” — 1,901%", "“zürich” — 1901"),  # only ASCII punctuation is taken away
        ("U.S.A.", "usa"),
        ("a.", ""),
        ("x a. b", "x b"),
    ],
)
def test_normalised_texts(text, expected):
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("the Broncos", ("Denver Broncos", "Broncos"), 1, 1),
        ("Denver", ("Denver Broncos",), 0, 2 / 3),  # precision 1, recall 1/2
        ("in Denver in May", ("in Denver",), 0, 2 / 3),  # "in" counts once: 2/4 and 2/2
        ("in in", ("in Denver in May",), 0, 2 / 3),
        ("May", ("June",), 0, 0),
        ("", ("June",), 0, 0),
        ("", (), 1, 1),
        ("June", (), 0, 0),
        ("the", ("A!",), 1, 1),  # nothing is left of either
        ("x", ("the", "x y"), 0, 2 / 3),  # "the" does not count
    ],
)
def test_scores_of_one_answer(prediction, answers, exact, f1):
    found = answer_scores([prediction], [answers])
    assert found[0].tolist() == pytest.approx([exact, f1])


def test_the_best_threshold():
    """Answering in the order of the odds: 2, then +1 = 3, -1 = 2, +1 and +0 together = 3."""
    answered = np.array([1.0, 0, 1, 0, 0])
    silent = np.array([0.0, 1, 0, 0, 1])
    odds = np.array([-3.0, -1, 2, 2, 5])
    assert best_threshold(answered, silent, odds) == (3 / 5, -3.0)


def test_questions_of_equal_odds_are_answered_together():
    """The official program stops between them, at a threshold that no program can use."""
    answered, silent = np.array([1.0, 0, 0]), np.array([0.0, 1, 1])
    odds = np.array([2.0, 2.0, 2.0])
    assert best_threshold(answered, silent, odds) == (2 / 3, 1.0), "better to answer nothing"


def test_every_question_may_have_to_be_answered():
    answered, silent = np.array([1.0, 0.5]), np.array([0.0, 0.0])
    assert best_threshold(answered, silent, np.array([0.5, 7.0])) == (0.75, 7.0)


TEXTS = ["Denver", "in May", "June", "wrong"]
RIGHT = [("Denver Broncos",), ("May",), (), ()]


def test_scores_where_all_are_answered():
    found = span_scores(TEXTS[:2], RIGHT[:2])
    assert found == pytest.approx({"exact_match": 0, "f1": 2 / 3})


def test_scores_with_questions_without_an_answer():
    odds = np.array([-2.0, 1.0, 0.5, -1.0])
    found = span_scores(TEXTS, RIGHT, odds)
    # At 0 the second (wrongly) and the third (rightly) are not answered.
    assert found == pytest.approx(
        {
            "exact_match": 1 / 4,
            "f1": (2 / 3 + 0 + 1 + 0) / 4,
            "answerable_exact_match": 0,
            "answerable_f1": 1 / 3,
            "unanswerable_exact_match": 1 / 2,
            "unanswerable_f1": 1 / 2,
            "best_exact_match": 2 / 4,
            "best_exact_match_threshold": -3.0,
            "best_f1": (2 / 3 + 0 + 1 + 1) / 4,
            "best_f1_threshold": -2.0,
        }
    )
    strict = span_scores(TEXTS, RIGHT, odds, threshold=-2.0)
    assert strict["f1"] == pytest.approx(found["best_f1"])
    assert span_scores(TEXTS, RIGHT, odds, threshold=9.0)["unanswerable_f1"] == 0
