"""From settings to tokenised splits."""

from dataclasses import replace

import numpy as np
import pytest

from transformer.data import dictionary
from transformer.data.classification import ClassSplit
from transformer.data.pipeline import PairSplit, Split, prepare
from transformer.data.tokenizer import EOS
from transformer.errors import UserError


def pairs_of(split: Split | None) -> PairSplit:
    assert isinstance(split, PairSplit)
    return split


@pytest.fixture
def files(write, settings):
    train = write("train.tsv", "".join(f"{'ab' * (i + 1)}\tX Y\n" for i in range(11)))
    held = write("held.tsv", f"{'ba' * 50}\tY\nq\tX Z\n")
    return settings(dataset="files", train=(train,), validation=(held,), max_length=15)


def test_what_was_read_dropped_and_kept_is_said(files):
    """A line of 12,131 tokens once passed a limit of 100 unnoticed."""
    log: list[str] = []
    data = prepare(files, log=log.append)
    assert log == [
        "train: 11 pairs",
        "validation: 2 pairs",
        "tokenizer: symbols, 8 ids",
        "4 of 11 training pairs longer than 15 tokens left out",
    ]
    train, validation = pairs_of(data.train), pairs_of(data.validation)
    assert len(train) == len(train.pairs) == 7 and data.test is None
    # Held-out pairs stay, however long, and rows of all fields belong together.
    assert validation.pairs.source_lengths.tolist() == [101, 2]
    for split in (train, validation):
        for i, (source, answers) in enumerate(zip(split.sources, split.references, strict=True)):
            tokens = data.tokenizer.encode_source(source)
            assert split.pairs.source(i).tolist() == [*tokens, EOS]
            tokens = data.tokenizer.encode_target(answers[0])
            assert split.pairs.target(i).tolist() == [*tokens, EOS]


def test_rows_stay_together_when_the_first_is_dropped(write, settings):
    path = write("train.tsv", "aaaaaaa\tX\nb\tY\nccccccc\tZ\nd\tX Y\n")
    data = prepare(settings(dataset="files", train=(path,), max_length=3), log=lambda line: None)
    train = pairs_of(data.train)
    assert (train.sources, train.references) == (["b", "d"], [["Y"], ["X Y"]])
    assert data.tokenizer.decode_target(train.pairs.target(1)) == "X Y"


def test_the_tokenizer_is_made_from_the_training_split_only(files):
    data = prepare(files, log=lambda line: None)
    assert "q" not in data.tokenizer.to_json()["symbols"]
    assert "Z" not in data.tokenizer.to_json()["symbols"]


def test_a_given_tokenizer_is_used_as_it_is(files, write):
    data = prepare(files, log=lambda line: None)
    other = replace(files, train=(write("other.tsv", "xyz\tA B C\n"),))
    log: list[str] = []
    again = prepare(other, tokenizer=data.tokenizer, splits=("validation",), log=log.append)
    assert again.tokenizer is data.tokenizer
    assert again.train is None and again.fingerprint is None
    assert again.validation is not None and data.validation is not None
    assert again.validation.fingerprint == data.validation.fingerprint
    assert log == ["validation: 2 pairs"]


def test_the_fingerprint_tells_other_data(files, write):
    def of(**values):
        return prepare(replace(files, **values), log=lambda line: None).fingerprint

    same = {of(), of(), of(batch_tokens=331)}
    assert len(same) == 1
    other = write("other.tsv", "ab\tX Y\nabab\tX\n")
    assert len(same | {of(train=(other,)), of(target_symbols="characters"), of(max_length=9)}) == 4


def test_every_training_pair_too_long(files):
    with pytest.raises(UserError, match="max_length = 1: every training pair is longer"):
        prepare(replace(files, max_length=1), log=lambda line: None)


def test_a_tokenizer_needs_a_training_split(files):
    with pytest.raises(UserError, match=r"expected a training split.*found validation"):
        prepare(files, splits=("validation",), log=lambda line: None)


def test_right_answers_are_pairs_in_training_and_references_elsewhere(settings, monkeypatch):
    words = {"either": ["IY DH ER", "AY DH ER"], "one": ["W AH N"]}
    monkeypatch.setattr(
        dictionary, "load", lambda: {"train": words, "validation": words, "test": words}
    )
    data = prepare(settings(), log=lambda line: None)
    train, test = pairs_of(data.train), pairs_of(data.test)
    assert train.sources == ["either", "either", "one"]
    assert train.references == [["IY DH ER"], ["AY DH ER"], ["W AH N"]]
    assert len(train.pairs) == 3
    assert test.sources == ["either", "one"]
    assert test.references == list(words.values())
    assert len(test.pairs) == 2


def test_subwords(write, settings):
    lines = "".join(f"line {i} — of  text\n" for i in range(101))
    config = settings(
        dataset="files",
        train=(write("a", lines), write("b", lines)),
        tokenizer="sentencepiece",
        vocab_size=300,
    )
    data = prepare(config, log=lambda line: None)
    assert data.tokenizer.vocab_size == 300
    train = pairs_of(data.train)
    assert data.tokenizer.decode_source(train.pairs.source(7)) == "line 7 — of  text"


def test_answers_have_the_separator_and_one_alphabet(write, settings):
    """Prompt and answer are one sequence, so both are spelled in the symbols of targets."""
    path = write("pairs.tsv", "ab\tcd\nab\tefghijkl\n")
    config = settings(
        objective="answers",
        train=(path,),
        validation=(path,),
        separator=">",
        target_symbols="characters",
        max_length=7,
    )
    lines = []
    data = prepare(config, log=lines.append)
    train = pairs_of(data.train)
    assert train.sources == pairs_of(data.validation).sources == ["ab>"]
    assert train.pairs.source(0)[:-1].tolist() == data.tokenizer.encode_target("ab>")
    for split in ("train", "validation"):
        expected = f"1 of 2 {split} prompts with answers longer than 7 tokens left out"
        assert expected in lines
    short = replace(config, max_length=6)
    with pytest.raises(UserError, match="every prompt with its answer in train is longer"):
        prepare(short, log=lines.append)


def test_labelled_texts_extend_the_tokenizer(write, settings):
    train = write("train.tsv", "b\tgood\tone\na\tbad\ttwo\n")
    other = write("dev.tsv", "b\tgood\tthree\n")
    config = settings(
        objective="classification",
        train=(train,),
        validation=(other,),
        columns=("label", "text", "text2"),
        target_symbols="characters",
    )
    data = prepare(config, log=lambda _: None, decoder=True)
    assert isinstance(data.train, ClassSplit) and isinstance(data.validation, ClassSplit)
    assert data.train.names == data.validation.names == ("a", "b")
    assert data.train.labels.tolist() == [1, 0] and data.validation.labels.tolist() == [1]
    last = data.tokenizer.vocab_size - 3 + np.arange(3)
    assert data.tokenizer.pieces(last) == ["<start>", "<delimiter>", "<end>"]
    # A checkpoint knows the classes without the training split.
    again = prepare(replace(config, labels=("a", "b")), data.tokenizer, ("validation",))
    assert again.tokenizer is data.tokenizer and again.train is None
    assert again.validation is not None
    assert again.validation.fingerprint == data.validation.fingerprint


def test_span_corruption_adds_sentinels(write, settings):
    config = settings(
        objective="span_corruption", train=(write("a.txt", "some text"),), validation_fraction=0
    )
    data = prepare(config, log=lambda _: None)
    assert data.tokenizer.pieces([data.tokenizer.vocab_size - 1]) == ["<extra_id_0>"]
    assert data.validation is None
