"""Multiple choice: from a table to predictions, at a tiny size."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.helpers import train_quietly
from transformer.cli import main
from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig
from transformer.data.batches import prefetch
from transformer.data.choices import ChoiceSplit
from transformer.data.objectives import held_out_batches
from transformer.data.pipeline import prepare
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.models.build import build_model
from transformer.models.encoder import Encoder
from transformer.training.checkpoint import load_for_inference
from transformer.training.choices import ChoiceEvaluator, choice_scores
from transformer.training.loop import TrainResult
from transformer.training.losses import loss_sums

pytest.importorskip("tokenizers")

MODEL = ModelConfig(
    "encoder",
    num_layers=1,
    model_dim=14,
    ff_dim=19,
    num_heads=7,
    positions="learned",
    max_positions=11,
    segment_types=2,
    embedding_norm=True,
    dropout=0.0,
)
WORDS = ["it", "was", "day", "and", "then", "left"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", *WORDS]


def table(seed: int, rows: int) -> list[str]:
    """Of three endings the good one is right."""
    generator = np.random.default_rng(seed)
    lines = []
    for number in range(rows):
        prompt = " ".join(generator.choice(WORDS, size=1 + number % 4))
        endings = [f"bad {word}" for word in generator.choice(WORDS, size=3)]
        right = number * 2 % 5 % 3
        endings[right] = f"good {generator.choice(WORDS)}"
        lines.append("\t".join([prompt, *endings, str(right)]))
    return lines


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    """The last 10 of 50 rows are held out."""
    directory = tmp_path_factory.mktemp("data")
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    (directory / "all.tsv").write_text("\n".join(table(1, 50)) + "\n")
    return Config(
        model=MODEL,
        data=DataConfig(
            objective="multiple_choice",
            train=(str(directory / "all.tsv"),),
            columns=("text", "choice", "choice", "choice", "label"),
            validation_fraction=0.2,
            data_dir=str(directory),
            tokenizer="file",
            tokenizer_file=str(directory / "vocab.txt"),
            max_length=11,
            batch_tokens=999,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.01, warmup_steps=0),
        train=TrainConfig(
            steps=40, eval_every=20, save_every=20, log_every=10, label_smoothing=0.0
        ),
    )


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory) -> tuple[Path, TrainResult, str]:
    workdir = tmp_path_factory.mktemp("trained")
    return (workdir, *train_quietly(config, workdir))


def test_the_right_ending_is_learnt(trained):
    workdir, result, output = trained
    assert result.validation is not None
    assert result.validation["accuracy"] == 1.0
    assert result.validation["chance"] == 1 / 3
    assert "train: 40 examples of 3 choices" in output and "examples/s" in output
    assert "validation: 10 examples of 3 choices" in output
    assert load_for_inference(workdir).config.model.head == "multiple_choice"


def test_metrics_are_of_every_example_once_whatever_the_batch(trained, config):
    loaded = load_for_inference(trained[0])
    tokenizer, model = Tokenizer.from_json(loaded.tokenizer), build_model(loaded.config.model)
    split = prepare(config.data, tokenizer, ("validation",), lambda _: None).validation
    assert isinstance(model, Encoder) and isinstance(split, ChoiceSplit)
    fewer = replace(config.data, batch_tokens=100)
    evaluators = [ChoiceEvaluator(model, d, tokenizer, split) for d in (config.data, fewer)]
    one, two = (evaluator.outputs(loaded.params) for evaluator in evaluators)
    np.testing.assert_allclose(one, two, atol=1e-6)
    np.testing.assert_allclose(one.sum(axis=1), 1, atol=1e-6)
    batches = held_out_batches(split, fewer, tokenizer)
    parts = [
        jax.jit(lambda p, b: loss_sums(model, p, b, 0.0))(loaded.params, batch)
        for _, batch in prefetch(batches, 0, batches.steps_per_epoch)
    ]
    assert sum(float(part.weight) for part in parts) == 10
    loss = sum(float(part.loss) for part in parts) / 10
    assert evaluators[1](loaded.params)["loss"] == pytest.approx(loss, rel=1e-4)


def test_scores_beside_chance_and_the_most_frequent_place():
    outputs = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0]]
    found = choice_scores(outputs, np.array([0, 1, 3, 3, 3]))
    assert found == {"accuracy": 3 / 5, "majority": 3 / 5, "chance": 1 / 4}


def test_evaluate_prints_the_scores_and_writes_predictions(trained, capsys, tmp_path):
    lines, records = tmp_path / "predictions.txt", tmp_path / "predictions.jsonl"
    arguments = ["evaluate", "--checkpoint", str(trained[0]), "--predictions"]
    assert main([*arguments, str(lines)]) == 0
    out = capsys.readouterr().out
    assert "accuracy 100.00% of 10 examples; a guess 33.33%, always the most frequent" in out
    right = [line.split("\t")[-1] for line in table(1, 50)][40:]
    assert lines.read_text().split() == right
    assert main([*arguments, str(records)]) == 0
    assert [json.loads(line)["label"] for line in records.read_text().splitlines()] == right


def test_a_validation_file_needs_labels(config, tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("p,a,b,c\nit,good,bad,bad\n")
    (tmp_path / "t.csv").write_text("p,a,b,c,l\nit,good,bad,bad,0\n")
    columns = ("text=p", "choice=a", "choice=b", "choice=c", "label=l")
    files = {"train": (str(tmp_path / "t.csv"),), "validation": (str(path),)}
    data = replace(config.data, columns=columns, **files)
    with pytest.raises(UserError, match=r"data\.validation: expected labels, which its loss and"):
        train_quietly(replace(config, data=data), tmp_path / "run")
