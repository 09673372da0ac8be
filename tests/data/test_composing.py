"""How texts and pairs become sequences, for decoders and encoders."""

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data.composing import Composer, layout_of, padded, with_delimiters
from transformer.data.tokenizer import SpecialIds, Tokenizer, train_tokenizer
from transformer.errors import UserError

NAMES = {"<start>": "^", "<delimiter>": "|", "<end>": "$", "<s>": "[", "</s>": "]"}


@pytest.fixture
def encoders() -> Tokenizer:
    config = DataConfig(target_symbols="characters")
    return train_tokenizer(config, ["abcdefgh"], ["abcdefgh"])


@pytest.fixture
def decoders(encoders):
    return with_delimiters(encoders)


def composed(tokenizer, paired: bool, limit: int, first: str, second: str = "") -> tuple[str, str]:
    composer = Composer(layout_of(tokenizer), paired, limit)
    a, b = (np.array(tokenizer.encode_target(text), np.int32) for text in (first, second))
    sequence, types = composer.compose(a, b)
    total = composer.total(np.array([len(a)]), np.array([len(b)]))
    assert sequence.dtype == types.dtype == np.int32
    assert len(sequence) == len(types) == total[0] <= limit
    text = "".join(NAMES.get(piece) or piece for piece in tokenizer.pieces(sequence))
    return text, "".join(map(str, types))


def test_a_decoders_sequences_have_start_delimiter_and_end(decoders):
    assert composed(decoders, False, 99, "abc") == ("^abc$", "00000")
    assert composed(decoders, True, 99, "abc", "de") == ("^abc|de$", "00000000")


def test_an_encoders_second_text_has_a_type_of_its_own(encoders):
    assert composed(encoders, False, 99, "abc") == ("[abc]", "00000")
    assert composed(encoders, True, 99, "abc", "de") == ("[abc]de]", "00000111")
    assert composed(encoders, True, 99, "", "") == ("[]]", "001")


def test_robertas_pairs_have_two_separators_and_one_type(encoders):
    encoders.separators = 2
    assert composed(encoders, True, 99, "abc", "de") == ("[abc]]de]", "000000000")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abcdef", "gh", "^abcd|gh$"),
        ("ab", "cdefgh", "^ab|cdef$"),
        ("abcde", "abcde", "^abc|abc$"),
        ("abcd", "ef", "^abcd|ef$"),
    ],
)
def test_the_longer_text_of_a_pair_is_cut_first(decoders, encoders, first, second, expected):
    assert composed(decoders, True, 9, first, second)[0] == expected
    theirs = expected.replace("^", "[").replace("|", "]").replace("$", "]")
    assert composed(encoders, True, 9, first, second)[0] == theirs


def test_a_long_text_is_cut(decoders):
    assert composed(decoders, False, 5, "abcdef")[0] == "^abc$"


def test_an_encoder_needs_a_begin_and_an_end(encoders):
    encoders.special = SpecialIds(0, -1, 3, ())
    with pytest.raises(UserError, match="no begin or no end symbol"):
        layout_of(encoders)


def test_rows_are_filled_up():
    table = padded([np.array([4, 5]), np.array([6])], rows=3, length=3, fill=1)
    assert table.tolist() == [[4, 5, 1], [6, 1, 1], [1, 1, 1]] and table.dtype == np.int32
