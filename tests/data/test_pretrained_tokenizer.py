"""A tokenizer.json made here with the library that reads it, and token ids as text."""

import json
import shutil

import pytest

from transformer.data.pretrained_tokenizer import PretrainedTokenizer, TokenIds, find_special
from transformer.data.tokenizer import SpecialIds, Tokenizer
from transformer.errors import UserError

tokenizers = pytest.importorskip("tokenizers")

LINES = ["low lower lowest", "new newer newest", "  wide   spaces\tkept ", "ünïcödé"]
ADDED = ["<pad>", "<s>", "</s>", "<unk>", "<extra_id_0>"]


def byte_level() -> "tokenizers.Tokenizer":
    """GPT-2's kind: byte-level BPE, here with a few more tokens."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280,
        special_tokens=ADDED,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(LINES, trainer)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    model = byte_level()
    model.enable_truncation(3)  # some published files ask for it
    model.save(str(folder / "tokenizer.json"))
    names = {"pad_token": {"content": "<pad>"}, "eos_token": "</s>", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return PretrainedTokenizer.from_file(folder / "tokenizer.json")


def test_special_ids_are_those_of_the_files(tokenizer):
    assert tokenizer.vocab_size == 280
    assert tokenizer.special == SpecialIds(pad=0, begin=1, end=2, never=(0, 1, 3))


def test_the_models_settings_go_first(folder):
    given = {"decoder_start_token_id": 0, "bos_token_id": 1, "eos_token_id": [4, 2]}
    special = PretrainedTokenizer.from_file(folder / "tokenizer.json", given).special
    assert special == SpecialIds(pad=0, begin=0, end=4, never=(0, 3), also_ends=(2,))


def test_a_chat_models_generation_settings_name_its_ends(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 9]}')
    tokenizer = PretrainedTokenizer.from_file(tmp_path / "tokenizer.json", {"eos_token_id": 2})
    assert tokenizer.special.also_ends == (9,)
    assert PretrainedTokenizer.from_json(tokenizer.to_json()).special == tokenizer.special


@pytest.mark.parametrize("text", [*LINES, "", " ", "a\nb\r\n", "日本 🙂", "’ “x”  , .", "\u2028"])
def test_decoding_is_exact(tokenizer, text):
    ids = tokenizer.encode_target(text)
    assert tokenizer.decode_target(ids) == text
    assert tokenizer.decode_source([1, *ids, 2, 0, 0]) == text


def test_no_text_is_cut(tokenizer):
    assert len(tokenizer.encode_source("zzzzzzzz")) == 8


def test_names_of_control_tokens_in_a_text_are_text(tokenizer):
    """ "</s>" in raw text must not end the sequence (sentencepiece issues 102, 667)."""
    text = "a</s><pad>b<s><unk>"
    ids = tokenizer.encode_source(text)
    assert not set(ids) & {0, 1, 2, 3}
    assert tokenizer.decode_source(ids) == text


def test_a_hidden_tokens_mark_in_a_text_is_text():
    """Also where special ids given by hand forget it."""
    model = byte_level()
    model.add_special_tokens(["<mask>"])
    tokenizer = PretrainedTokenizer(model.to_str(), SpecialIds(0, 1, 2, ()))
    assert tokenizer.pieces([tokenizer.mask]) == ["<mask>"]
    assert tokenizer.mask not in tokenizer.encode_source("a <mask> b")
    assert PretrainedTokenizer(byte_level().to_str(), SpecialIds(0, 1, 2, ())).mask == -1
    named = PretrainedTokenizer(
        model.to_str(), SpecialIds(0, 1, 2, ()), {"mask_token": {"content": "<extra_id_0>"}}
    )
    assert named.mask == 4 and 4 not in named.encode_source("<extra_id_0>")


def test_berts_begin_and_end_are_its_cls_and_sep():
    ids = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "<s>": 5}
    found = find_special({"pad_token_id": 0}, {"sep_token": "[SEP]"}, ids.get, 6)
    assert found == SpecialIds(pad=0, begin=5, end=3, never=(0, 1, 4, 5)), "<s> is usual"
    named = {"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}}
    found = find_special({}, named, (ids | {"</s>": 6}).get, 7)
    assert found == SpecialIds(0, 2, 3, (0, 1, 2, 4)), "what is said goes first"
    del ids["<s>"]
    assert find_special({}, {}, ids.get, 6) == SpecialIds(0, 2, 3, (0, 1, 2, 4))


def test_how_many_separators_a_pair_has():
    """RoBERTa's has two."""
    model = byte_level()
    model.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    assert PretrainedTokenizer(model.to_str(), SpecialIds(0, 1, 2, ())).separators == 2
    assert PretrainedTokenizer(byte_level().to_str(), SpecialIds(0, 1, 2, ())).separators == 1


