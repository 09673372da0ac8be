"""Ids with names at the end of another tokenizer's vocabulary."""

import json

import pytest

from transformer.config import DataConfig
from transformer.data.extended_tokenizer import (
    END,
    START,
    ExtendedTokenizer,
    extended,
    with_sentinels,
)
from transformer.data.tokenizer import BOS, EOS, Tokenizer, train_tokenizer


@pytest.fixture
def base() -> Tokenizer:
    config = DataConfig(target_symbols="characters")
    return train_tokenizer(config, ["<mark> ab"], ["cd"])


def test_names_follow_the_base_and_are_never_made_of_text(base):
    tokenizer = ExtendedTokenizer(base, ("<mark>", "<other>"))
    assert tokenizer.vocab_size == base.vocab_size + 2
    assert tokenizer.id_of("<mark>") == base.vocab_size
    assert tokenizer.encode_target("<mark> ab") == base.encode_target("<mark> ab")
    assert max(tokenizer.encode_source("<mark> ab")) < base.vocab_size
    assert tokenizer.special == base.special


def test_named_ids_are_decoded_to_their_names(base):
    tokenizer = ExtendedTokenizer(base, ("<mark>", "<other>"))
    ids = [BOS, *base.encode_target("ab"), tokenizer.id_of("<other>"), *base.encode_target("d")]
    assert tokenizer.decode_target([*ids, EOS]) == "ab <other> d"
    assert tokenizer.pieces(ids) == ["<s>", "a", "b", "<other>", "d"]


def test_json_brings_it_back(base):
    tokenizer = ExtendedTokenizer(base, ("<mark>",))
    again = Tokenizer.from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert isinstance(again, ExtendedTokenizer)
    assert again.fingerprint == tokenizer.fingerprint != base.fingerprint
    assert again.names == ("<mark>",)


def test_extending_twice_with_the_same_names_changes_nothing(base):
    once = extended(base, ("<a>", "<b>"))
    assert extended(once, ("<a>", "<b>")) is once
    assert extended(once, ("<c>",)).id_of("<c>") == once.vocab_size


def test_sentinels_descend_from_the_end_of_the_vocabulary(base):
    tokenizer, sentinels = with_sentinels(base)
    assert len(sentinels) == 100 and tokenizer.vocab_size == base.vocab_size + 100
    assert sentinels[0] == tokenizer.vocab_size - 1 and sentinels[99] == base.vocab_size
    assert tokenizer.pieces(sentinels[:2]) == ["<extra_id_0>", "<extra_id_1>"]


def test_a_tokenizer_that_has_sentinels_keeps_its_own(base):
    """As T5's published one: 100 more would be untrained."""
    first, sentinels = with_sentinels(base)
    second, again = with_sentinels(first)
    assert second is first and again.tolist() == sentinels.tolist()
    few, three = with_sentinels(
        ExtendedTokenizer(base, ("<extra_id_2>", "<extra_id_1>", "<extra_id_0>"))
    )
    assert few.vocab_size == base.vocab_size + 3 and len(three) == 3


def test_a_base_without_begin_and_end_gets_them_from_the_names(base):
    """GPT-1's tokenizer has neither; fine-tuning adds both (Radford et al. 2018, section 3.3)."""
    base.special = base.special._replace(begin=-1, end=-1)
    tokenizer = ExtendedTokenizer(base, (START, "<delimiter>", END))
    assert tokenizer.special.begin == base.vocab_size
    assert tokenizer.special.end == base.vocab_size + 2
    assert ExtendedTokenizer(base, ("<delimiter>",)).special.end == -1
