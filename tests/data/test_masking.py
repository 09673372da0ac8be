"""Hidden tokens: which, how many, and by what."""

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data.extended_tokenizer import ExtendedTokenizer, with_mask, with_sentinels
from transformer.data.masking import Masker, ordinary_ids, unigram_entropy
from transformer.data.pretrained_tokenizer import PretrainedTokenizer, find_special
from transformer.data.symbols import Symbols
from transformer.data.tokenizer import SentencePiece
from transformer.data.wordpiece import CONTROLS, wordpiece_json
from transformer.errors import UserError

WORDS = [f"w{i}" for i in range(30)]


@pytest.fixture(scope="module")
def symbols():
    return with_mask(Symbols(WORDS, "words", "words"))


@pytest.fixture(scope="module")
def wordpiece() -> PretrainedTokenizer:
    pytest.importorskip("tokenizers")
    tokens = [*CONTROLS.values(), "un", "##aff", "##able", "the", "man", "##s", "."]
    ids = {token: i for i, token in enumerate(tokens)}
    text = wordpiece_json(tokens, {})
    return PretrainedTokenizer(text, find_special({}, {}, ids.get, len(tokens)), {})


def test_the_distribution_of_ten_thousand_draws(symbols):
    """transformers 11155: special tokens were chosen. 15 % of the others; 80, 10, 10 of those."""
    pad, begin, end = symbols.special[:3]
    text = np.arange(4, 24)
    tokens = np.array([begin, *text[:13], end, *text[13:], end, pad, pad], np.int32)
    masker = Masker(symbols, 0.15)
    bits = np.random.PCG64(3)
    draws = 10_000
    chosen = np.zeros(len(tokens))
    masked = kept = 0
    drawn = np.zeros(symbols.vocab_size)
    for _ in range(draws):
        hidden, places = masker(tokens, bits)
        assert len(places) == 3  # 15 % of 20
        assert (np.diff(places) > 0).all()
        untouched = np.setdiff1d(np.arange(len(tokens)), places)
        assert (hidden[untouched] == tokens[untouched]).all()
        chosen[places] += 1
        after, before = hidden[places], tokens[places]
        masked += (after == symbols.mask).sum()
        kept += (after == before).sum()
        np.add.at(drawn, after[(after != symbols.mask) & (after != before)], 1)
    special = np.isin(tokens, [pad, begin, end])
    assert (chosen[special] == 0).all()
    # Each of the 20 as often as the others: 1500 times, standard deviation 36.
    assert np.abs(chosen[~special] - draws * 0.15).max() < 4 * 36
    total = 3 * draws
    # Standard deviations: 69, 52. A random token is the right one in one of 30 cases.
    assert abs(masked - 0.8 * total) < 4 * 69
    assert abs(kept - (0.1 + 0.1 / 30) * total) < 4 * 52
    assert (drawn[[pad, 1, begin, end, symbols.mask]] == 0).all()
    assert (np.flatnonzero(drawn) == np.arange(4, 34)).all()
    spread = drawn[24:34]  # not in the text: 100 times each, standard deviation 10
    assert np.abs(spread - 100).max() < 45


def test_special_ids_are_those_without_text(symbols, wordpiece):
    assert np.flatnonzero(~ordinary_ids(symbols)).tolist() == [0, 1, 2, 3, 34]
    assert np.flatnonzero(~ordinary_ids(wordpiece)).tolist() == [0, 1, 2, 3, 4]
    more, _ = with_sentinels(symbols)
    assert np.flatnonzero(ordinary_ids(more)).tolist() == list(range(4, 34))


def test_unknown_words_are_not_asked_for(symbols):
    tokens = np.array([2, 1, 1, 1, 5, 3], np.int32)
    for seed in range(20):
        _, places = Masker(symbols, 0.9)(tokens, np.random.PCG64(seed))
        assert places.tolist() == [4]
    nothing, places = Masker(symbols, 0.5)(tokens[:4], np.random.PCG64(1))
    assert nothing.tolist() == [2, 1, 1, 1] and not len(places)


