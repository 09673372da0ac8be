"""Words with labels, and texts with numbers: from files to predictions, at a tiny size."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from transformer.cli import main
from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig
from transformer.data.pipeline import prepare
from transformer.data.token_labels import TokenSplit
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.models.build import build_model
from transformer.training.checkpoint import load_for_inference
from transformer.training.loop import train
from transformer.training.token_labels import TokenEvaluator, WordLabeller

MODEL = ModelConfig(
    "encoder",
    num_layers=1,
    model_dim=14,
    ff_dim=19,
    num_heads=7,
    positions="learned",
    max_positions=17,
    segment_types=2,
    embedding_norm=True,
    dropout=0.0,
)
# The name of a person follows "mr"; the second word of a name is inside it.
SENTENCES = ["mr ab cd sees it", "it sees mr cd", "it is mr ba ab", "ab cd sees it", "mr ba"]


def conll(count: int) -> str:
    lines = []
    for i in range(count):
        inside = None
        for word in SENTENCES[i % len(SENTENCES)].split():
            label = {None: "O", "mr": "B-PER"}.get(inside, "I-PER")
            label = label if word in ("ab", "ba", "cd") else "O"
            inside = word if label != "O" or word == "mr" else None
            lines.append(f"{word} X {label}")
        lines.append("")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    directory = tmp_path_factory.mktemp("data")
    for name, count in [("train", 40), ("validation", 5)]:
        (directory / name).write_text(conll(count))
    return Config(
        model=MODEL,
        data=DataConfig(
            objective="token_labels",
            train=(str(directory / "train"),),
            validation=(str(directory / "validation"),),
            data_dir=str(directory),
            target_symbols="characters",
            max_length=17,
            batch_tokens=256,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.02, warmup_steps=0),
        train=TrainConfig(steps=40, eval_every=40, save_every=40, label_smoothing=0.0),
    )


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory) -> tuple[Path, Any]:
    workdir = tmp_path_factory.mktemp("trained")
    return workdir, train(config, workdir, Console(file=io.StringIO()))


def test_labels_of_words_are_learnt(trained):
    scores = trained[1].validation
    assert scores["accuracy"] == scores["f1"] == scores["precision"] == scores["recall"] == 1.0
    assert scores["majority"] == pytest.approx(14 / 20)
    assert scores["loss"] < 0.2
    saved = load_for_inference(trained[0]).config
    assert saved.data.labels == ("B-PER", "I-PER", "O") and saved.model.head == "token_labels"


def test_every_word_has_an_output_whatever_the_batch(trained, config):
    loaded = load_for_inference(trained[0])
    tokenizer, model = Tokenizer.from_json(loaded.tokenizer), build_model(loaded.config.model)
    data = replace(loaded.config.data, max_length=7)  # sentences go on in further rows
    split: Any = prepare(data, tokenizer, ("validation",), lambda _: None).validation
    assert isinstance(split, TokenSplit) and len(split.rows) > len(split)
    network: Any = model
    one, two = (
        TokenEvaluator(network, replace(data, batch_size=size), tokenizer, split).outputs(
            loaded.params
        )
        for size in (1, 16)
    )
    np.testing.assert_allclose(one, two, atol=1e-6)
    np.testing.assert_allclose(one.sum(axis=1), 1, atol=1e-6)
    labeller = WordLabeller(network, loaded.params, tokenizer, data, batch_tokens=20)
    alone = labeller([sentence.split() for sentence in SENTENCES[:5]])
    assert [len(part) for part in alone] == [5, 4, 5, 4, 2]
    np.testing.assert_allclose(np.concatenate(alone), one, atol=1e-6)
    assert labeller([]) == []


def test_predictions_have_the_form_of_the_file(trained, tmp_path, capsys):
    test = tmp_path / "test"
    test.write_text("\n".join(line.split(" ")[0] for line in conll(3).split("\n")))
    arguments = ["evaluate", "--checkpoint", str(trained[0]), "--data.test", str(test)]
    assert main(arguments) == 2
    assert "no labels to score by: expected --predictions FILE" in capsys.readouterr().err
    plain, full = tmp_path / "p.txt", tmp_path / "p.jsonl"
    for path in (plain, full):
        assert main([*arguments, "--predictions", str(path)]) == 0
    assert "3 without labels: predictions in" in capsys.readouterr().out
    assert plain.read_text().rstrip() == conll(3).replace(" X ", "\t").rstrip()
    records = [json.loads(line) for line in full.read_text().splitlines()]
    assert records[1]["words"] == ["it", "sees", "mr", "cd"]
    assert records[1]["labels"] == ["O", "O", "O", "B-PER"]
    assert all(0.5 < p <= 1 for record in records for p in record["probabilities"])


def test_classify_labels_each_word_of_a_line(trained, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"it sees mr cd\n\nmr ba\n")))
    assert main(["classify", "--checkpoint", str(trained[0])]) == 0
    assert capsys.readouterr().out == "O O O B-PER\n\nO B-PER\n"
    assert main(["classify", "--checkpoint", str(trained[0]), "--all"]) == 2
    assert "--all: not with data.objective = 'token_labels'" in capsys.readouterr().err


def test_a_validation_split_needs_labels(config, tmp_path):
    bare = tmp_path / "v"
    bare.write_text("it\nsees\n")
    data = replace(config.data, validation=(str(bare),))
    with pytest.raises(UserError, match=r"data.validation: expected labels"):
        train(replace(config, data=data), tmp_path / "run", Console(file=io.StringIO()))
