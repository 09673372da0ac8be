"""Text to ids and back, and everything a text may contain."""

import json

import pytest

from transformer.config import DataConfig
from transformer.data.symbols import Symbols
from transformer.data.tokenizer import (
    BOS,
    EOS,
    PAD,
    UNK,
    SentencePiece,
    Tokenizer,
    check_ids,
    train_tokenizer,
)
from transformer.errors import UserError

TEXT = "the cat sat on a mat while two dogs slept near one warm stove and rain fell"
WORDS = TEXT.split(" ")
LINES = [" ".join(WORDS[i % 17 :: 1 + i % 5]) + f" {i}." for i in range(97)]


def subwords(lines: list[str] = LINES, **values) -> Tokenizer:
    values = {"vocab_size": 301, "tokenizer": "sentencepiece", **values}
    return train_tokenizer(DataConfig(**values), lines, lines)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def pieces(request) -> Tokenizer:
    return subwords(sentencepiece_type=request.param)


@pytest.mark.parametrize(
    "text",
    [
        "the cat sat on a mat",
        "a  b",
        "   leading and trailing  ",
        "…",
        "ﬁne Ａ １ ½",  # NFKC would change these
        "emoji 👩‍👩‍👧 🇫🇷 and 文字",
        "</s> and <s> and <pad> and <unk>",
        "tab\tand\u2028line separator\x85",
        "<0x41> spells no byte",
        "\U0010ffff\x01\x7f",
        "a" * 10_000,
        "",
    ],
)
def test_exact_round_trip(pieces, text):
    """Default normalisation loses text: "a  b" came back as "a b", "…" as "..."."""
    ids = pieces.encode_source(text)
    assert pieces.decode_source(ids) == text
    assert pieces.decode_target(pieces.encode_target(text)) == text
    assert not {PAD, UNK, BOS, EOS} & set(ids)
    assert all(token < pieces.vocab_size for token in ids)


def test_the_one_character_that_is_lost(pieces):
    """Documented: "▁" is how sentencepiece writes a space."""
    assert pieces.decode_source(pieces.encode_source("a▁b")) == "a b"


def test_end_marker_in_text_is_text(pieces):
    """A "</s>" in the raw text once ended the sentence."""
    ids = pieces.encode_target("one </s> two")
    assert EOS not in ids
    assert pieces.pieces([EOS]) == ["</s>"]
    assert "".join(pieces.pieces(ids)).replace("▁", " ").strip() != "one two"


def test_specials(pieces):
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert pieces.pieces([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]
    ids = pieces.encode_target("the cat")
    assert pieces.decode_target([BOS, *ids, EOS, PAD, PAD]) == "the cat"


def test_size_and_sharing(pieces):
    assert pieces.vocab_size == 301
    assert pieces.encode_source("a warm stove") == pieces.encode_target("a warm stove")
    assert len(pieces.encode_source(TEXT)) < 0.8 * len(TEXT)


def test_batches_equal_single_texts(pieces):
    assert pieces.encode_sources(LINES) == [pieces.encode_source(line) for line in LINES]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_is_deterministic(kind):
    one, two = (subwords(sentencepiece_type=kind) for _ in range(2))
    assert one.fingerprint == two.fingerprint


def test_the_algorithm_by_setting():
    text = "the unigram algorithm may segment this otherwise"
    ids = [subwords(sentencepiece_type=kind).encode_source(text) for kind in ("bpe", "unigram")]
    assert ids[0] != ids[1]


def test_normalisation_by_setting():
    assert (
        subwords(normalization="nfkc").decode_source(
            subwords(normalization="nfkc").encode_source("ﬁne Cat")
        )
        == "fine Cat"
    )
    folded = subwords(normalization="nfkc_cf")
    assert folded.decode_source(folded.encode_source("ﬁne Cat")) == "fine cat"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_vocabulary_too_large_names_the_maximum(kind):
    with pytest.raises(UserError, match=r"vocab_size = 5000: .*at most (\d+) pieces") as caught:
        subwords(vocab_size=5000, sentencepiece_type=kind)
    most = int(str(caught.value).split("at most ")[1].split(" ")[0])
    assert subwords(vocab_size=most, sentencepiece_type=kind).vocab_size == most


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_vocabulary_too_small_names_the_minimum(kind):
    with pytest.raises(UserError, match=r"vocab_size = 100: expected at least (\d+)") as caught:
        subwords(vocab_size=100, sentencepiece_type=kind)
    least = int(str(caught.value).split("at least ")[1].split(" ")[0])
    assert 260 < least < 301
    assert subwords(vocab_size=least + 1, sentencepiece_type=kind).vocab_size == least + 1


def test_json_round_trip(pieces):
    copy = Tokenizer.from_json(json.loads(json.dumps(pieces.to_json())))
    assert isinstance(copy, SentencePiece)
    assert copy.encode_sources(LINES) == pieces.encode_sources(LINES)
    assert copy.fingerprint == pieces.fingerprint


def symbols(**values) -> Symbols:
    tokenizer = train_tokenizer(DataConfig(**values), ["cab", "abc"], ["K AE B", "EY  B"])
    assert isinstance(tokenizer, Symbols)
    return tokenizer


def test_symbols_of_both_sides_share_one_vocabulary():
    tokenizer = symbols()
    assert tokenizer.pieces(range(tokenizer.vocab_size)) == [
        "<pad>", "<unk>", "<s>", "</s>", "AE", "B", "EY", "K", "a", "b", "c",
    ]  # fmt: skip
    assert tokenizer.encode_source("cab") == [10, 8, 9]
    assert tokenizer.encode_target("K AE B") == [7, 4, 5]
    assert tokenizer.decode_source([10, 8, 9]) == "cab"
    assert tokenizer.decode_target([BOS, 7, 4, 5, EOS, PAD]) == "K AE B"


def test_unknown_symbols():
    tokenizer = symbols()
    assert tokenizer.encode_source("câb") == [10, UNK, 9]
    assert tokenizer.encode_target("K XX") == [7, UNK]
    assert tokenizer.decode_target([7, UNK]) == "K ⁇"
    assert tokenizer.encode_source("") == tokenizer.encode_target("  ") == []


def test_other_symbols_by_setting():
    tokenizer = symbols(source_symbols="words", target_symbols="characters")
    assert tokenizer.decode_target(tokenizer.encode_target("EY  B")) == "EY  B"
    assert tokenizer.pieces(tokenizer.encode_source("abc cab")) == ["abc", "cab"]


def test_words_are_split_at_spaces_only():
    tokenizer = train_tokenizer(DataConfig(), ["a"], ["one\u2028two three\u00a0four"])
    assert tokenizer.vocab_size == 4 + 1 + 2


def test_symbols_json_round_trip():
    tokenizer = symbols(source_symbols="words")
    copy = Tokenizer.from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert copy.to_json() == tokenizer.to_json()
    assert copy.encode_source("cab abc") == tokenizer.encode_source("cab abc")
    assert copy.fingerprint != symbols().fingerprint


def test_from_json_refuses_others():
    with pytest.raises(UserError, match="'runes': expected sentencepiece or symbols or bytes or"):
        Tokenizer.from_json({"kind": "runes"})


@pytest.mark.parametrize("token", [-1, 11, 2**31])
def test_an_id_outside_the_vocabulary_is_named(token):
    """A gather on a device clamps such an id silently, and a wrong row is trained."""
    with pytest.raises(UserError, match=f"token id {token} at position 2: expected 0 to 10"):
        check_ids([0, 10, token], 11)
    with pytest.raises(UserError, match=f"token id {token}"):
        symbols().decode_target([4, token])