@pytest.mark.parametrize(
    ("tokens", "count"), [(1, 1), (2, 1), (9, 1), (11, 2), (20, 3), (61, 9), (509, 76)]
)
def test_how_many(symbols, tokens, count):
    assert Masker(symbols, 0.15).count(tokens) == count


def test_the_same_bits_hide_the_same(symbols):
    tokens = np.arange(4, 30, dtype=np.int32)
    masker = Masker(symbols, 0.15)
    one, two = (masker(tokens, np.random.PCG64(5)) for _ in range(2))
    assert (one[0] == two[0]).all() and (one[1] == two[1]).all()
    assert any((masker(tokens, np.random.PCG64(seed))[1] != one[1]).any() for seed in range(5))


def test_whole_words_of_wordpiece(wordpiece):
    ids = wordpiece.encode_source("The mans unaffable man.")
    assert wordpiece.pieces(ids) == ["the", "man", "##s", "un", "##aff", "##able", "man", "."]
    # A piece after a special token begins a word, whatever its mark.
    tokens = np.array([2, *ids, 3, 7, 10, 3], np.int32)
    words = {(1,), (2, 3), (4, 5, 6), (7,), (8,), (10, 11)}
    masker = Masker(wordpiece, 0.35, whole_words=True)
    seen = set()
    for seed in range(300):
        hidden, places = masker(tokens, np.random.PCG64(seed))
        left = set(places.tolist())
        chosen = {word for word in words if left >= set(word)}
        assert left == {place for word in chosen for place in word}
        assert 1 <= len(places) <= 4  # round(0.35 * 10)
        assert (np.flatnonzero(hidden != tokens)[:, None] == places).any(axis=1).all()
        seen |= chosen
    assert seen == words


def test_a_word_that_does_not_fit_is_passed_over(wordpiece):
    tokens = np.array([2, *wordpiece.encode_source("unaffable"), 3], np.int32)
    hidden, places = Masker(wordpiece, 0.15, whole_words=True)(tokens, np.random.PCG64(1))
    assert not len(places) and (hidden == tokens).all()


def test_whole_words_of_sentencepiece():
    config = DataConfig(tokenizer="sentencepiece", vocab_size=290)
    base = SentencePiece.train(["the cat sat on a mat", "a rat sat on the cat"] * 5, config)
    tokenizer = with_mask(base)
    tokens = np.array(tokenizer.encode_source("the zebra cat"), np.int32)
    pieces = tokenizer.pieces(tokens)
    masker = Masker(tokenizer, 0.9, whole_words=True)
    for seed in range(20):
        _, places = masker(tokens, np.random.PCG64(seed))
        inside = [i for i, piece in enumerate(pieces) if not piece.startswith("▁")]
        assert len(inside) > 2  # "zebra" is spelled
        assert all((i in places) == (i - 1 in places) for i in inside)


def test_whole_words_need_a_vocabulary_that_tells_them():
    tokenizer = with_mask(Symbols(list("abc"), "characters", "characters"))
    with pytest.raises(UserError, match=r"data\.whole_words = True: the vocabulary"):
        Masker(tokenizer, 0.15, whole_words=True)


def test_unigram_entropy_of_a_known_distribution():
    tokens = np.array([2, 4, 4, 4, 4, 5, 5, 6, 7, 3])
    ordinary = np.arange(9) > 3
    assert unigram_entropy(tokens, ordinary) == pytest.approx(1.75 * np.log(2))


def test_a_mask_is_added_once(symbols):
    assert with_mask(symbols) is symbols
    assert isinstance(symbols, ExtendedTokenizer)
    assert symbols.mask == 34 and symbols.pieces([34]) == ["[MASK]"]
    assert symbols.to_json() == type(symbols).from_json(symbols.to_json()).to_json()
