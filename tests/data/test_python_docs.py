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


def test_training_topics_have_no_paragraph_of_a_held_out_one():
    """ "compound" says all that "while" does: the loss on held-out topics was that of seen text."""
    topics = {
        "compound": "Statements\n\n  The while\nstatement\n\n\nThe if statement\n",
        "if": "The if statement",
        "while": "The while  statement\n\nand more",
    }
    parts = python_docs.split(topics)
    assert parts["validation"] == {"while": topics["while"]}
    assert parts["train"] == {
        "compound": "Statements\n\nThe if statement\n",
        "if": "The if statement",
    }
    assert list(python_docs.split({"while": "a\n\nb", "if": "b"})["train"]) == []


def test_no_paragraph_of_the_held_out_topics_is_among_the_training_ones():
    paragraphs = {
        name: {" ".join(p.split()) for text in part.values() for p in text.split("\n\n")} - {""}
        for name, part in python_docs.load().items()
    }
    assert not paragraphs["train"] & paragraphs["validation"]
