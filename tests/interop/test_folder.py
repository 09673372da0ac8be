"""Folders as the Hugging Face library writes them, made here from its tensors."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from tests.golden import assert_trees_close
from tests.interop.goldens import EVERY, published
from transformer.errors import UserError
from transformer.interop.folder import read_model, write_model

safetensors = pytest.importorskip("safetensors.numpy")


def write_folder(path, case, settings=None, **changed):
    """`changed`: tensors to add or replace; None removes one; `settings`: likewise."""
    model = published(case)
    tensors = {k: v for k, v in (model.tensors | changed).items() if v is not None}
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(model.settings | (settings or {})))
    safetensors.save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, file(path))
    return path


def file(path):
    return path / "model.safetensors"


def assert_equal(actual, expected):
    assert_trees_close(actual, expected, tolerance=0.0)


@pytest.mark.parametrize("case", EVERY)
def test_import_export_import_is_bit_equal(case, tmp_path):
    """Both ways: our parameters, and their tensors byte by byte."""
    first = read_model(write_folder(tmp_path / "theirs", case))
    assert first.config == published(case).config
    family = write_model(tmp_path / "ours", first.config, first.params)
    assert family is published(case).family
    again = read_model(tmp_path / "ours")
    assert again.config == first.config
    assert_equal(again.params, first.params)
    tensors, written = published(case).tensors, safetensors.load_file(file(tmp_path / "ours"))
    if case.startswith("roberta"):  # the rows before its first position are read by no token
        name = "roberta.embeddings.position_embeddings.weight"
        assert written[name].shape == tensors[name].shape and not written[name][:2].any()
        written[name], tensors[name] = written[name][2:], tensors[name][2:]
    assert_equal(written, tensors)
    settings = json.loads((tmp_path / "ours/config.json").read_text())
    assert settings["architectures"] == published(case).settings["architectures"]


def test_parts_and_their_index(tmp_path):
    folder = write_folder(tmp_path / "whole", "llama")
    tensors = safetensors.load_file(file(folder))
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    whole = read_model(folder)
    file(folder).unlink()
    for part, chosen in parts.items():
        safetensors.save_file({name: tensors[name] for name in chosen}, folder / part)
    index = {name: part for part, chosen in parts.items() for name in chosen}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": index}))
    assert_equal(read_model(folder).params, whole.params)
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-2\.safetensors: no such file"):
        read_model(folder)
    path.write_text("{}")
    with pytest.raises(UserError, match="expected a weight_map"):
        read_model(folder)


@pytest.mark.parametrize(
    ("case", "extra"),
    [
        ("gpt2", {"lm_head.weight": "transformer.wte.weight"}),
        ("gpt2", {"transformer.h.0.attn.bias": (1, 1, 13, 13)}),
        ("llama", {"model.layers.1.self_attn.rotary_emb.inv_freq": (3,)}),
        (
            "t5_1.0",
            {"lm_head.weight": "shared.weight", "encoder.embed_tokens.weight": "shared.weight"},
        ),
        ("marian", {"model.encoder.embed_positions.weight": (37, 9)}),
        ("marian", {"model.decoder.embed_tokens.weight": "model.shared.weight"}),
        (
            "bert_pretraining",
            {
                "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
                "cls.predictions.decoder.bias": "cls.predictions.bias",
                "bert.embeddings.position_ids": (1, 13),
            },
        ),
        (
            "roberta",
            {"lm_head.decoder.bias": "lm_head.bias", "roberta.embeddings.position_ids": (1, 11)},
        ),
        ("roformer", {"roformer.encoder.embed_positions.weight": (13, 6)}),
        # Older programs saved a pooler with every head.
        ("bert_spans", {"bert.pooler.dense.weight": (15, 15), "bert.pooler.dense.bias": (15,)}),
    ],
)
def test_tied_copies_and_buffers_are_known(case, extra, tmp_path):
    model = published(case)
    added = {
        name: model.tensors[of] if isinstance(of, str) else np.ones(of, np.float32)
        for name, of in extra.items()
    }
    assert_equal(
        read_model(write_folder(tmp_path, case, **added)).params, model.ours(model.tensors)
    )


@pytest.mark.parametrize("case", ["gpt2", "llama", "bert_pretraining"])
def test_names_of_a_bare_model(case, tmp_path):
    """GPT-2's own published file was saved without its head, so without a prefix."""
    folder, model = write_folder(tmp_path, case), published(case)
    bare = {name.removeprefix(model.family.prefix): v for name, v in model.tensors.items()}
    kept = bare.keys() & model.tensors.keys()
    assert all(name.startswith(("lm_head.", "cls.")) for name in kept)
    safetensors.save_file(bare, file(folder))
    assert_equal(read_model(folder).params, model.ours(model.tensors))


