"""Python's own documentation: texts that are on every machine.

`pydoc` carries the topics of the language reference (what ``help("for")`` shows) as plain
text, about 465,000 characters.
"""

import functools
import hashlib
import itertools
import re

# Of 256: topics whose hash begins with a smaller byte are held out.
_HELD_OUT = 26
_BETWEEN_PARAGRAPHS = re.compile(r"(\n\s*\n)")


def split(topics: dict[str, str]) -> dict[str, dict[str, str]]:
    """The topics as train and validation, in alphabetical order.

    The SHA-256 of its name decides where a topic goes, so that the split needs no seed and
    stays when another version of Python has other topics. Some topics are part of another
    ("while" of "compound"): the paragraphs of a held-out one are cut out of the training ones.
    """
    parts: dict[str, dict[str, str]] = {"train": {}, "validation": {}}
    for name in sorted(topics):
        held_out = hashlib.sha256(name.encode()).digest()[0] < _HELD_OUT
        parts["validation" if held_out else "train"][name] = topics[name]
    said = {
        _words(paragraph)
        for text in parts["validation"].values()
        for paragraph in _BETWEEN_PARAGRAPHS.split(text)
    }
    cut = {name: _without(said, text) for name, text in parts["train"].items()}
    return {**parts, "train": {name: text for name, text in cut.items() if text.strip()}}


def _without(paragraphs: set[str], text: str) -> str:
    """The text without these paragraphs."""
    # Paragraphs and what is between them take turns.
    parts = [*_BETWEEN_PARAGRAPHS.split(text), ""]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    kept = [pair for pair in pairs if _words(pair[0]) not in paragraphs]
    return "".join(itertools.chain.from_iterable(kept))


def _words(paragraph: str) -> str:
    return " ".join(paragraph.split())


@functools.cache
def load() -> dict[str, dict[str, str]]:
    """Each split's topics with their texts."""
    from pydoc_data.topics import topics

    return split(topics)
