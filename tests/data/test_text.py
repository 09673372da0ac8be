"""Texts to documents, splits and tokens."""

import dataclasses
import gzip

import numpy as np
import pytest
import tensorflow_datasets as tfds

from transformer.data import python_docs
from transformer.data import store as store_module
from transformer.data.pipeline import prepare
from transformer.data.store import document_ends
from transformer.data.text import TextSplit, hold_out, read_documents
from transformer.data.tokenizer import BOS, EOS, SpecialIds, Tokenizer
from transformer.errors import UserError

ALL = ("train", "validation", "test")
TEXT = "first line\nsecond line\n\n  \nthird line\n"


@pytest.fixture
def lm(settings):
    def make(**values):
        return settings(objective="language_model", **values)

    return make


def read(config, splits=ALL):
    return read_documents(config, splits, log=lambda line: None)


def test_what_a_document_is(write, lm):
    path = write("a.txt", TEXT)
    for documents, expected in {
        "file": [TEXT],
        "line": ["first line", "second line", "third line"],
        "paragraph": ["first line\nsecond line", "third line"],
    }.items():
        config = lm(train=(path,), documents=documents, validation_fraction=0.0)
        assert read(config) == {"train": expected}


def test_files_are_read_as_they_are(write, lm, tmp_path):
    """But for a byte-order mark and the carriage returns of another system."""
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"x\r\ny  z"))
    files = write("a", "\ufeff one\u2028two\r"), str(tmp_path / "b.gz")
    log: list[str] = []
    config = lm(train=files, validation=(write("c", "v"),), test=(write("d", "t\n"),))
    found = read_documents(config, ALL, log.append)
    assert found == {"train": [" one\u2028two", "x\ny  z"], "validation": ["v"], "test": ["t\n"]}
    assert set(log) == {
        "train: 2 documents, 14 characters",
        "validation: 1 document, 1 characters",
        "test: 1 document, 2 characters",
    }
    assert read(config, ("validation",)) == {"validation": ["v"]}


def test_a_byte_that_is_no_text_names_file_and_line(write, lm):
    path = write("a.txt", b"one\ntwo \xff\n")
    with pytest.raises(UserError, match=r"a\.txt:2: byte 0xff is not UTF-8"):
        read(lm(train=(path,)))


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_refused(write, lm, content):
    with pytest.raises(UserError, match=r"data\.train: no text in .*empty\.txt"):
        read(lm(train=(write("empty.txt", content),)))


def test_the_last_part_is_held_out():
    """As the well-known split of the small Shakespeare: the first 90 % and the last 10 %."""
    text = "".join(chr(97 + i % 26) for i in range(1_013))
    train, validation = hold_out([text], 0.1, divide=True)
    assert (train, validation) == ([text[:911]], [text[911:]])
    assert hold_out([text], 0.0, divide=True) == ([text], None)


def test_documents_are_held_out_whole_unless_they_are_files():
    documents = ["aaaa", "bbbb", "cc"]
    assert hold_out(documents, 0.5, divide=False) == (["aaaa", "bbbb"], ["cc"])
    assert hold_out(documents, 0.5, divide=True) == (["aaaa", "b"], ["bbb", "cc"])
    assert hold_out(documents, 0.6, divide=True) == (["aaaa"], ["bbbb", "cc"])


def test_nothing_left_to_hold_out():
    with pytest.raises(UserError, match=r"validation_fraction = 0\.1: leaves no text for valid"):
        hold_out(["a" * 20], 0.1, divide=False)
    with pytest.raises(UserError, match=r"validation_fraction = 0\.9: leaves no text for train"):
        hold_out(["abc"], 0.9, divide=True)


def test_the_held_out_part_is_not_trained_on(write, lm):
    config = lm(train=(write("a", "x" * 90 + "y" * 10),), target_symbols="characters")
    data = prepare(config, log=lambda line: None)
    assert isinstance(data.train, TextSplit) and isinstance(data.validation, TextSplit)
    assert data.tokenizer.to_json()["symbols"] == ["x"]
    assert data.validation.documents == ["y" * 10]
    assert (data.validation.characters, data.train.characters) == (10, 90)
    # Asked for alone it is the same, with the tokenizer of a checkpoint.
    alone = prepare(config, data.tokenizer, ("validation",), log=lambda line: None)
    assert alone.train is None and alone.validation is not None
    assert alone.validation.fingerprint == data.validation.fingerprint


def test_the_embedded_texts(lm):
    found = read(lm())
    assert found.keys() == {"train", "validation"}
    assert found["train"] == list(python_docs.load()["train"].values())