def rename(folder, change):
    """Saves the tensors of a folder by other names."""
    tensors = safetensors.load_file(file(folder))
    safetensors.save_file({change(name): array for name, array in tensors.items()}, file(folder))
    return folder


def test_names_of_a_model_cut_out_of_one_with_a_head(tmp_path):
    folder = rename(write_folder(tmp_path, "bert"), "bert.{}".format)
    assert_equal(read_model(folder).params, published("bert").ours(published("bert").tensors))


def test_names_of_the_first_files(tmp_path):
    """TensorFlow's gamma and beta, in norms and nowhere else."""
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def change(name):
        end = ".".join(name.split(".")[-2:])
        return name.removesuffix(end) + old.get(end, end)

    folder = rename(write_folder(tmp_path, "bert_pretraining"), change)
    assert "cls.predictions.transform.LayerNorm.gamma" in safetensors.load_file(file(folder))
    model = published("bert_pretraining")
    assert_equal(read_model(folder).params, model.ours(model.tensors))


def test_a_copy_stands_for_its_original(tmp_path):
    """Some programs keep the last of several names of one array, not the first."""
    model = published("bert_pretraining")
    bias = model.tensors["cls.predictions.bias"]
    copies = {"cls.predictions.bias": None, "cls.predictions.decoder.bias": bias}
    folder = write_folder(tmp_path, "bert_pretraining", **copies)
    assert_equal(read_model(folder).params, model.ours(model.tensors))


def test_the_published_bert_calls_itself_a_masked_language_model_only(tmp_path):
    settings = {"architectures": ["BertForMaskedLM"]}
    found = read_model(write_folder(tmp_path, "bert_pretraining", settings))
    assert found.config == published("bert_pretraining").config


def test_without_a_class_the_tensors_say_what_the_head_is(tmp_path):
    for case in ("bert", "bert_pretraining", "bert_spans", "roberta"):
        folder = write_folder(tmp_path / case, case, {"architectures": None})
        assert read_model(folder).config == published(case).config
    folder = write_folder(tmp_path / "classes", "bert_classes", {"architectures": None})
    with pytest.raises(UserError, match="architectures missing: expected BertForPreTraining or"):
        read_model(folder)


def test_a_missing_pooler_is_drawn_where_only_the_hidden_vectors_matter(tmp_path):
    none = {"pooler.dense.weight": None, "pooler.dense.bias": None}
    found = read_model(write_folder(tmp_path / "bare", "bert", **none))
    assert found.drawn == list(none)
    kernel = found.params["pooler"]["kernel"]
    assert 0.01 < kernel.std() < 0.03 and not found.params["pooler"]["bias"].any()
    assert_equal(read_model(tmp_path / "bare").params, found.params)
    with pytest.raises(UserError, match=r"pooler\.dense\.bias: missing, expected \(15,\)"):
        read_model(write_folder(tmp_path / "half", "bert", **{"pooler.dense.bias": None}))
    none = {f"bert.{name}": None for name in none}
    with pytest.raises(UserError, match=r"bert\.pooler\.dense\.weight: missing"):
        read_model(write_folder(tmp_path / "classes", "bert_classes", **none))


def test_a_model_without_a_place_for_the_pooler_has_a_drawn_one(tmp_path):
    config = dataclasses.replace(published("roformer").config, head="none", output_bias=False)
    params = published("roformer").ours(published("roformer").tensors)
    params = {name: params[name] for name in ("embedding", "encoder")}
    assert write_model(tmp_path, config, params).name == "roformer"
    found = read_model(tmp_path)
    assert found.config == config and found.params["pooler"]["kernel"].shape == (18, 18)
    assert_equal(found.params["encoder"], params["encoder"])


