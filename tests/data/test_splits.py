"""Which splits are read, and which part of which is held out."""

from transformer.data.splits import read_splits

WHOLE = {"train": "abc", "validation": "v", "test": "t"}


def last(part: str) -> tuple[str, str | None]:
    return part[:-1], part[-1]


def test_what_is_asked_for_and_exists():
    assert read_splits(("train", "test"), WHOLE.get, last) == {"train": "abc", "test": "t"}
    assert read_splits(("test",), {"train": "abc"}.get, last) == {}


def test_a_part_of_the_training_split_is_held_out_where_there_is_no_other():
    """Also where only one of the two is asked for: both must fit together."""
    whole = {"train": "abc"}.get
    assert read_splits(("train", "validation"), whole, last) == {"train": "ab", "validation": "c"}
    assert read_splits(("train",), whole, last) == {"train": "ab"}
    assert read_splits(("validation",), whole, last) == {"validation": "c"}


def test_the_training_split_is_not_read_for_a_validation_split_that_exists():
    asked = []

    def read(name: str) -> str:
        asked.append(name)
        return WHOLE[name]

    assert read_splits(("validation",), read, last) == {"validation": "v"}
    assert asked == ["validation"]
