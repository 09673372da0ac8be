"""Starting from another run: its parameters, tokenizer and model."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.helpers import train_quietly
from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig
from transformer.errors import UserError
from transformer.training import start
from transformer.training.checkpoint import Loaded, load_for_inference
from transformer.training.start import with_model

MODEL = ModelConfig(
    "decoder",
    num_layers=1,
    model_dim=14,
    ff_dim=19,
    num_heads=7,
    positions="learned",
    max_positions=11,
    norm_placement="pre",
    dropout=0.1,
)


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    directory = tmp_path_factory.mktemp("data")
    (directory / "a.txt").write_text("The cat sat on the mat. " * 20)
    (directory / "b.txt").write_text("the tame ant ate the meat " * 20)
    return Config(
        model=MODEL,
        data=DataConfig(
            objective="language_model",
            train=(str(directory / "a.txt"),),
            data_dir=str(directory),
            target_symbols="characters",
            block_length=11,
            batch_tokens=55,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.01, warmup_steps=0),
        train=TrainConfig(steps=4, eval_every=2, save_every=2, log_every=2, label_smoothing=0.0),
    )


def other(config: Config, origin: Path, **train_values) -> Config:
    """Another text, and nothing said about the model."""
    texts = (str(Path(config.data.train[0]).with_name("b.txt")),)
    return replace(
        config,
        model=ModelConfig(),
        data=replace(config.data, train=texts),
        train=replace(config.train, init_from=str(origin), **train_values),
    )


@pytest.fixture(scope="module")
def origin(config, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("origin")
    train_quietly(config, workdir)
    return workdir


def test_the_first_step_is_taken_from_there(config, origin, tmp_path):
    still = replace(config.optimizer, learning_rate=1e-30)
    fine = replace(other(config, origin, steps=2), optimizer=still)
    result, shown = train_quietly(fine, tmp_path)
    start, end = load_for_inference(origin), load_for_inference(tmp_path)
    assert f"starting from step {start.step} of {origin}" in shown
    jax.tree.map(np.testing.assert_array_equal, end.params, start.params)
    assert end.tokenizer == start.tokenizer  # though the new text has other symbols
    assert end.config.model == start.config.model
    assert end.config.train.init_from == str(origin)
    assert result.step == 2


def test_resuming_needs_the_other_run_no_more(config, origin, tmp_path):
    """And ends where an uninterrupted run does, across the end of an epoch (9 steps)."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_quietly(other(config, origin, steps=12), whole)
    train_quietly(other(config, origin, steps=7), parts)
    gone = other(config, tmp_path / "gone", steps=12)
    result, shown = train_quietly(gone, parts)
    assert result.step == 12 and "going on from step 7" in shown and "starting" not in shown
    jax.tree.map(
        np.testing.assert_array_equal,
        load_for_inference(parts, "last").params,
        load_for_inference(whole, "last").params,
    )


def test_dropout_may_differ_and_nothing_else(config, origin, tmp_path):
    fine = other(config, origin, steps=1)
    train_quietly(replace(fine, model=replace(MODEL, dropout=0.3)), tmp_path / "a")
    assert load_for_inference(tmp_path / "a").config.model.dropout == 0.3
    wrong = replace(fine, model=replace(MODEL, activation="silu"))
    with pytest.raises(UserError, match=r"model\.activation = 'silu': expected 'relu', as in"):
        train_quietly(wrong, tmp_path / "b")
    wider = replace(fine, model=replace(MODEL, ff_dim=23))
    with pytest.raises(UserError, match=r"model\.ff_dim = 23: expected 19, as in train\.init_from"):
        train_quietly(wider, tmp_path / "b")
    small = replace(fine, model=replace(MODEL, vocab_size=5))
    with pytest.raises(UserError, match=r"model\.vocab_size = 5: expected at least the tokenizer"):
        train_quietly(small, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_there_is_no_such_run(config, tmp_path):
    with pytest.raises(UserError, match=r"^train\.init_from = .*gone: no such directory"):
        train_quietly(other(config, tmp_path / "gone"), tmp_path / "run")


@pytest.mark.parametrize(("objective", "kept"), [("classification", True), ("spans", False)])
def test_a_classifier_starts_none_of_another_kind(monkeypatch, objective, kept):
    """Of two classes it has the shape of one that finds beginnings and ends."""
    model = replace(MODEL, architecture="encoder", norm_placement="post", max_positions=256)
    there = replace(model, head="classification", num_classes=2)
    data = DataConfig(objective="classification", train=("a.tsv",))
    params = {"encoder": np.zeros(3), "pooler": np.zeros(2), "classifier": np.zeros((14, 2))}
    found = Loaded(Config(model=there, data=data), {}, params, 3)
    monkeypatch.setattr(start, "load_for_inference", lambda path: found)
    begun = TrainConfig(init_from="there")
    here = Config(model=model, data=replace(data, objective=objective), train=begun)
    loaded = start.load_start(here)
    assert loaded is not None and loaded.params.keys() >= {"encoder", "pooler"}
    assert ("classifier" in loaded.params) is kept


def test_only_a_model_that_is_left_out_is_filled_in(config, origin, tmp_path):
    assert with_model(config, tmp_path) is config
    filled = with_model(other(config, origin), tmp_path).model
    assert replace(filled, vocab_size=None) == MODEL