def test_what_no_head_reads_is_left_out(tmp_path):
    """A classifier trained from a pre-trained model keeps the bias of the logits of tokens."""
    model = published("bert_classes")
    config = dataclasses.replace(model.config, output_bias=True)
    params = model.ours(model.tensors)
    params["embedding"]["output_bias"] = np.ones(29, np.float32)
    assert write_model(tmp_path, config, params, labels=("a", "b", "c", "d", "e")).name == "bert"
    assert_equal(safetensors.load_file(file(tmp_path)), model.tensors)
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["id2label"]["4"] == "e" and settings["label2id"]["b"] == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"transformer.h.0.attn.c_attn.weight": None},
            r"transformer.h.0.attn.c_attn.weight: missing, expected \(15, 45\)",
        ),
        (
            {"transformer.h.1.mlp.c_fc.weight": np.ones((19, 15), np.float32)},
            r"transformer.h.1.mlp.c_fc.weight: found \(19, 15\), expected \(15, 19\)",
        ),
        (
            {"score.weight": np.ones((2, 15), np.float32)},
            r"score.weight \(2, 15\): unknown to GPT2LMHeadModel",
        ),
        (
            {"lm_head.weight": np.ones((29, 15), np.float32)},
            "lm_head.weight differs from transformer.wte.weight: expected a copy",
        ),
        (
            {"transformer.wpe.weight": np.ones((13, 15), np.int32)},
            "transformer.wpe.weight is of type I32: expected one of F64, F32, F16, BF16",
        ),
    ],
    ids=["missing", "misshapen", "extra", "no copy", "type"],
)
def test_a_tensor_that_does_not_fit_is_named(changed, message, tmp_path):
    with pytest.raises(UserError, match=message) as caught:
        read_model(write_folder(tmp_path, "gpt2", **changed))
    assert "\n" not in str(caught.value)


def test_many_that_do_not_fit_are_counted(tmp_path):
    folder = write_folder(tmp_path, "gpt2")
    shutil.copy(file(write_folder(tmp_path / "other", "llama")), file(folder))
    with pytest.raises(UserError, match=r"missing, expected .*; and \d+ more$"):
        read_model(folder)


def test_half_precision_is_read_as_float32(tmp_path):
    half = {k: v.astype(np.float16) for k, v in published("gpt2").tensors.items()}
    params = read_model(write_folder(tmp_path, "gpt2", **half)).params
    kernel = params["decoder"]["layer_1"]["feed_forward"]["up"]["kernel"]
    assert kernel.dtype == np.float32
    np.testing.assert_array_equal(kernel, half["transformer.h.1.mlp.c_fc.weight"])


def test_bfloat16_is_read_as_float32(tmp_path):
    import ml_dtypes

    half = {k: v.astype(ml_dtypes.bfloat16) for k, v in published("gpt2").tensors.items()}
    header, data = {}, b""
    for name, array in half.items():
        at = len(data)
        data += array.tobytes()
        header[name] = {"dtype": "BF16", "shape": array.shape, "data_offsets": [at, len(data)]}
    text = json.dumps(header).encode()
    folder = write_folder(tmp_path, "gpt2")
    file(folder).write_bytes(len(text).to_bytes(8, "little") + text + data)
    embedding = read_model(folder).params["embedding"]["embedding"]
    assert embedding.dtype == np.float32
    np.testing.assert_array_equal(embedding, half["transformer.wte.weight"].astype(np.float32))


def test_what_is_no_folder_of_theirs_is_one_line(tmp_path, monkeypatch):
    def complaint():
        with pytest.raises(UserError) as caught:
            read_model(tmp_path / "folder")
        return str(caught.value)

    assert "folder: no such directory" in complaint()
    (tmp_path / "folder").mkdir()
    assert "config.json: No such file" in complaint()
    write_folder(tmp_path / "folder", "gpt2")
    (tmp_path / "folder/config.json").write_text("{")
    assert "config.json: expected JSON" in complaint()
    write_folder(tmp_path / "folder", "gpt2")
    file(tmp_path / "folder").write_bytes(b"\x10")
    assert "model.safetensors: damaged safetensors file" in complaint()
    file(tmp_path / "folder").rename(tmp_path / "folder/pytorch_model.bin")
    assert "found pytorch_model.bin: convert to safetensors first" in complaint()
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    assert 'pip install "transformer[hf]"' in complaint()
