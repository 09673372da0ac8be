"""Pre-training an encoder: whole runs at a tiny size, their metrics against brute force."""

import dataclasses
import io
import os
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from rich.console import Console

import transformer.training.loop as loop
from transformer.cli import main
from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig
from transformer.data.masking import ordinary_ids
from transformer.data.objectives import held_out_batches, training_batches
from transformer.data.pipeline import Data, prepare
from transformer.errors import UserError
from transformer.models.encoder import Encoder
from transformer.training.checkpoint import load_for_inference
from transformer.training.logging import read_metrics
from transformer.training.loop import train
from transformer.training.losses import loss_sums
from transformer.training.masked import MaskedEvaluator, make_masked_step
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.state import init_state
from transformer.training.step import make_train_step

MODEL = ModelConfig(
    "encoder",
    num_layers=1,
    model_dim=14,
    ff_dim=19,
    num_heads=7,
    positions="learned",
    max_positions=19,
    segment_types=2,
    embedding_norm=True,
    embedding_scaling="none",
    output_bias=True,
    initializer="normal",
    dropout=0.1,
)


def corpus(documents: range) -> str:
    """In BERT's published format; a document's words come in one order and in no other."""
    lines = [
        [" ".join(f"{'abcdefg'[d]}{(3 * s + w) % 5}" for w in range(3 + s % 2)) for s in range(7)]
        for d in documents
    ]
    return "\n\n".join("\n".join(sentences) for sentences in lines) + "\n"


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    directory = tmp_path_factory.mktemp("data")
    (directory / "train.txt").write_text(corpus(range(7)))
    (directory / "validation.txt").write_text(corpus(range(3)))
    return Config(
        model=MODEL,
        data=DataConfig(
            objective="masked_language_model",
            train=(str(directory / "train.txt"),),
            validation=(str(directory / "validation.txt"),),
            documents="paragraph",
            data_dir=str(directory),
            block_length=17,
            batch_tokens=5 * 17,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.01, warmup_steps=0),
        train=TrainConfig(
            steps=9, eval_every=6, save_every=2, log_every=3, keep=2, label_smoothing=0.0
        ),
    )


def quiet(output=None) -> Console:
    return Console(file=output or io.StringIO(), width=300)


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory) -> tuple[Path, Any, str]:
    workdir, output = tmp_path_factory.mktemp("finished"), io.StringIO()
    return workdir, train(config, workdir, quiet(output)), output.getvalue()


@pytest.fixture(scope="module")
def data(config) -> Data:
    return prepare(config.data, log=lambda line: None)


def network(config, data: Data, **changes) -> tuple[Encoder, Any]:
    model = dataclasses.replace(
        config.model, vocab_size=data.tokenizer.vocab_size, next_sentence=True, **changes
    )
    optimizer = make_optimizer(config.optimizer, make_schedule(config.optimizer, 14, 100))
    state = jax.jit(lambda: init_state(Encoder(model), optimizer, 5))()
    # Far from the small numbers that training begins with, all outputs differ.
    return Encoder(model), jax.tree.map(lambda x: 3 * x, state.params)


def test_a_run_reports_both_losses(finished):
    workdir, result, shown = finished
    assert "unigram entropy 3.5" in shown and "sentences of 7 documents" in shown
    logged = [line for line in result.history if line["split"] == "train"]
    for line in logged:
        assert line["loss"] == pytest.approx(line["nll"] + line["next_sentence_nll"])
        # Untrained: all 40 ids and both answers are alike.
        assert line["nll"] < 4.2 and 0.6 < line["next_sentence_nll"] < 0.9
    assert logged[-1]["nll"] < logged[0]["nll"]
    validation = result.validation
    assert validation["loss"] == pytest.approx(validation["nll"] + validation["next_sentence_nll"])
    assert validation["unigram_entropy"] == pytest.approx(np.log(15), abs=0.1)
    assert load_for_inference(workdir, "last").config.model.next_sentence


@pytest.mark.parametrize("stop_after", [5, 6])
def test_a_stopped_run_goes_on_to_the_same_end(config, finished, tmp_path, monkeypatch, stop_after):
    prefetch = loop.prefetch

    def interrupting(*args, **rows):
        for index, batch in prefetch(*args, **rows):
            if index + 1 == stop_after:
                os.kill(os.getpid(), signal.SIGTERM)
            yield index, batch

    monkeypatch.setattr(loop, "prefetch", interrupting)
    assert train(config, tmp_path, quiet()).exit_code == 143
    monkeypatch.undo()
    assert train(config, tmp_path, quiet()).validation == finished[1].validation
    ends = [load_for_inference(path, "last").params for path in (tmp_path, finished[0])]
    jax.tree.map(np.testing.assert_array_equal, *ends)
    losses = [[line["loss"] for line in read_metrics(path)] for path in (tmp_path, finished[0])]
    assert losses[0] == losses[1]