def test_documents_lie_between_begin_and_end(write, lm, monkeypatch):
    monkeypatch.setattr(store_module, "_CHUNK", 2)
    path = write("a", "ab\n\nc\nä\n")
    config = lm(train=(path,), documents="line", tokenizer="bytes", validation_fraction=0.0)
    train = prepare(config, log=lambda line: None).train
    assert isinstance(train, TextSplit)
    documents = [train.store.document(i).tolist() for i in range(3)]
    assert documents == [
        [BOS, 4 + 97, 4 + 98, EOS],
        [BOS, 4 + 99, EOS],
        [BOS, 4 + 0xC3, 4 + 0xA4, EOS],
    ]
    assert train.store.tokens.tolist() == [i for ids in documents for i in ids]
    assert (train.characters, train.bytes) == (4, 5)
    # The second time nothing is encoded.
    monkeypatch.setattr(store_module, "_encode_documents", None)
    again = prepare(config, log=lambda line: None).train
    assert again is not None and isinstance(again.tokens[0], np.memmap)
    assert again.fingerprint == train.fingerprint


@pytest.mark.parametrize(
    ("special", "expected"),
    [
        (SpecialIds(0, 2, 3, (0,)), ([2], [3])),
        (SpecialIds(58, 58, 58, ()), ([58], [58])),  # GPT-2: one token for everything
        (SpecialIds(0, 0, 1, (0,)), ([], [1])),  # T5: padding is no begin of a text
        (SpecialIds(0, -1, -1, ()), ([], [])),  # GPT-1
    ],
)
def test_a_tokenizer_without_begin_or_end(special, expected):
    class Other(Tokenizer):
        def __init__(self):
            self.special = special

    Other.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    assert document_ends(Other()) == expected  # type: ignore[abstract]


def test_other_settings_are_other_data(write, lm):
    base = lm(train=(write("a", TEXT * 3),), tokenizer="bytes")

    def of(**values):
        return prepare(dataclasses.replace(base, **values), log=lambda line: None).fingerprint

    assert of() == of(block_length=5, batch_tokens=10)
    assert (
        len({of(), of(documents="line"), of(validation_fraction=0.2), of(tokenizer="symbols")}) == 4
    )


def test_subwords_of_texts(write, lm):
    text = "".join(f"line {i} — of  text\n" for i in range(199))
    config = lm(train=(write("a", text),), tokenizer="sentencepiece", vocab_size=300)
    data = prepare(config, log=lambda line: None)
    assert isinstance(data.validation, TextSplit) and data.tokenizer.vocab_size == 300
    assert (
        data.tokenizer.decode_target(data.validation.store.tokens) == text[int(0.9 * len(text)) :]
    )
    small = dataclasses.replace(config, vocab_size=50)
    with pytest.raises(UserError, match=r"data\.vocab_size = 50: expected at least"):
        prepare(small, log=lambda line: None)


class Stories(tfds.core.GeneratorBasedBuilder):
    """Texts without a validation split, as lm1b has none."""

    VERSION = tfds.core.Version("1.0.0")
    TEXTS = {"train": [f"story {i}\nends" for i in range(10)], "test": ["one more"]}  # noqa: RUF012
    FEATURE = "text"

    def _info(self):
        features = tfds.features.FeaturesDict({self.FEATURE: tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, description="Stories.", features=features)

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples(texts) for name, texts in self.TEXTS.items()}

    def _generate_examples(self, texts):
        for i, text in enumerate(texts):
            yield i, {self.FEATURE: text}


class Titles(Stories):
    """A set whose texts are called otherwise."""

    FEATURE = "title"


def test_a_tfds_set_of_texts(lm):
    config = lm(dataset="tfds:stories")
    found = read(config)
    assert [len(found[name]) for name in ALL] == [9, 1, 1]
    assert sorted(t[:6] for t in found["train"]) == ["story "] * 9
    part = read(dataclasses.replace(config, validation_fraction=0.15))
    assert [len(part[name]) for name in ALL] == [9, 1, 1]  # a record is not divided
    whole = read(dataclasses.replace(config, validation_fraction=0.0, documents="line"))
    assert sorted(whole["train"]) == sorted([*["ends"] * 10, *(f"story {i}" for i in range(10))])


def test_a_tfds_set_without_texts(lm):
    with pytest.raises(
        UserError, match=r"tfds:titles': expected a feature `text`; its features are title"
    ):
        read(lm(dataset="tfds:titles"))
