"""Names in sentences, by hand, by the rules of the shared task's program."""

import pytest

from transformer.training.entities import are_entities, entities, entity_scores


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O O", []),
        ("B-PER I-PER O I-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),  # IOB1 begins with I
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("I-PER I-LOC I-LOC B-LOC", [(0, 1, "PER"), (1, 3, "LOC"), (3, 4, "LOC")]),
        ("B-PER E-PER I-PER S-LOC", [(0, 2, "PER"), (2, 3, "PER"), (3, 4, "LOC")]),  # IOBES
        ("O B-A-B I-A-B", [(1, 3, "A-B")]),
        ("B-PER O I-PER", [(0, 1, "PER"), (2, 3, "PER")]),
        ("B I O", [(0, 2, "")]),
    ],
)
def test_entities(labels, expected):
    assert sorted(entities(labels.split())) == expected


def test_only_marks_make_entities():
    assert are_entities(["O", "B-PER", "I-PER"])
    assert not are_entities(["NN", "VB"]) and not are_entities(["O"])


def test_scores_by_hand():
    """Of 3 entities 1 is right, 1 has the wrong kind, 1 ends too early; 1 more is found."""
    labels = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "I-ORG", "O"]]
    found = [["B-PER", "I-PER", "O", "B-PER"], ["B-ORG", "O", "B-LOC"]]
    scores = entity_scores(found, labels)
    assert scores == pytest.approx({"precision": 1 / 4, "recall": 1 / 3, "f1": 2 / 7})


def test_an_entity_does_not_go_on_in_the_next_sentence():
    scores = entity_scores([["B-A"], ["I-A"]], [["B-A"], ["B-A"]])
    assert scores == {"precision": 1.0, "recall": 1.0, "f1": 1.0}
    assert entity_scores([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}
