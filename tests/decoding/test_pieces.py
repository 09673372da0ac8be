"""Text as it comes: whole characters, and nothing of a stop string."""

import random

import pytest

from transformer.config import DataConfig
from transformer.data.symbols import Symbols
from transformer.data.tokenizer import SentencePiece, SpecialIds, Tokenizer
from transformer.decoding.pieces import TextPieces


class Bytes(Tokenizer):
    """Ids 4 to 259 are the bytes of UTF-8."""

    kind = "test bytes"
    special = SpecialIds(0, 2, 3, never=(0, 1, 2))

    @property
    def vocab_size(self):
        return 260

    def encode_sources(self, texts):
        return [[byte + 4 for byte in text.encode()] for text in texts]

    encode_targets = encode_sources

    def _join(self, ids, side):
        return bytes(i - 4 for i in ids if i >= 4).decode(errors="replace")

    def _piece(self, token):
        return str(token)

    def _state(self):
        return {}


CHARACTERS = Symbols(list("abcdefgh .\n"), "characters", "characters")


def pieces_of(tokenizer, ids, prompt=(), stop=()):
    """The pieces after each token, and at the end."""
    text = TextPieces(tokenizer, prompt, stop)
    found = []
    for token in ids:
        found.append(text.push(token))
        if text.stopped:
            break
    found.append(text.finish())
    assert "".join(found) == text.text
    return found


def test_no_piece_holds_half_a_character():
    text = "aé€🙂b"
    ids = Bytes().encode_target(text)
    assert pieces_of(Bytes(), ids) == [
        "a", "", "é", "", "", "€", "", "", "", "🙂", "b", ""
    ]  # fmt: skip
    # The output may end within one.
    assert pieces_of(Bytes(), ids[:-2]) == ["a", "", "é", "", "", "€", "", "", "", "\ufffd"]


def test_bytes_that_are_no_characters_do_not_hold_up_the_text():
    ids = [i + 4 for i in [0xFF, 0x80, 0xE2, 0x82, 0x80, 0x41, 0xF0, 0x9F, 0x98, 0xE2, 0x82, 0xAC]]
    text = Bytes().decode_target(ids)
    pieces = pieces_of(Bytes(), ids * 9)
    assert "".join(pieces) == text * 9
    longest = 0
    for piece in pieces:
        longest = 0 if piece else longest + 1
        assert longest <= 4


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_come_out_as_they_are_decoded_together(seed):
    generator = random.Random(seed)
    pool = [*b"ab", *"é€🙂".encode(), 0xFF, 0xC3, 0xE2, 0xF0, 0x9F]
    ids = [generator.choice(pool) + 4 for _ in range(200)]
    assert "".join(pieces_of(Bytes(), ids)) == Bytes().decode_target(ids)


def test_a_space_after_the_prompt_is_kept():
    """Sentencepiece leaves out the space at the beginning of a text, and marks a word by it."""
    lines = ["the cat sat on the mat and saw a dog 🙂"] * 20
    config = DataConfig(vocab_size=300, normalization="identity")
    tokenizer = SentencePiece.train(lines, config)
    ids = tokenizer.encode_target(lines[0])
    for split in range(len(ids)):
        rest = pieces_of(tokenizer, ids[split:], ids[:split])
        assert tokenizer.decode_target(ids[:split]) + "".join(rest) == lines[0]
    words = Symbols(["x", "yy", "z"], "words", "words")
    assert pieces_of(words, [4, 5, 6], [5, 5]) == [" x", " yy", " z", ""]
    assert pieces_of(words, [4, 5]) == ["x", " yy", ""]


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("abcdef", ["cd"], ["a", "b", "", "", ""]),
        ("abcabd", ["abd"], ["", "", "abc", "", "", "", ""]),
        ("ababac", ["abac"], ["", "", "", "ab", "", "", ""]),
        ("aab", ["x"], ["a", "a", "b", ""]),
        ("a\n\nb", ["\n\n"], ["a", "", "", ""]),
        ("abc", ["cde"], ["a", "b", "", "c"]),
        ("abcd", ["bcde", "c"], ["a", "", "b", ""]),
        ("ab", ["a"], ["", ""]),
    ],
    ids=str,
)
def test_a_stop_string_over_several_tokens_ends_the_text_before_it(text, stop, expected):
    assert pieces_of(CHARACTERS, CHARACTERS.encode_target(text), stop=stop) == expected


def test_a_stop_string_is_looked_for_in_the_output_alone():
    prompt = CHARACTERS.encode_target("ab")
    assert "".join(pieces_of(CHARACTERS, prompt[1:], prompt[:1], ["ab"])) == "b"


def test_special_ids_are_no_text():
    ids = CHARACTERS.encode_target("ab")
    assert pieces_of(CHARACTERS, [ids[0], 0, 2, ids[1]]) == ["a", "", "", "b", ""]
