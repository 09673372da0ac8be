"""The embedded texts."""

from transformer.data import python_docs


def test_every_topic_is_in_one_split():
    parts = python_docs.load()
    assert parts.keys() == {"train", "validation"}
    train, validation = parts["train"], parts["validation"]
    assert not train.keys() & validation.keys()
    assert len(train) > 50 and len(validation) > 5
    sizes = [sum(map(len, part.values())) for part in (train, validation)]
    assert sum(sizes) > 300_000 and 0.03 < sizes[1] / sum(sizes) < 0.2


def test_the_split_depends_on_the_name_alone():
    """With another version of Python a topic stays where it was."""
    topics = {name: name for name in ("for", "while", "with", "if", "lambda", "class")}
    parts = python_docs.split(topics)
    assert list(parts["validation"]) == ["class", "for", "while", "with"]
    assert list(parts["train"]) == ["if", "lambda"]
    del topics["for"]
    assert list(python_docs.split(topics)["validation"]) == ["class", "while", "with"]
