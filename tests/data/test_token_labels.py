"""Words with labels: how files are read, and which tokens the labels stand at."""

from functools import partial

import numpy as np
import pytest

from transformer.data.symbols import Symbols
from transformer.data.token_labels import (
    TokenBatches,
    Words,
    read_words,
    tokenise_words,
)
from transformer.errors import UserError

CONLL = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nPeter NNP B-PER\n\n"


def quiet(_: str) -> None: ...


def test_conll_files_are_read(write):
    paths = [write("a.txt", CONLL), write("b.tsv", "New York\tB-LOC\n")]
    lines = []
    found = read_words(paths, "train", lines.append)
    assert found.words == ["EU", "rejects", "Peter", "New York"]
    assert found.labels == ["B-ORG", "O", "B-PER", "B-LOC"]
    assert found.starts == [0, 2, 3, 4] and len(found) == 3
    assert found.places[2] == f"{paths[0]}:7"
    assert lines == ["train: 3 sentences of 4 words"]


def test_a_file_without_labels(write):
    path = write("a.txt", "EU\nrejects\n\nPeter")
    lines = []
    found = read_words([path], "test", lines.append)
    assert found.words == ["EU", "rejects", "Peter"] and found.labels == []
    assert lines == ["test: 2 sentences of 3 words without labels"]


@pytest.mark.parametrize(
    ("split", "text", "message"),
    [
        ("train", "EU O\nrejects\n", "a.txt:2: 'rejects': expected a word and its label$"),
        ("test", "EU O\nrejects\n", ":2: 'rejects': expected a word and its label, as in the f"),
        ("test", "EU\nrejects O\n", ":2: 'rejects O': expected a word without a label"),
        ("test", "EU\t\n", ":1: 'EU': expected a word and its label"),
        ("test", "\n\n", "data.test: no words in"),
    ],
)
def test_a_bad_line_is_named_by_file_and_line(write, split, text, message):
    with pytest.raises(UserError, match=message):
        read_words([write("a.txt", text)], split, quiet)


@pytest.fixture
def tokenizer() -> Symbols:
    """Of characters: begin 2, end 3, "a" 4, ..."""
    return Symbols("abcdefgh", "characters", "characters")


def split_of(tokenizer, settings, words: list[str], starts: list[int], limit=9, log=quiet):
    labels = ["xyz"[i % 3] for i in range(len(words))]
    found = Words(words, labels, ["p"] * len(words), starts)
    made = settings(max_length=limit)
    return tokenise_words(found, ("x", "y", "z"), made, tokenizer, "train", log)


def test_a_label_stands_at_the_first_token_of_its_word(tokenizer, settings):
    split = split_of(tokenizer, settings, ["ab", "c", "def", "a"], [0, 3, 4])
    batch = TokenBatches(split, tokenizer, batch_tokens=16, num_buckets=1, shuffle=False).batch(0)
    assert batch["inputs"].tolist() == [[2, 4, 5, 6, 7, 8, 9, 3], [2, 4, 3, 0, 0, 0, 0, 0]]
    assert batch["labels"].tolist() == [[-1, 0, -1, 1, 2, -1, -1, -1], [-1, 0] + [-1] * 6]
    assert batch["words"].tolist() == [[-1, 0, -1, 1, 2, -1, -1, -1], [-1, 3] + [-1] * 6]
    assert batch["ids"].tolist() == [0, 1] and not batch["token_types"].any()


def test_long_sentences_go_on_in_further_rows(tokenizer, settings):
    """Nothing is lost: each word has a label, whatever the length limit."""
    lines = []
    words = ["ab", "cd", "efg", "h" * 9, "a"]
    split = split_of(tokenizer, settings, words, [0, 5], limit=7, log=lines.append)
    assert split.rows.tolist() == [[0, 2], [2, 3], [3, 4], [4, 5]]
    assert lines == ["train: 3 more rows, as sentences have more than data.max_length = 7 tokens"]
    batches = TokenBatches(split, tokenizer, batch_tokens=64, num_buckets=2, seed=3)
    batch = [batches.batch(step) for step in range(batches.steps_per_epoch)]
    words_seen = np.concatenate([b["words"][b["words"] >= 0] for b in batch])
    assert sorted(words_seen) == [0, 1, 2, 3, 4]
    assert max(b["inputs"].shape[1] for b in batch) == 7
    assert batches.summary.startswith("1 sentences (x 2, y 2, z 1) in ")
    assert batches.example(2) == "h" * 9


def test_a_word_without_tokens_stands_as_the_end_symbol(settings):
    words = Symbols(["a"], "words", "words")
    split = split_of(words, settings, ["a", "", "a"], [0, 3])
    assert split.tokens_of_words.tolist() == [4, 3, 4]


def test_an_unknown_label_is_named_by_file_and_line(tokenizer, settings):
    found = Words(["a", "b"], ["x", "w"], ["f:1", "f:2"], [0, 2])
    with pytest.raises(UserError, match="f:2: label 'w': expected one of x, y"):
        tokenise_words(found, ("x", "y"), settings(), tokenizer, "test", quiet)


def test_the_fingerprint_changes_with_words_labels_and_sentences(tokenizer, settings):
    of = partial(split_of, tokenizer, settings)
    splits = of(["a", "b"], [0, 2]), of(["a", "c"], [0, 2]), of(["a", "b"], [0, 1, 2])
    assert len({split.fingerprint for split in splits}) == 3