def softmax_nll(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    picked = np.take_along_axis(exponentials, targets[..., None], -1)[..., 0]
    return np.log(exponentials.sum(-1)) - np.log(picked)


def test_the_metrics_are_those_of_brute_force(config, data):
    model, params = network(config, data)
    assert data.validation is not None
    evaluator = MaskedEvaluator(config, model, data.tokenizer, data.validation)
    scores = evaluator(params)
    batches = held_out_batches(data.validation, config.data, data.tokenizer)

    @jax.jit
    def outputs(batch):
        def call(method, *arguments, **named):
            return model.apply({"params": params}, *arguments, **named, method=method)

        hidden = call("hidden", batch["inputs"], token_types=batch["token_types"])
        logits = call("logits", call("masked", hidden, batch["places"]))
        return logits, call("follows", hidden)

    nll, right, follow_nll, follow_right, randoms = [], [], [], [], []
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        logits, answers = map(np.asarray, outputs(batch))
        counted = batch["weights"] > 0
        nll += softmax_nll(logits, batch["targets"])[counted].tolist()
        right += (logits.argmax(-1) == batch["targets"])[counted].tolist()
        real = batch["ids"] >= 0
        answers, follows = answers[real], batch["follows"][real]
        follow_nll += softmax_nll(answers, follows).tolist()
        follow_right += (answers.argmax(-1) == follows).tolist()
        randoms += follows.tolist()
    assert batches.steps_per_epoch > 1 and len(randoms) > 5
    tokens = data.validation.tokens[0]
    shares = np.unique(tokens[ordinary_ids(data.tokenizer)[tokens]], return_counts=True)[1]
    shares = shares / shares.sum()
    expected = {
        "loss": np.mean(nll) + np.mean(follow_nll),
        "nll": np.mean(nll),
        "perplexity": np.exp(np.mean(nll)),
        "masked_accuracy": np.mean(right),
        "unigram_entropy": -(shares * np.log(shares)).sum(),
        "next_sentence_nll": np.mean(follow_nll),
        "next_sentence_accuracy": np.mean(follow_right),
        "next_sentence_majority": max(np.mean(randoms), 1 - np.mean(randoms)),
    }
    assert scores == pytest.approx(expected, rel=1e-5)
    assert scores.keys() == expected.keys()


def test_the_evaluated_loss_is_the_trained_one(config, data):
    """Of one batch, label smoothing included."""
    model, params = network(config, data)
    batches = training_batches(data.train, config.data, data.tokenizer, 3)
    batch = batches.batch(0)
    arrays = {name: array for name, array in batch.items() if name != "ids"}
    sums = make_masked_step(model, 0.1)(params, batch)
    trained = jax.jit(lambda p, b: loss_sums(model, p, b, 0.1))(params, arrays)
    assert float(sums.tokens.nll) == pytest.approx(float(trained.nll), rel=1e-5)
    mean = sums.tokens.loss / sums.tokens.weight + sums.pairs.loss / sums.pairs.weight
    assert float(mean) == pytest.approx(float(trained.loss / trained.weight), rel=1e-5)
    single = make_masked_step(model, 0.0)(params, {**batch, "follows": batch["ids"] * 0})
    assert float(single.pairs_random) == 0


def test_micro_batches_equal_the_whole_batch(config, data):
    """Two means over two numbers of things: hidden tokens and pairs. The parts differ in both."""
    model, _ = network(config, data, dropout=0.0)
    schedule = make_schedule(config.optimizer, 14, 100)
    optimizer = make_optimizer(config.optimizer, schedule)
    batches = training_batches(data.train, config.data, data.tokenizer, 3, group=3)
    batch = batches.batch(batches.steps_per_epoch - 1)
    parts = batch["weights"].reshape(3, -1).sum(axis=1), (batch["ids"] >= 0).reshape(3, -1).sum(1)
    assert len(set(parts[0].tolist())) > 1
    batch["ids"][-2:], batch["follows"][-2:] = -1, -1  # two rows are missing
    batch["weights"][-2:], batch["inputs"][-2:] = 0, 0
    real = batch["ids"] >= 0
    batch["follow_weights"] = np.where(real, batch["weights"].sum() / real.sum(), 0)
    batch["follow_weights"] = batch["follow_weights"].astype(np.float32)
    init = jax.jit(lambda: init_state(model, optimizer, 5))
    found = []
    for accumulate in (1, 3):
        step = make_train_step(model, optimizer, schedule, 0.0, 3, accumulate)
        state, metrics = step(init(), batch)
        found.append((metrics, optax.tree.get(state.opt_state, "mu")))
    (whole, gradient), (in_parts, other) = found
    np.testing.assert_allclose(in_parts.sums, whole.sums, rtol=1e-5)
    jax.tree.map(
        lambda got, expected: np.testing.assert_allclose(got, expected, rtol=2e-4, atol=1e-8),
        other,
        gradient,
    )
    # It is the mean over tokens and that over pairs.
    sums = make_masked_step(model, 0.0)(init().params, batch)
    assert float(sums.pairs.weight) == real.sum() < len(real)
    mean = sums.tokens.nll / sums.tokens.weight + sums.pairs.nll / sums.pairs.weight
    assert float(whole.sums.loss / whole.sums.weight) == pytest.approx(float(mean), rel=1e-5)


def test_single_texts_are_learnt_without_the_second_head(config, tmp_path):
    settings = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, next_sentence=False, whole_words=False),
        train=dataclasses.replace(config.train, steps=2),
    )
    result = train(settings, tmp_path, quiet())
    assert result.validation is not None
    assert not [name for name in result.validation if name.startswith("next")]
    loaded = load_for_inference(tmp_path)
    assert not {"next_sentence", "pooler"} & loaded.params.keys()
    assert not loaded.config.model.next_sentence


