"""BERT's vocabularies; what is right was worked out by hand from the published rules."""

import json

import pytest

from transformer.data.pretrained_tokenizer import PretrainedTokenizer
from transformer.data.tokenizer import Encoded, SpecialIds, Tokenizer
from transformer.data.wordpiece import (
    read_vocabulary,
    wordpiece_json,
    wordpiece_settings,
    write_vocabulary,
)
from transformer.errors import UserError

tokenizers = pytest.importorskip("tokenizers")

WORDS = ["the", "na", "##ive", "##s", "big", "日", "[", "]", "mask", "sep", "Big", "naïve"]
TOKENS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
ID = {token: i for i, token in enumerate(TOKENS)}


def write(folder, tokens=TOKENS, **config):
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder / "vocab.txt"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return PretrainedTokenizer.from_file(write(tmp_path_factory.mktemp("bert")))


def named(tokenizer, text):
    return tokenizer.pieces(tokenizer.encode_source(text))


def test_ids_are_line_numbers_and_controls_are_known(tokenizer):
    assert tokenizer.vocab_size == len(TOKENS)
    assert tokenizer.special == SpecialIds(pad=0, begin=3, end=4, never=(0, 2, 3, 5))
    assert tokenizer.mask == 5
    again = Tokenizer.from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert (again.mask, again.special) == (5, tokenizer.special)


def test_words_are_split_as_published(tokenizer):
    """Lower case, without accents, Chinese characters apart, the longest piece first."""
    assert named(tokenizer, "The NAÏVES 日日, big") == [
        *("the", "na", "##ive", "##s", "日", "日", "[UNK]", "big")
    ]
    assert tokenizer.decode_source(tokenizer.encode_source("The naives")) == "the naives"
    assert named(tokenizer, "the" * 40) == ["[UNK]"], "longer than 100 characters"


@pytest.mark.parametrize(
    ("config", "text", "expected"),
    [
        ({"do_lower_case": False}, "Big naïve", ["Big", "naïve"]),
        ({"do_lower_case": False, "strip_accents": True}, "Big naïve", ["Big", "na", "##ive"]),
        ({"strip_accents": False}, "Big naïve", ["big", "naïve"]),
        ({"tokenize_chinese_chars": False}, "日日", ["[UNK]"]),
    ],
)
def test_settings_of_the_splitting(config, text, expected, tmp_path):
    assert named(PretrainedTokenizer.from_file(write(tmp_path, **config)), text) == expected


def test_names_of_control_tokens_in_a_text_are_text(tokenizer):
    """ "[MASK]" in a corpus must not look like a hidden token, nor "[SEP]" end a sentence."""
    ids = tokenizer.encode_source("the [MASK] [SEP] [CLS][PAD] [UNK]")
    assert named(tokenizer, "the [MASK] [SEP]") == ["the", "[", "mask", "]", "[", "sep", "]"]
    assert not set(ids) & {ID["[MASK]"], ID["[SEP]"], ID["[CLS]"], ID["[PAD]"]}


def test_offsets_are_characters_of_the_text_as_given(tokenizer):
    text = "🙂 The  nai\u0308ves 日本 [SEP]"
    (found,) = tokenizer.encode_with_offsets([text])
    assert found.ids == tokenizer.encode_source(text)
    assert [text[a:b] for a, b in found.offsets] == [
        *("🙂", "The", "na", "i\u0308ve", "s", "日", "本", "[", "SEP", "]")
    ]
    assert tokenizer.encode_with_offsets(["", "big"]) == [Encoded([], []), Encoded([10], [(0, 3)])]


def test_offsets_of_other_kinds_are_refused():
    from transformer.data.byte_tokenizer import Bytes

    with pytest.raises(UserError, match=r"kind 'bytes' does not say where .* expected a WordPiece"):
        Bytes().encode_with_offsets(["a"])


@pytest.mark.parametrize("name", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
def test_a_vocabulary_without_a_control_token_is_one_line(name, tmp_path):
    path = write(tmp_path, [token for token in TOKENS if token != name])
    with pytest.raises(UserError) as caught:
        PretrainedTokenizer.from_file(path)
    expected = f"vocab.txt: no {name} among the {len(TOKENS) - 1} tokens: expected [PAD], [UNK], "
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_control_tokens_of_other_names(tmp_path):
    tokens = ["<pad>", "<unk>", "<s>", "</s>", "<hidden>", "a"]
    names = {"pad_token": "<pad>", "unk_token": {"content": "<unk>"}, "cls_token": "<s>"}
    names |= {"sep_token": "</s>", "mask_token": "<hidden>"}
    found = PretrainedTokenizer.from_file(write(tmp_path, tokens, **names))
    assert found.mask == 4 and found.special[:3] == (0, 2, 3)


def test_a_token_on_two_lines_is_named(tmp_path):
    with pytest.raises(UserError, match=r"vocab\.txt: line 19: 'the' is on line 7 already"):
        PretrainedTokenizer.from_file(write(tmp_path, [*TOKENS, "the"]))


def test_what_is_not_implemented_is_refused(tmp_path):
    with pytest.raises(UserError, match="do_basic_tokenize = False: expected True"):
        PretrainedTokenizer.from_file(write(tmp_path, do_basic_tokenize=False))


def test_line_ends_of_windows_and_unicode_are_no_part_and_no_end():
    assert read_vocabulary("a\r\nb\u2028\r\n") == ["a", "b\u2028"]
    assert read_vocabulary("a\n\nb") == ["a", "", "b"], "a blank line is a token's number too"


def test_the_file_comes_back_from_its_json():
    values = json.loads(wordpiece_json(TOKENS, {"do_lower_case": False}))
    assert read_vocabulary(write_vocabulary(values) or "") == TOKENS
    assert wordpiece_settings(values) == {
        "do_lower_case": False,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
    }
    values["model"]["vocab"]["beyond"] = 99
    assert write_vocabulary(values) is None, "the number of a line is the id"
    assert write_vocabulary({"model": {"type": "BPE", "vocab": {}}}) is None
    assert wordpiece_settings({"normalizer": None}) == {}


def test_it_is_the_librarys_own_bert_tokenizer():
    """With [CLS] and [SEP] put there as the published post-processor does."""
    model = tokenizers.Tokenizer.from_str(wordpiece_json(TOKENS, {}))
    encoded = model.encode("the", "big")
    assert encoded.tokens == ["[CLS]", "the", "[SEP]", "big", "[SEP]"]
    assert encoded.type_ids == [0, 0, 0, 1, 1]
