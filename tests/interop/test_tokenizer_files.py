"""Tokenizer files of folders, read and written; all made here."""

import json

import pytest

from tests.data.test_pretrained_sentencepiece import LINES, marian_settings, train
from transformer.config import DataConfig, ModelConfig
from transformer.data.byte_tokenizer import Bytes
from transformer.data.tokenizer import SentencePiece
from transformer.errors import UserError
from transformer.interop.tokenizer_files import ids_as_text, read_tokenizer, write_tokenizer

tokenizers = pytest.importorskip("tokenizers")

SEQ2SEQ = ModelConfig(vocab_size=300)
DECODER = ModelConfig("decoder", vocab_size=300)
ENCODER = ModelConfig("encoder", vocab_size=300)
T5_IDS = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}


def word_level(folder, size: int = 5) -> None:
    words = {"<unk>": 0, "</s>": 1} | {f"w{i}": i for i in range(2, size)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.add_special_tokens(["<unk>", "</s>"])
    model.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>", "kept": 7}')


def spiece(folder) -> None:
    (folder / "spiece.model").write_bytes(train(LINES, pad_id=0, eos_id=1, unk_id=2, bos_id=-1))


def marian(folder) -> dict:
    for name in ("source", "target"):
        (folder / f"{name}.spm").write_bytes(train(LINES))
    pieces = ["</s>", "<unk>", "▁the", "▁tree", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    return marian_settings(len(pieces))


def test_a_folder_survives_reading_and_writing(tmp_path):
    for make, settings, family in (
        (word_level, {}, "gpt2"),
        (spiece, T5_IDS, "t5"),
        (marian, marian_settings(5), "marian"),
    ):
        first, second = tmp_path / family, tmp_path / f"{family} again"
        first.mkdir()
        second.mkdir()
        make(first)
        model = DECODER if family == "gpt2" else SEQ2SEQ
        tokenizer = read_tokenizer(first, settings, model)
        files = write_tokenizer(second, tokenizer, family)
        assert files and all(path.is_file() for path in files)
        assert read_tokenizer(second, settings, model).special == tokenizer.special
        assert read_tokenizer(second, settings, model).encode_sources(LINES) == (
            tokenizer.encode_sources(LINES)
        )
    assert json.loads((tmp_path / "gpt2 again/tokenizer_config.json").read_text())["kept"] == 7


def test_a_vocabulary_learnt_here_becomes_a_sentencepiece_file(tmp_path):
    config = DataConfig(tokenizer="sentencepiece", vocab_size=300)
    tokenizer = SentencePiece.train(LINES, config)
    for family, name in (("t5", "spiece.model"), ("llama", "tokenizer.model")):
        folder = tmp_path / family
        folder.mkdir()
        assert write_tokenizer(folder, tokenizer, family)[0].name == name
        again = read_tokenizer(folder, {}, DECODER)
        assert again.vocab_size == 300, "no sentinels are added to it"
        assert again.special == tokenizer.special
        assert again.encode_sources(LINES) == tokenizer.encode_sources(LINES)
    assert write_tokenizer(tmp_path, tokenizer, "marian") == []
    assert write_tokenizer(tmp_path, Bytes(), "gpt2") == []


def test_a_wordpiece_vocabulary_is_written_whole(tmp_path):
    """For programs that read tokenizer.json, and those that read vocab.txt with its settings."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Un", "##e"]
    (first / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    (first / "tokenizer_config.json").write_text('{"do_lower_case": false, "kept": 7}')
    tokenizer = read_tokenizer(first, {}, ENCODER)
    assert tokenizer.pieces(tokenizer.encode_source("Une")) == ["Un", "##e"]
    files = write_tokenizer(second, tokenizer, "bert")
    assert [path.name for path in files] == [
        *("tokenizer.json", "vocab.txt", "tokenizer_config.json")
    ]
    assert (second / "vocab.txt").read_text() == (first / "vocab.txt").read_text()
    said = json.loads((second / "tokenizer_config.json").read_text())
    assert said == {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": False,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
        "kept": 7,
    }
    for name in ("tokenizer.json", "vocab.txt"):
        again = read_tokenizer(second, {}, ENCODER)
        assert again.encode_source("Une") == tokenizer.encode_source("Une")
        assert (again.special, again.mask) == (tokenizer.special, 4)
        (second / name).unlink()


def test_roformers_words_are_found_by_another_program(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(UserError, match=r"Chinese words whole, .* expected a tokenizer\.json"):
        read_tokenizer(tmp_path, {"model_type": "roformer"}, ENCODER)


def test_a_tokenizer_that_does_not_match_the_embedding_is_refused(tmp_path):
    word_level(tmp_path, size=301)
    with pytest.raises(UserError, match=r"tokenizer\.json: 301 ids: expected at most 300"):
        read_tokenizer(tmp_path, {}, DECODER)
    word_level(tmp_path, size=300)
    assert read_tokenizer(tmp_path, {}, DECODER).vocab_size == 300


def test_an_encoder_decoder_needs_a_begin_and_an_end(tmp_path):
    word_level(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "no such"}')
    with pytest.raises(UserError, match="expected decoder_start_token_id and eos_token_id"):
        read_tokenizer(tmp_path, {}, SEQ2SEQ)
    assert read_tokenizer(tmp_path, {}, DECODER).special.end == -1


def test_a_folder_without_says_what_helps(tmp_path):
    with pytest.raises(UserError, match=r"no tokenizer\.json, .*; with --tokenizer ids"):
        read_tokenizer(tmp_path, {}, DECODER)
    tokenizer = ids_as_text({"eos_token_id": 4, "bos_token_id": 50256}, 7)
    assert tokenizer.special[:3] == (4, 4, 4)
    assert tokenizer.encode_source("6 0") == [6, 0]