def test_evaluate_prints_them(finished, capsys):
    workdir, result, _ = finished
    assert main(["evaluate", "--checkpoint", str(workdir), "--step", "last"]) == 0
    shown = capsys.readouterr().out
    validation = result.validation
    assert f"nll {validation['nll']:.4f} nats a hidden token" in shown
    assert f"unigram entropy {validation['unigram_entropy']:.4f}" in shown
    assert f"masked accuracy {validation['masked_accuracy']:.2%}" in shown
    accuracy, majority = (validation[f"next_sentence_{n}"] for n in ("accuracy", "majority"))
    assert f"next sentence accuracy {accuracy:.2%} of " in shown
    assert f"the more frequent answer {majority:.2%}" in shown
    assert main(["evaluate", "--checkpoint", str(workdir), "--table", "3"]) == 2
    assert "--table 3: not with data.objective" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        ("classification", "has the head 'language_model'; expected 'classification'"),
        ("language_model", "expected 'decoder'"),
    ],
)
def test_evaluate_refuses_what_the_model_has_not_learnt_before_it_reads(
    objective, told, finished, capsys
):
    options = ["--data.objective", objective, "--data.dataset", "files", "--data.train", "nowhere"]
    assert main(["evaluate", "--checkpoint", str(finished[0]), *options]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1, error


def test_more_draws_hide_other_tokens_and_pair_other_texts(finished, data, capsys):
    """All draws together are the mean over batches made by hand, epoch by epoch."""
    workdir, result, _ = finished
    loaded = load_for_inference(workdir, "last")
    config = loaded.config
    batches = held_out_batches(data.validation, config.data, data.tokenizer)
    epoch = batches.steps_per_epoch
    assert not np.array_equal(batches.batch(0)["places"], batches.batch(epoch)["places"])
    np.testing.assert_array_equal(batches.batch(0)["ids"], batches.batch(epoch)["ids"])
    step = make_masked_step(Encoder(config.model), config.train.label_smoothing)
    found = [step(loaded.params, batches.batch(i)) for i in range(3 * epoch)]
    tokens = sum(float(sums.tokens.weight) for sums in found)
    nll = sum(float(sums.tokens.nll) for sums in found) / tokens
    right = sum(float(sums.pairs_right) for sums in found)
    pairs = sum(float(sums.pairs.weight) for sums in found)
    command = ["evaluate", "--checkpoint", str(workdir), "--step", "last", "--draws"]
    assert main([*command, "3"]) == 0
    shown = capsys.readouterr().out
    assert f"nll {nll:.4f} nats a hidden token" in shown and f"({tokens:,.0f} tokens)" in shown
    assert f"next sentence accuracy {right / pairs:.2%} of {pairs:,.0f} pairs" in shown
    assert f"{nll:.4f}" != f"{result.validation['nll']:.4f}"
    assert main([*command, "0"]) == 2
    assert "--draws 0: expected at least 1" in capsys.readouterr().err


def test_a_vocabulary_without_a_mask_is_one_clear_line(config, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a0"]
    model = tokenizers.models.WordPiece({n: i for i, n in enumerate(names)}, unk_token="[UNK]")
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    data = dataclasses.replace(
        config.data, tokenizer="file", tokenizer_file=str(tmp_path / "tokenizer.json")
    )
    with pytest.raises(UserError, match=r"data\.tokenizer: no mask \(\[MASK\]\) among the 5 ids"):
        train(dataclasses.replace(config, data=data), tmp_path / "run", quiet())
    (tmp_path / "vocab.txt").write_text("\n".join(names) + "\n")
    data = dataclasses.replace(data, tokenizer_file=str(tmp_path / "vocab.txt"))
    with pytest.raises(UserError, match=r"vocab\.txt: no \[MASK\] among the 5 tokens"):
        train(dataclasses.replace(config, data=data), tmp_path / "run", quiet())
    assert not (tmp_path / "run").exists()
