"""Files as Marian, T5 and Llama publish them, made here by sentencepiece."""

import io
import json

import pytest
import sentencepiece

from transformer.data.pretrained_sentencepiece import Marian, SentencePieceFile
from transformer.data.tokenizer import SpecialIds, Tokenizer
from transformer.errors import UserError

LINES = ["the old tree stands on the hill", "the new house by the sea", "one tree, two houses"]
LETTERS = "abcdefghijklmnopqrstuvwxyz,"


def train(lines: list[str], **options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*lines, " ".join(LETTERS)]),
        model_writer=model,
        vocab_size=53,
        model_type="unigram",
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    path = tmp_path_factory.mktemp("t5") / "spiece.model"
    path.write_bytes(train(LINES, pad_id=0, eos_id=1, unk_id=2, bos_id=-1))
    settings = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    return SentencePieceFile.from_file(path, settings)


def test_t5s_sentinels_follow_the_pieces(t5):
    pieces = t5.vocab_size - 100
    assert t5.special == SpecialIds(pad=0, begin=0, end=1, never=(0, 2))
    ids = t5.encode_source("the <extra_id_0> stands <extra_id_99> x <extra_id_100>")
    assert [i for i in ids if i >= pieces] == [pieces + 99, pieces]
    assert t5.pieces([pieces + 99, pieces, 1]) == ["<extra_id_0>", "<extra_id_99>", "</s>"]
    assert t5.decode_target([0, pieces + 99, *t5.encode_target("old tree"), pieces + 98, 1]) == (
        "<extra_id_0> old tree <extra_id_1>"
    )


def test_t5_round_trips(t5):
    assert t5.decode_source([*t5.encode_source(LINES[0]), 1, 0]) == LINES[0]
    again = Tokenizer.from_json(json.loads(json.dumps(t5.to_json())))
    assert again.fingerprint == t5.fingerprint
    assert again.encode_sources(LINES) == t5.encode_sources(LINES)


def test_llamas_file_has_no_sentinels(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(train(LINES))
    tokenizer = SentencePieceFile.from_file(path, {})
    assert tokenizer.special == SpecialIds(pad=2, begin=1, end=2, never=(0, 1))
    assert 2 not in tokenizer.encode_source("a </s> b")
    assert tokenizer.decode_source(tokenizer.encode_source(LINES[1])) == LINES[1]


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory):
    """Two languages' pieces, end first and padding last, as OPUS-MT's files have them."""
    folder = tmp_path_factory.mktemp("marian")
    pieces = []
    for name, lines in (("source", LINES), ("target", [line[::-1] for line in LINES])):
        (folder / f"{name}.spm").write_bytes(train(lines))
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        pieces += [model.id_to_piece(i) for i in range(3, model.get_piece_size())]
    names = ["</s>", "<unk>", *dict.fromkeys(pieces), ">>fra<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    return folder


def marian_settings(size: int) -> dict:
    return {"eos_token_id": 0, "pad_token_id": size - 1, "decoder_start_token_id": size - 1}


def test_marian(marian_folder):
    size = len(json.loads((marian_folder / "vocab.json").read_text()))
    marian = Marian.from_folder(marian_folder, marian_settings(size))
    assert marian.vocab_size == size
    assert marian.special == SpecialIds(size - 1, size - 1, 0, never=(1, size - 1))
    plain = marian.encode_source(LINES[0])
    assert marian.decode_source(plain) == LINES[0]
    assert marian.encode_source(f">>fra<< {LINES[0]}") == [size - 2, *plain]
    assert marian.pieces([0, size - 2]) == ["</s>", ">>fra<<"]
    target = LINES[0][::-1]
    assert marian.decode_target([size - 1, *marian.encode_target(target), 0]) == target
    assert marian.encode_target(target) != marian.encode_source(target)
    assert 1 in marian.encode_source("日"), "unknown"

    again = Tokenizer.from_json(json.loads(json.dumps(marian.to_json())))
    assert again.fingerprint == marian.fingerprint
    assert again.encode_targets(LINES) == marian.encode_targets(LINES)


def test_a_damaged_file_is_named(marian_folder, tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"spiece\.model: expected a sentencepiece model"):
        SentencePieceFile.from_file(tmp_path / "spiece.model", {})
    (tmp_path / "vocab.json").write_text('{"a": 1, "<unk>": 2}')
    with pytest.raises(UserError, match=r"vocab\.json: expected pieces, .*the ids 0 to 1"):
        Marian.from_folder(tmp_path, {})
    (tmp_path / "vocab.json").write_text('{"<unk>": 0}')
    with pytest.raises(UserError, match=r"source\.spm: no such file"):
        Marian.from_folder(tmp_path, {})
