"""WordPiece vocabularies made from text."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import transformer
from transformer.config import DataConfig
from transformer.data.masking import ordinary_ids
from transformer.data.tokenizer import Tokenizer, train_tokenizer
from transformer.data.wordpiece_training import train_wordpiece
from transformer.errors import UserError

pytest.importorskip("tokenizers")

TEXTS = ["The café's lower floor is lower than the lowest.", "Newer and wider, the newest widest."]
UNCASED = DataConfig(tokenizer="wordpiece", vocab_size=67, normalization="nfkc_cf")
CASED = DataConfig(tokenizer="wordpiece", vocab_size=71)


@pytest.fixture(scope="module")
def uncased() -> Tokenizer:
    return train_wordpiece(TEXTS, UNCASED)


def test_the_ids_are_berts(uncased):
    assert uncased.vocab_size == 67
    assert uncased.pieces(range(5)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert uncased.special == (0, 2, 3, (0, 1, 2, 4), ()) and uncased.mask == 4
    assert ordinary_ids(uncased).sum() == 62


def test_uncased_and_cased_texts(uncased):
    ids = uncased.encode_source("LOWER Café")
    assert "".join(uncased.pieces(ids)).replace("##", "") == "lowercafe"
    cased = train_wordpiece(TEXTS, CASED)
    assert "".join(cased.pieces(cased.encode_source("The café"))).replace("##", "") == "Thecafé"
    assert cased.pieces(cased.encode_source("LOWER")) == ["[UNK]"]  # no "O" in the text


def test_frequent_words_become_pieces(uncased):
    assert uncased.pieces(uncased.encode_source("the lowest")) == ["the", "lowest"]
    assert uncased.decode_source(uncased.encode_source("the lowest, newer")) == "the lowest, newer"


def test_names_of_special_tokens_are_text(uncased):
    ids = uncased.encode_source("[MASK] [SEP]")
    assert not set(ids) & {uncased.mask, uncased.special.end}


def test_every_process_learns_the_same(uncased):
    """The library alone does not: it breaks ties by the order of a hash table."""
    code = (
        "from tests.data.test_wordpiece_training import *;"
        "print(train_wordpiece(TEXTS, UNCASED).fingerprint)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(transformer.__file__).parents[1],
        check=True,
    )
    assert run.stdout.strip() == uncased.fingerprint
    for _ in range(5):
        assert train_wordpiece(TEXTS, UNCASED).fingerprint == uncased.fingerprint


def test_it_travels_as_json(uncased):
    again = Tokenizer.from_json(uncased.to_json())
    assert again.fingerprint == uncased.fingerprint and again.mask == 4
    assert again.encode_source(TEXTS[0]) == uncased.encode_source(TEXTS[0])
    assert train_tokenizer(UNCASED, TEXTS[:1], TEXTS[1:]).fingerprint == uncased.fingerprint


def test_impossible_sizes_name_the_bound():
    few = DataConfig(tokenizer="wordpiece", vocab_size=9)
    with pytest.raises(UserError, match=r"data\.vocab_size = 9: expected at least \d+") as found:
        train_wordpiece(TEXTS, few)
    least = int(str(found.value).split("at least ")[1].split()[0])
    assert train_wordpiece(TEXTS, DataConfig(vocab_size=least)).vocab_size == least
    with pytest.raises(UserError, match=r"supports at most \d+ pieces") as found:
        train_wordpiece(TEXTS, DataConfig(vocab_size=5000))
    most = int(str(found.value).split("at most ")[1].split()[0])
    assert train_wordpiece(TEXTS, DataConfig(vocab_size=most)).vocab_size == most


def test_rare_characters_are_unknown():
    """Of very many characters the most frequent ones have ids of their own."""
    many = [chr(code) for code in itertools.chain(range(0x1200, 0x1800))]
    texts = [" ".join(many[:1000]), " ".join(many[:1000]), " ".join(many[1000:])]
    tokenizer = train_wordpiece(texts, DataConfig(vocab_size=2005))
    known, unknown = tokenizer.encode_source(many[0]), tokenizer.encode_source(many[-1])
    assert known != [1] and unknown == [1]


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r'tokenizers is missing: pip install "transformer\[hf\]"'):
        train_wordpiece(TEXTS, UNCASED)
