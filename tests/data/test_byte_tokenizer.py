"""Bytes: every text comes back."""

import pytest

from transformer.data.byte_tokenizer import Bytes
from transformer.data.tokenizer import BOS, EOS, Tokenizer
from transformer.errors import UserError


def test_ids_are_bytes():
    assert Bytes().encode_target("aä\n") == [4 + 0x61, 4 + 0xC3, 4 + 0xA4, 4 + 0x0A]
    assert Bytes().vocab_size == 260
    assert Bytes().pieces([EOS, 4 + 0x61]) == ["</s>", "<0x61>"]


@pytest.mark.parametrize("text", ["", "a  b\t\r\n", "</s>", "日本語 🦉", "\x00\u2028"])
def test_round_trip(text):
    tokenizer = Tokenizer.from_json(Bytes().to_json())
    assert tokenizer.decode_source([BOS, *tokenizer.encode_source(text), EOS]) == text


def test_what_is_no_text():
    assert Bytes().decode_target([4 + 0xC3]) == "�"
    with pytest.raises(UserError, match="token id 260"):
        Bytes().decode_target([260])
