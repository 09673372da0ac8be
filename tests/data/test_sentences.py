"""Documents of sentences: how they are found, tokenised and put together."""

import itertools

import numpy as np
import pytest

from transformer.data.pipeline import prepare
from transformer.data.sentences import (
    SentenceSplit,
    cut_long,
    read_sentences,
    runs,
    split_sentences,
)
from transformer.data.tokenizer import SentencePiece
from transformer.errors import UserError

PUBLISHED = """The first document has two sentences.
Here is the second one.

\x20
Another document.
It goes on.
And on.
"""


@pytest.fixture
def masked(settings):
    def make(**values):
        values = {"documents": "paragraph", "validation_fraction": 0.0} | values
        form = {"target_symbols": "words", "block_length": 16, "batch_tokens": 64}
        return settings(objective="masked_language_model", **(form | values))

    return make


def test_the_published_format(write, masked):
    """One sentence a line, blank lines between documents (README of Devlin et al.'s program)."""
    config = masked(train=(write("a.txt", PUBLISHED),))
    assert read_sentences(config, ("train",), log=lambda line: None) == {
        "train": [
            ["The first document has two sentences.", "Here is the second one."],
            ["Another document.", "It goes on.", "And on."],
        ]
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Cut\nlines go\n  on. New", ["Cut lines go on.", "New"]),
        ("A title\n\nno end\n \t\nhere.", ["A title", "no end", "here."]),
        ("See e.g. this, i.e. that.", ["See e.g. this, i.e. that."]),
        ('He said "no." (Not yet.) But 3.5 is.', ['He said "no."', "(Not yet.)", "But 3.5 is."]),
        ("What?! Yes... No.", ["What?!", "Yes...", "No."]),
        ("Version 2. 17 changes. Été. Ça va", ["Version 2.", "17 changes.", "Été.", "Ça va"]),
        (" \n\n ", []),
    ],
)
def test_sentences_of_prose(text, expected):
    assert split_sentences(text, "prose") == expected
    assert "".join(expected).replace(" ", "") == "".join(text.split())


def test_the_store_has_the_tokens_of_the_sentences_alone(write, masked):
    config = masked(train=(write("a.txt", PUBLISHED),))
    log: list[str] = []
    data = prepare(config, splits=("train",), log=log.append)
    split = data.train
    assert isinstance(split, SentenceSplit) and len(split) == 2
    assert split.documents.tolist() == [0, 2, 5]
    sentences = [
        data.tokenizer.decode_target(split.words[a:b])
        for a, b in itertools.pairwise(split.sentences.tolist())
    ]
    assert sentences == [line for line in PUBLISHED.split("\n") if line.strip()]
    assert data.tokenizer.mask == data.tokenizer.vocab_size - 1
    assert not any("warning" in line for line in log)


def test_the_fingerprint_tells_how_texts_are_divided(write, masked):
    files = (write("a.txt", PUBLISHED),)
    found = set()
    for values in ({}, {"documents": "line", "next_sentence": False}, {"sentences": "prose"}):
        data = prepare(masked(train=files, **values), splits=("train",), log=lambda line: None)
        found.add(data.fingerprint)
    # Here "prose" finds the same sentences.
    assert len(found) == 2


def test_sentences_and_documents_without_a_token_are_left_out(write, masked):
    """Here the words are known from sentencepiece, which has no token for a lone U+FEFF."""
    text = "a b\n\n\u200b\n\nc d\n\u200b\n e\n"
    log: list[str] = []
    config = masked(train=(write("a.txt", text),))

    class Deaf(SentencePiece):
        def encode_targets(self, texts):
            return [[ord(c) for c in text if c.isalpha()] for text in texts]

    model = SentencePiece.train(
        ["a b c d e"] * 9, masked(vocab_size=270, tokenizer="sentencepiece")
    )
    split = prepare(config, Deaf(model.model), ("train",), log.append).train
    assert isinstance(split, SentenceSplit)
    assert split.sentences.tolist() == [0, 2, 4, 5] and split.documents.tolist() == [0, 1, 3]
    assert "train: 1 of 3 documents have no token, left out" in log


def test_one_document_is_an_error_that_says_so(write, masked):
    config = masked(train=(write("a.txt", "one\ntwo\n"),))
    with pytest.raises(UserError, match=r"data\.train: found one document; expected two or more"):
        prepare(config, splits=("train",), log=lambda line: None)
    single = masked(train=config.train, next_sentence=False)
    assert prepare(single, splits=("train",), log=lambda line: None).train is not None


def test_a_blank_line_after_every_sentence_is_warned_about(write, masked):
    """Then no sentence has a next one, so that every pair would be random (bert 125)."""
    config = masked(train=(write("a.txt", "one\n\ntwo\n\nthree\nfour\n"),))
    log: list[str] = []
    prepare(config, splits=("train",), log=log.append)
    (warning,) = [line for line in log if line.startswith("warning")]
    assert "train: 2 of 3 documents have one sentence" in warning and "blank line" in warning


def test_no_text_is_an_error(write, masked):
    config = masked(train=(write("a.txt", "\n \n"),))
    with pytest.raises(UserError, match=r"data\.train: no text in .*a\.txt"):
        prepare(config, splits=("train",), log=lambda line: None)


def test_long_sentences_are_cut_into_pieces():
    sentences, documents = np.array([0, 3, 10, 12, 17]), np.array([0, 2, 3, 4])
    cut, moved = cut_long(sentences, documents, 3)
    assert cut.tolist() == [0, 3, 6, 9, 10, 12, 15, 17]
    assert moved.tolist() == [0, 4, 5, 7]
    same = cut_long(sentences, documents, 7)
    assert same[0].tolist() == sentences.tolist() and same[1].tolist() == documents.tolist()


def naive_runs(lengths: list[list[int]], target: int, paired: bool) -> list[tuple[int, int]]:
    """Sentence by sentence, as the published program goes through a document."""
    found, base = [], 0
    for document in lengths:
        first = len(found)
        run: list[int] = []
        for i, length in enumerate(document):
            if not paired and sum(document[j] for j in run) + length > target:
                found.append((base + run[0], base + run[-1] + 1))
                run = []
            run.append(i)
            enough = paired and sum(document[j] for j in run) >= target and len(run) > 1
            if enough or i == len(document) - 1:
                found.append((base + run[0], base + run[-1] + 1))
                run = []
        start, stop = found[-1]
        if paired and stop - start == 1 and len(found) - first > 1:
            found[-1] = (start - 1, stop)
        base += len(document)
    return found


@pytest.mark.parametrize("paired", [False, True])
def test_runs_are_those_of_going_through_sentence_by_sentence(paired):
    generator = np.random.default_rng(7)
    for target in (5, 11, 23):
        lengths = [
            generator.integers(1, target + 1, generator.integers(1, 14)).tolist() for _ in range(60)
        ]
        flat = [length for document in lengths for length in document]
        sentences = np.concatenate([[0], np.cumsum(flat)])
        documents = np.concatenate([[0], np.cumsum([len(d) for d in lengths])])
        starts, stops = runs(sentences, documents, target, paired)
        assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == naive_runs(
            lengths, target, paired
        )
        covered = {i for a, b in zip(starts, stops, strict=True) for i in range(a, b)}
        assert covered == set(range(len(flat)))