def test_other_added_tokens_are_recognised(tokenizer):
    ids = tokenizer.encode_source("a <extra_id_0> b")
    assert ids.count(4) == 1 and tokenizer.pieces([4, 0]) == ["<extra_id_0>", "<pad>"]
    assert tokenizer.decode_source(ids) == "a <extra_id_0> b"


def test_it_survives_json(tokenizer):
    again = Tokenizer.from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert again.fingerprint == tokenizer.fingerprint and again.special == tokenizer.special
    assert again.encode_sources(LINES) == tokenizer.encode_sources(LINES)


def test_an_id_outside_is_named(tokenizer):
    with pytest.raises(UserError, match="token id 280 at position 1: expected 0 to 279"):
        tokenizer.decode_target([5, 280])


def test_a_damaged_file_is_one_line(tmp_path):
    path = tmp_path / "tokenizer.json"
    with pytest.raises(UserError, match=r"tokenizer\.json: No such file"):
        PretrainedTokenizer.from_file(path)
    path.write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json: expected a tokenizer\.json"):
        PretrainedTokenizer.from_file(path)


def test_gpt2s_one_special_token_is_begin_end_and_padding():
    config = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    special = find_special({}, config, {"<|endoftext|>": 7}.get, 8)
    assert special == SpecialIds(pad=7, begin=7, end=7, never=())


def test_outputs_of_an_encoder_decoder_begin_with_padding_if_nothing_else_is_said():
    """Recent programs write T5's ``config.json`` without decoder_start_token_id."""
    settings = {"is_encoder_decoder": True, "pad_token_id": 0, "eos_token_id": 1}
    special = find_special(settings, {"bos_token": "<s>"}, {"<s>": 3}.get, 8)
    assert special == SpecialIds(pad=0, begin=0, end=1, never=(0,))
    special = find_special(settings | {"decoder_start_token_id": 5}, {}, {}.get, 8)
    assert special.begin == 5


def test_ids_beyond_the_vocabulary_name_nothing():
    """A character model saved with GPT-2's untouched defaults says eos_token_id = 50256."""
    special = find_special({"eos_token_id": 50256, "bos_token_id": 50256}, {}, {}.get, 65)
    assert special == SpecialIds(pad=0, begin=-1, end=-1, never=())


def test_token_ids_as_text():
    tokenizer = TokenIds(3, SpecialIds(0, -1, -1, ()))
    assert tokenizer.encode_sources(["2 0  1", ""]) == [[2, 0, 1], []]
    assert tokenizer.decode_target([2, 0, 1]) == "2 0 1", "padding is a token of the text here"
    again = Tokenizer.from_json(json.loads(json.dumps(tokenizer.to_json())))
    assert again.fingerprint == tokenizer.fingerprint
    for wrong in ("3", "-1", "x", "²"):
        with pytest.raises(UserError, match=f"{wrong!r}: expected token ids from 0 to 2"):
            tokenizer.encode_source(f"1 {wrong}")


def test_without_the_extra_the_message_says_what_to_install(monkeypatch, folder):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(UserError, match=r'pip install "transformer\[hf\]"'):
        PretrainedTokenizer.from_file(folder / "tokenizer.json")


def test_a_tokenizer_that_begins_every_text_says_so(tmp_path):
    """Llama's: prompts without its begin id give worse text, and no error."""
    model = byte_level()
    assert not PretrainedTokenizer(model.to_str(), SpecialIds(0, 1, 2, ())).begins_texts
    begins = {"add_bos_token": True}
    assert PretrainedTokenizer(model.to_str(), SpecialIds(0, 1, 2, ()), begins).begins_texts
    assert not PretrainedTokenizer(model.to_str(), SpecialIds(0, -1, 2, ()), begins).begins_texts
    model.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    found = PretrainedTokenizer(model.to_str(), SpecialIds(0, 1, 2, ()))
    assert found.begins_texts
    # What the program itself puts there is not put there twice.
    assert found.encode_source("a")[:1] != [1]


def test_special_ids_at_the_top_of_a_vocabulary_with_gaps(tmp_path):
    words = {"<unk>": 0, "a": 1, "</s>": 9}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    model.save(str(tmp_path / "tokenizer.json"))
    found = PretrainedTokenizer.from_file(tmp_path / "tokenizer.json", {"eos_token_id": 9})
    assert found.vocab_size == 10 and found.special.end == 9


def test_what_is_no_tokenizer_json_is_one_line():
    for text in ("{", "{}", "[]"):
        with pytest.raises(UserError, match=r"^expected a tokenizer\.json"):
            PretrainedTokenizer(text, SpecialIds(0, 1, 2, ()))
