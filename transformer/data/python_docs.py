"""Python's own documentation: texts that are on every machine.

`pydoc` carries the topics of the language reference (what ``help("for")`` shows) as plain
text, about 465,000 characters.
"""

import functools
import hashlib

# Of 256: topics whose hash begins with a smaller byte are held out.
_HELD_OUT = 26


def split(topics: dict[str, str]) -> dict[str, dict[str, str]]:
    """The topics as train and validation, in alphabetical order.

    The SHA-256 of its name decides where a topic goes, so that the split needs no seed and
    stays when another version of Python has other topics.
    """
    parts: dict[str, dict[str, str]] = {"train": {}, "validation": {}}
    for name in sorted(topics):
        held_out = hashlib.sha256(name.encode()).digest()[0] < _HELD_OUT
        parts["validation" if held_out else "train"][name] = topics[name]
    return parts


@functools.cache
def load() -> dict[str, dict[str, str]]:
    """Each split's topics with their texts."""
    from pydoc_data.topics import topics

    return split(topics)
