"""``transformer import`` and ``transformer export``, on the command line."""

import io
import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.golden import assert_trees_close
from tests.interop.goldens import published
from tests.interop.test_folder import write_folder
from tests.interop.test_tokenizer_files import spiece, word_level
from transformer.cli import main
from transformer.config import Config, DataConfig, TrainConfig
from transformer.data.tokenizer import Tokenizer
from transformer.interop.transfer import export_model, import_model
from transformer.models.build import build_model
from transformer.training.checkpoint import load_for_inference
from transformer.training.loop import train

pytest.importorskip("tokenizers")


def tensors_of(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def test_import_and_export(tmp_path, capsys):
    theirs = write_folder(tmp_path / "gpt2", "gpt2")
    word_level(theirs, size=29)
    workdir, back = str(tmp_path / "run"), tmp_path / "back"
    assert main(["import", "--from", str(theirs), "--workdir", workdir]) == 0
    assert "decoder, 2 layers of 15, 29 token ids" in capsys.readouterr().out
    model, loaded = published("gpt2"), load_for_inference(workdir)
    assert loaded.step == 0 and loaded.config.model == model.config
    assert loaded.config.data.objective == "language_model"
    assert_trees_close(loaded.params, model.ours(model.tensors), tolerance=0.0)
    assert Tokenizer.from_json(loaded.tokenizer).encode_source("w5 w2") == [5, 2]

    assert main(["export", "--checkpoint", workdir, "--to", str(back)]) == 0
    out = capsys.readouterr().out
    assert "GPT2LMHeadModel; tokenizer: tokenizer.json, tokenizer_config.json" in out
    names = {path.name for path in back.iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert_trees_close(tensors_of(back), tensors_of(theirs), tolerance=0.0)
    settings = json.loads((back / "config.json").read_text())
    assert settings["eos_token_id"] == 1 and settings["model_type"] == "gpt2"


def test_an_imported_model_is_tuned_on_answers(tmp_path):
    """From the imported weights, with the loss on the answers alone, and back to a folder."""
    theirs, origin = write_folder(tmp_path / "hf", "gpt2"), tmp_path / "imported"
    word_level(theirs, size=29)
    import_model(theirs, origin)
    (tmp_path / "pairs.tsv").write_text("w2 w3\tw4\nw5\tw6 w7\n")
    data = DataConfig(
        "answers",
        train=(str(tmp_path / "pairs.tsv"),),
        data_dir=str(tmp_path),
        max_length=10,
        batch_tokens=64,
        separator=" ",
    )
    settings = TrainConfig(steps=1, init_from=str(origin), label_smoothing=0.0)
    before = load_for_inference(origin)
    without = replace(before.config.model, dropout=0.0, attention_dropout=0.0)
    result = train(Config(without, data, train=settings), tmp_path / "tuned")
    model, params = build_model(without), before.params
    # begin, the prompt, the answer, the end; </s> is both.
    rows = [([1, 2, 3, 4, 1], 2), ([1, 5, 6, 7, 1], 3)]
    nll = 0.0
    for ids, answer in rows:
        logits = jnp.asarray(model.apply({"params": params}, jnp.array([ids[:-1]])))[0]
        log_probs = jax.nn.log_softmax(logits)[jnp.arange(4), jnp.array(ids[1:])]
        nll -= float(log_probs[-answer:].sum())
    assert result.history[0]["loss"] == pytest.approx(nll / 5, rel=1e-5)
    assert export_model(tmp_path / "tuned", tmp_path / "back").architecture == "GPT2LMHeadModel"


def test_an_imported_translator_translates(tmp_path, capsys, monkeypatch):
    """An encoder-decoder with its tokenizer, whose padding begins the target."""
    theirs = write_folder(tmp_path / "t5", "t5_1.1")
    workdir = tmp_path / "run"
    import_model(theirs, workdir, tokenizer="ids")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"5 7 11\n\n26 8\n")))
    limits = ["--decode.beam-size", "2", "--decode.extra-length", "2"]
    assert main(["translate", "--checkpoint", str(workdir), *limits]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4 and lines[1] == lines[3] == ""
    ids = [int(word) for line in lines for word in line.split()]
    assert ids and all(1 < token < 29 for token in ids)


def test_without_a_tokenizer_there_is_a_choice(tmp_path, capsys):
    theirs, workdir = write_folder(tmp_path / "llama", "llama"), str(tmp_path / "run")
    arguments = ["import", "--from", str(theirs), "--workdir", workdir]
    assert main(arguments) == 2
    assert "with --tokenizer ids" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*arguments, "--tokenizer", "ids"]) == 0
    assert main([*arguments, "--tokenizer", "ids"]) == 2
    error = capsys.readouterr().err
    assert "has a checkpoint of step 0: expected none" in error and error.count("\n") == 1
    exported = export_model(workdir, tmp_path / "back")
    assert exported == ("LlamaForCausalLM", [])


