"""Fine-tuning on labelled texts: from files to predictions, at a tiny size."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.helpers import train_quietly
from transformer.cli import main
from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig
from transformer.data.pipeline import prepare
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.models.classifier import Classifier
from transformer.training.checkpoint import load_for_inference
from transformer.training.classification import ClassEvaluator, TextClassifier
from transformer.training.loop import TrainResult
from transformer.training.metrics import class_scores

MODEL = ModelConfig(
    "decoder",
    num_layers=1,
    model_dim=14,
    ff_dim=19,
    num_heads=7,
    positions="learned",
    max_positions=23,
    norm_placement="pre",
    dropout=0.0,
)
GOOD, BAD = ["fine", "good", "great"], ["bad", "poor", "awful"]


def rows(words: list[str], label: str, count: int) -> list[str]:
    return [f"it is {words[i % 3]} {'so ' * (i % 4)}\t{label}" for i in range(count)]


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    """Sentences with one word that tells; 2 of 5 in validation are of the other class."""
    directory = tmp_path_factory.mktemp("data")
    header = "sentence\tlabel"
    lines = {
        "train": [header, *rows(GOOD, "yes", 24), *rows(BAD, "no", 24)],
        "validation": [header, *rows(GOOD, "yes", 9), *rows(BAD, "no", 6)],
    }
    for name, content in lines.items():
        (directory / f"{name}.tsv").write_text("\n".join(content) + "\n")
    (directory / "text.txt").write_text("\n".join(line.split("\t")[0] for line in lines["train"]))
    return Config(
        model=MODEL,
        data=DataConfig(
            objective="classification",
            train=(str(directory / "train.tsv"),),
            validation=(str(directory / "validation.tsv"),),
            header=True,
            data_dir=str(directory),
            tokenizer="symbols",
            target_symbols="words",
            max_length=23,
            batch_tokens=256,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.02, warmup_steps=0),
        train=TrainConfig(
            steps=40, eval_every=20, save_every=20, log_every=10, label_smoothing=0.0
        ),
    )


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory) -> tuple[Path, TrainResult, str]:
    workdir = tmp_path_factory.mktemp("trained")
    return (workdir, *train_quietly(config, workdir))


def test_a_classifier_is_trained(trained):
    workdir, result, output = trained
    assert result.validation is not None
    assert result.validation["accuracy"] == result.validation["matthews"] == 1.0
    assert result.validation["majority"] == 9 / 15
    assert "48 examples (no 24, yes 24)" in output and "examples/s" in output
    saved = load_for_inference(workdir).config
    assert saved.data.labels == ("no", "yes") and saved.model.num_classes == 2
    assert {"examples", "examples_per_second"} <= result.history[0].keys()


def test_metrics_are_of_every_example_once_whatever_the_batch(trained, config):
    """A last batch that was dropped, or means of means, once changed an accuracy."""
    workdir = trained[0]
    loaded = load_for_inference(workdir)
    tokenizer = Tokenizer.from_json(loaded.tokenizer)
    split = prepare(loaded.config.data, tokenizer, ("validation",), lambda _: None).validation
    model = Classifier(loaded.config.model)
    found = [
        ClassEvaluator(model, replace(config.data, batch_tokens=size), tokenizer, split)  # type: ignore[arg-type]
        for size in (40, 4096)
    ]
    one, two = (evaluator.outputs(loaded.params) for evaluator in found)
    np.testing.assert_allclose(one, two, atol=1e-6)
    np.testing.assert_allclose(one.sum(axis=1), 1, atol=1e-6)
    labels = np.array([1] * 9 + [0] * 6)
    expected = class_scores(one.argmax(axis=1), labels, 2)
    metrics = found[0](loaded.params)
    assert {name: metrics[name] for name in expected} == expected
    assert metrics["loss"] == pytest.approx(-np.log(one[np.arange(15), labels]).mean(), rel=1e-5)


def test_resuming_goes_on_with_the_labels_that_were_found(trained, config):
    workdir, _, _ = trained
    longer = replace(config, train=replace(config.train, steps=41))
    result, output = train_quietly(longer, workdir)
    assert result.step == 41 and "going on from step 40" in output
    with pytest.raises(UserError, match=r"data.labels = \('yes', 'no'\): expected \('no', 'yes'\)"):
        train_quietly(replace(longer, data=replace(config.data, labels=("yes", "no"))), workdir)


def test_evaluate_prints_the_scores_and_writes_predictions(trained, capsys, tmp_path):
    path = tmp_path / "predictions.txt"
    arguments = ["evaluate", "--checkpoint", str(trained[0]), "--predictions", str(path)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "accuracy 100.00% of 15 examples; always the most frequent class 60.00%" in out
    assert "Matthews correlation 1.0000, F1 of the second class 100.00%" in out
    assert path.read_text() == "yes\n" * 9 + "no\n" * 6
    assert main([*arguments[:-1], str(path.with_suffix(".jsonl"))]) == 0
    records = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    assert [record["label"] for record in records] == ["yes"] * 9 + ["no"] * 6
    assert all(record["probabilities"][record["label"]] > 0.5 for record in records)
    assert main([*arguments, "--table", "2"]) == 2
    assert "--table 2: not with data.objective = 'classification'" in capsys.readouterr().err


def test_a_label_unknown_in_training_is_named(trained, config, tmp_path, capsys):
    path = tmp_path / "v.tsv"
    path.write_text("h\tl\ngood\tyes\nbad\tmaybe\n")
    arguments = ["evaluate", "--checkpoint", str(trained[0]), "--data.validation", str(path)]
    assert main(arguments) == 2
    expected = f"error: {path}:3: label 'maybe': expected one of no, yes\n"
    assert capsys.readouterr().err == expected


def test_the_classes_of_a_trained_model_keep_their_order(trained, capsys):
    arguments = ["evaluate", "--checkpoint", str(trained[0]), "--data.labels"]
    for names in (("yes", "no"), ("a", "b", "c")):
        assert main([*arguments, *names]) == 2
        expected = f"data.labels = {names}: expected ('no', 'yes'), in the order of the model's"
        assert expected in capsys.readouterr().err
    # Other names of the same outputs are right, but not those of this file.
    assert main([*arguments, "negative", "positive"]) == 2
    assert "label 'yes': expected one of negative, positive" in capsys.readouterr().err


def test_classify_writes_a_line_for_each_line(trained, capsys, monkeypatch):
    text = b"it is good so\n\nit is awful" + b" so" * 40 + b"\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["classify", "--checkpoint", str(trained[0])]) == 0
    out, err = capsys.readouterr()
    lines = [line.split("\t") for line in out.split("\n")]
    assert [line[0] for line in lines] == ["yes", "", "no", ""]
    assert all(float(line[1]) > 0.5 for line in lines if line[0])
    assert err == "warning: 1 cut to 23 tokens\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\n")))
    assert main(["classify", "--checkpoint", str(trained[0]), "--all"]) == 0
    names = capsys.readouterr().out.strip().split("\t")
    assert names[::2] == ["no", "yes"]
    assert sum(map(float, names[1::2])) == pytest.approx(1, abs=2e-4)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\na\tb\n")))
    assert main(["classify", "--checkpoint", str(trained[0])]) == 2
    assert "<stdin>:2: 2 columns; expected one text" in capsys.readouterr().err


def test_a_text_alone_is_classified_as_in_the_split(trained):
    loaded = load_for_inference(trained[0])
    tokenizer, model = Tokenizer.from_json(loaded.tokenizer), Classifier(loaded.config.model)
    split = prepare(loaded.config.data, tokenizer, ("validation",), lambda _: None).validation
    evaluator = ClassEvaluator(model, loaded.config.data, tokenizer, split)  # type: ignore[arg-type]
    classifier = TextClassifier(model, loaded.params, tokenizer, loaded.config.data, 40)
    found = classifier([(text, "") for text in split.texts])  # type: ignore[union-attr]
    np.testing.assert_allclose(found, evaluator.outputs(loaded.params), atol=1e-6)
    assert classifier([]).shape == (0, 2) and classifier.cut == 0


def test_a_language_model_becomes_a_classifier(config, tmp_path):
    """Its parameters are kept; the rows of new ids and the classifier are drawn at random."""
    text = str(Path(config.data.train[0]).with_name("text.txt"))
    language = DataConfig(
        objective="language_model",
        documents="line",
        train=(text,),
        data_dir=config.data.data_dir,
        target_symbols="words",
        block_length=23,
        batch_tokens=69,
    )
    short = replace(config.train, steps=2, eval_every=2)
    train_quietly(replace(config, data=language, train=short), tmp_path / "lm")
    origin = load_for_inference(tmp_path / "lm")
    frozen = replace(config.optimizer, learning_rate=1e-9)
    start = replace(short, init_from=str(tmp_path / "lm"), steps=1)
    # No setting of the model is given: it is the language model's.
    tuned = Config(data=config.data, optimizer=frozen, train=start)
    _, output = train_quietly(tuned, tmp_path / "tuned")
    assert "starting from step 2 of" in output
    loaded = load_for_inference(tmp_path / "tuned")
    old, new = (dict(x.params) for x in (origin, loaded))
    head = new.pop("classifier")
    assert head["kernel"].shape == (14, 2)
    tables = [tree["embedding"].pop("embedding") for tree in (old, new)]
    assert len(tables[1]) == len(tables[0]) + 3 == loaded.config.model.vocab_size
    np.testing.assert_allclose(tables[1][:-3], tables[0], atol=1e-6)
    assert np.abs(tables[1][-3:]).min(axis=1).max() < 3 and np.abs(tables[1][-3:]).sum() > 0.1
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), old, new)
    tokenizer = Tokenizer.from_json(json.loads(json.dumps(loaded.tokenizer)))
    assert tokenizer.pieces([tokenizer.vocab_size - 1]) == ["<end>"]


ENCODER = replace(MODEL, architecture="encoder", norm_placement="post", segment_types=2)


@pytest.fixture(scope="module")
def numbers(config, tmp_path_factory) -> tuple[Path, TrainResult]:
    """How many of the words of the first text are in the second, as in STS-B."""
    directory = tmp_path_factory.mktemp("numbers")
    rng = np.random.default_rng(7)
    lines = ["index\tsentence1\tsentence2\tscore"]
    for i in range(60):
        count = i % 4
        words = ["".join(rng.choice(list("abcdef"), 3)) for _ in range(3)]
        other = [*words[:count], *["zz"] * (3 - count)]
        lines.append(f"{i}\t{' '.join(words)}\t{' '.join(other)}\t{count}.5")
    (directory / "train.tsv").write_text("\n".join(lines) + "\n")
    (directory / "dev.tsv").write_text("\n".join(lines[:14]) + "\n")
    bare = "\n".join(line.rpartition("\t")[0] for line in lines[:14])
    (directory / "test.tsv").write_text(bare + "\n")
    data = replace(
        config.data,
        objective="regression",
        dataset="glue:stsb",
        header=False,
        train=(str(directory / "train.tsv"),),
        validation=(str(directory / "dev.tsv"),),
        target_symbols="characters",
        max_length=27,
        batch_size=20,
    )
    steps = replace(config.train, steps=999, epochs=20, eval_every=999, save_every=999)
    model = replace(ENCODER, max_positions=27)
    workdir = tmp_path_factory.mktemp("regression")
    tuned = replace(config, model=model, data=data, train=steps)
    return directory, train_quietly(tuned, workdir)[0]


def test_numbers_are_learnt(numbers):
    _, result = numbers
    scores = result.validation
    assert result.step == 60  # 20 epochs of 3 steps
    assert scores["loss"] == pytest.approx(scores["mse"]) and scores["pearson"] > 0.9
    assert scores["spearman"] > 0.9 and scores["mse"] < scores["mean_mse"] / 4
    saved = load_for_inference(result.workdir).config
    assert saved.train.steps == 60 and saved.model.num_classes is None


def test_numbers_are_predicted_for_every_row(numbers, capsys, tmp_path):
    directory, result = numbers
    arguments = ["evaluate", "--checkpoint", str(result.workdir)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "Pearson correlation 0.9" in out and "(13 examples)" in out
    assert "always the mean 1.3136" in out
    plain, full = tmp_path / "p.txt", tmp_path / "p.jsonl"
    arguments += ["--data.test", str(directory / "test.tsv"), "--predictions"]
    assert main([*arguments, str(plain)]) == main([*arguments, str(full)]) == 0
    values = [float(line) for line in plain.read_text().splitlines()]
    assert [json.loads(line)["value"] for line in full.read_text().splitlines()] == values
    expected = [i % 4 + 0.5 for i in range(13)]
    assert np.corrcoef(values, expected)[0, 1] > 0.9 and len(values) == 13


def test_pairs_on_standard_input_have_a_number_each(numbers, capsys, monkeypatch):
    checkpoint = ["--checkpoint", str(numbers[1].workdir)]
    lines = b"abc def\tabc def\n\nabc\tzz\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["classify", *checkpoint]) == 0
    first, blank, third, _ = capsys.readouterr().out.split("\n")
    assert float(first) > float(third) and blank == ""


def test_a_run_of_epochs_goes_on_and_knows_when_it_is_complete(numbers, config):
    _, result = numbers
    saved = load_for_inference(result.workdir).config
    given = replace(saved, train=replace(saved.train, steps=999))
    again, output = train_quietly(given, result.workdir)
    assert again.step == 60 and again.validation == result.validation
    assert "already complete at step 60; to train on, give a larger train.epochs" in output


def test_a_probe_reads_frozen_vectors(numbers, tmp_path, capsys):
    """Of a network that was never taught these classes: whether two texts are the same."""
    directory, result = numbers
    lines = (directory / "train.tsv").read_text().splitlines()[1:]
    rows = [line.split("\t")[1:] for line in lines]
    labels = ["same" if score == "3.5" else "not" for *_, score in rows]
    path, predictions = tmp_path / "train.tsv", tmp_path / "p.txt"
    examples = zip(rows, labels, strict=True)
    path.write_text("".join(f"{a}\t{b}\t{label}\n" for (a, b, _), label in examples))
    arguments = ["probe", "--checkpoint", str(result.workdir), "--data.train", str(path)]
    arguments += ["--data.columns", "text", "text2", "label", "--data.max-length", "27"]
    held_out = ["--data.test", str(path), "--predictions", str(predictions)]
    assert main([*arguments, *held_out]) == 0
    out = capsys.readouterr().out
    assert "logistic regression on 14 features, C = " in out
    assert "of 60 examples; always the most frequent class 75.00%" in out
    found = predictions.read_text().splitlines()
    assert sum(a == b for a, b in zip(found, labels, strict=True)) >= 54
    assert main(arguments) == 2
    assert "expected a training split, and data.validation or data.test" in capsys.readouterr().err
