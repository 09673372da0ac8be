"""Names in sentences as labels of words, and how many of them are found.

Labels such as B-PER, I-PER, O mark the words of a name (Ramshaw and Marcus 1995), of kind PER
here. What begins and ends one follows the rules of the shared task's program (Tjong Kim Sang and
Buchholz 2000), so that IOB1, IOB2 and IOBES all work.
"""

from collections.abc import Sequence

Entity = tuple[int, int, str]
"""The number of the first word, one past the last, and the kind."""

_BEGINS, _ENDS = {"B", "S"}, {"E", "S"}
_INSIDE = {"B", "I", "E", "S"}


def are_entities(names: Sequence[str]) -> bool:
    """Whether labels mark entities: all of them but O have a mark, and there is one."""
    marked = [name for name in names if name != "O"]
    return bool(marked) and all(_split(name)[0] in _INSIDE for name in marked)


def entities(labels: Sequence[str]) -> set[Entity]:
    """The entities of one sentence.

    A word of another kind than the one before it, and one marked B or S, begins an entity; so
    does one marked I or E that follows none. The word after one marked E or S goes on with none.

    >>> sorted(entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'LOC')]
    """
    found: set[Entity] = set()
    start, kind = -1, ""  # of the entity that is open, if start is not -1
    for i, label in enumerate([*labels, "O"]):
        mark, this = _split(label)
        inside = mark in _INSIDE
        if start >= 0 and not (inside and mark not in _BEGINS and this == kind):
            found.add((start, i, kind))
            start = -1
        if inside and start < 0:
            start, kind = i, this
        if start >= 0 and mark in _ENDS:
            found.add((start, i + 1, kind))
            start = -1
    return found


def entity_scores(
    predictions: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]
) -> dict[str, float]:
    """``precision``, ``recall`` and ``f1`` of entities over all sentences, 0 where there is none.

    One is found if its words and its kind are exactly right.

    Args:
        predictions: of each sentence the labels of its words.
        labels: the right ones.
    """
    right = found = wanted = 0
    for predicted, true in zip(predictions, labels, strict=True):
        ours, theirs = entities(predicted), entities(true)
        right += len(ours & theirs)
        found += len(ours)
        wanted += len(theirs)
    return {
        "precision": right / found if found else 0.0,
        "recall": right / wanted if wanted else 0.0,
        "f1": 2 * right / (found + wanted) if found + wanted else 0.0,
    }


def _split(label: str) -> tuple[str, str]:
    """The mark and the kind: "B-PER" is ("B", "PER"), "O" is ("O", "")."""
    mark, _, kind = label.partition("-")
    return mark, kind