def test_t5_with_its_vocabulary(tmp_path):
    theirs = write_folder(tmp_path / "t5", "t5_1.0")
    spiece(theirs)
    (theirs / "tokenizer_config.json").write_text('{"extra_ids": 3}')
    arguments = ["import", "--from", str(theirs), "--workdir", str(tmp_path / "run")]
    assert main(arguments) == 2, "more pieces than the model has rows"


def test_a_folder_with_files_is_not_written_to(tmp_path, capsys):
    import_model(write_folder(tmp_path / "a", "gpt1"), tmp_path / "run", "ids")
    arguments = ["export", "--checkpoint", str(tmp_path / "run"), "--to", str(tmp_path / "a")]
    assert main(arguments) == 2
    assert "expected a new or empty directory" in capsys.readouterr().err


def test_missing_options_are_named(capsys):
    assert main(["import"]) == 2
    assert "transformer import: --from and --workdir expected" in capsys.readouterr().err
    assert main(["export", "--form", "x", "--checkpoint", "y", "--to", "z"]) == 2
    assert "unknown setting --form" in capsys.readouterr().err
    assert main(["import", "--form", "x", "--from", "y", "--workdir", "z"]) == 2
    assert "did you mean --from?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "objective", "labels"),
    [
        ("bert", "masked_language_model", ()),
        ("bert_pretraining", "masked_language_model", ()),
        ("bert_classes", "classification", ("a", "b", "c", "d", "e")),
        ("bert_value", "regression", ()),
        ("bert_tokens", "token_labels", ("a", "b", "c", "d", "e")),
        ("bert_choice", "multiple_choice", ()),
        ("bert_spans", "spans", ()),
        ("roformer", "masked_language_model", ()),
    ],
)
def test_an_encoder_is_known_by_its_head(case, objective, labels, tmp_path):
    """With the names of its classes, there and back."""
    names = {"id2label": {str(i): name for i, name in enumerate(labels)}} if labels else {}
    theirs = write_folder(tmp_path / "theirs", case, names)
    imported = import_model(theirs, tmp_path / "run", "ids")
    data = load_for_inference(tmp_path / "run").config.data
    assert (data.objective, data.labels) == (objective, labels)
    assert imported.config.model == published(case).config and imported.drawn == []
    exported = export_model(tmp_path / "run", tmp_path / "back")
    assert exported.architecture == published(case).settings["architectures"][0]
    settings = json.loads((tmp_path / "back/config.json").read_text())
    assert tuple(settings.get("id2label", {}).values()) == (labels or settings_labels(case))
    assert not {"eos_token_id", "bos_token_id"} & settings.keys()


def settings_labels(case):
    return ("LABEL_0",) if case == "bert_value" else ()


def test_a_drawn_pooler_is_told(tmp_path, capsys):
    none = {"pooler.dense.weight": None, "pooler.dense.bias": None}
    theirs = write_folder(tmp_path / "bert", "bert", **none)
    arguments = ["import", "--from", str(theirs), "--workdir", str(tmp_path / "run")]
    assert main([*arguments, "--tokenizer", "ids"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("encoder, 1 layers of 15, 29 token ids, head none\n")
    assert "has no pooler.dense.weight and pooler.dense.bias: drawn at random" in err


def test_an_encoder_needs_its_control_tokens(tmp_path, capsys):
    theirs = write_folder(tmp_path / "bert", "bert")
    word_level(theirs, size=29)
    arguments = ["import", "--from", str(theirs), "--workdir", str(tmp_path / "run")]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "tokenizer.json: no [CLS] (cls_token or bos_token), [MASK] (mask_token): exp" in error
    assert error.count("\n") == 1 and not (tmp_path / "run").exists()
    (theirs / "tokenizer.json").unlink()
    tokens = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "a"]
    (theirs / "vocab.txt").write_text("\n".join(tokens))
    (theirs / "config.json").write_text(
        json.dumps(published("bert").settings | {"pad_token_id": None})
    )
    assert main(arguments) == 2
    assert "vocab.txt: padding is id 4: expected 0, as in the model" in capsys.readouterr().err


def test_parameters_are_saved_in_float32(tmp_path):
    import_model(write_folder(tmp_path / "m", "marian"), tmp_path / "run", "ids")
    params = load_for_inference(tmp_path / "run").params
    assert params["embedding"]["output_bias"].dtype == np.float32
