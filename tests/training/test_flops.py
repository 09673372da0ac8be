"""Operations of a step: by formula, and as a traced program has them."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parallel.cases import MODELS, make_batch
from transformer.config import (
    Config,
    DataConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
)
from transformer.models.presets import PRESETS
from transformer.parallel import chips
from transformer.parallel.chips import CHIPS, chip_of
from transformer.training.checkpoint import load_config
from transformer.training.flops import (
    count_flops,
    counted_step_flops,
    step_flops,
    utilization,
)
from transformer.training.logging import read_metrics
from transformer.training.loop import train

OBJECTIVES: dict[str, Any] = {"encoder_decoder": "translation", "decoder": "language_model"}


def config_of(model: ModelConfig, objective: Any = None, **train: Any) -> Config:
    objective = objective or OBJECTIVES.get(model.architecture, "masked_language_model")
    files = ("train.txt",) if objective not in ("translation", "language_model") else ()
    data = DataConfig(objective, train=files, block_length=8)
    return Config(model, data, train=TrainConfig(label_smoothing=0.0, **train))


@pytest.mark.parametrize("name", MODELS)
def test_the_formula_agrees_with_counting_for_every_family(name):
    config, batch = config_of(MODELS[name]), make_batch(MODELS[name])
    assert counted_step_flops(config, batch) == pytest.approx(step_flops(config, batch), rel=0.02)


@pytest.mark.parametrize(
    ("head", "architecture"),
    [
        ("classification", "encoder"),
        ("classification", "decoder"),
        ("regression", "encoder"),
        ("token_labels", "encoder"),
        ("multiple_choice", "encoder"),
        ("span", "encoder"),
    ],
)
def test_the_formula_agrees_with_counting_for_every_head(head, architecture):
    family = MODELS["bert" if architecture == "encoder" else "gpt2"]
    classes = 3 if head in ("classification", "token_labels") else None
    model = dataclasses.replace(family, head=head, num_classes=classes, next_sentence=False)
    rows, length = 6, 8
    tokens = np.ones((rows, length), np.int32)
    batch = {"inputs": tokens, "targets": tokens, "weights": tokens.astype(np.float32)}
    batch |= {"ends": np.full(rows, 7), "labels": np.zeros(rows, np.int32)}
    if head == "multiple_choice":
        batch |= {"inputs": np.ones((rows, 2, length), np.int32)}
    if head == "token_labels":
        batch |= {"labels": tokens}
    if head == "regression":
        batch |= {"values": np.ones(rows, np.float32), "weights": np.ones(rows, np.float32)}
    batch |= {"starts": batch["labels"], "ends": batch["ends"].astype(np.int32)}
    objective = "spans" if head == "span" else head
    columns = ("text", "choice", "choice", "label")
    options: dict[str, Any] = {"columns": columns} if head == "multiple_choice" else {}
    data = DataConfig(objective, train=("x.tsv",), max_length=128, **options)
    model = dataclasses.replace(model, max_positions=128)
    config = Config(model, data)
    assert counted_step_flops(config, batch) == pytest.approx(step_flops(config, batch), rel=0.02)


def test_a_published_size_has_the_operations_that_are_published():
    """GPT-3 of 175 billion: 3.14e23 in all for 300 billion tokens (Brown et al. 2020, table D.1),
    which counts no attention; with it 3 % more (96 layers of width 12,288, 2,048 tokens)."""
    model = dataclasses.replace(PRESETS["gpt3-175b"], vocab_size=50_257)
    batch = {"inputs": np.zeros((1, 2048), np.int32), "targets": np.zeros((1, 2048), np.int32)}
    config = Config(model, DataConfig("language_model", block_length=2048, batch_tokens=2048))
    a_token = step_flops(config, batch) / 2048
    attention = 12 * 96 * 12_288 * 2048
    assert (a_token - attention) * 300e9 == pytest.approx(3.14e23, rel=0.005)


def test_turns_of_loops_and_the_dearest_branch_count():
    square = jnp.ones((4, 4))

    def program(x):
        def turn(x, _):
            return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x), None

        return jax.lax.scan(turn, x, None, length=5)[0] @ square

    assert count_flops(jax.make_jaxpr(program)(square)) == (5 * 2 + 1) * 2 * 4**3


def test_what_is_computed_again_counts_in_a_program():
    square = jnp.ones((4, 4))

    def counted(f):
        return count_flops(jax.make_jaxpr(jax.grad(lambda x: f(x).sum()))(square))

    def f(x):
        return jnp.sin(x @ square) @ square

    assert counted(jax.checkpoint(f)) == counted(f) + 2 * 4**3


def test_utilization_is_of_the_peak_of_all_devices():
    device = SimpleNamespace(device_kind="TPU v5 lite")
    assert utilization(197e12, [device, device]) == {"mfu": 0.5}
    assert utilization(1e12, jax.devices()) == {}
    assert chip_of(SimpleNamespace(device_kind="NVIDIA H100 80GB HBM3")) is CHIPS["h100"]


def test_the_log_has_the_utilization_where_the_peak_is_known(tmp_path, monkeypatch):
    kind = jax.devices()[0].device_kind
    chip = CHIPS["v5e"]._replace(flops=1e12, kinds=(kind,))
    monkeypatch.setattr(chips, "CHIPS", {"here": chip})
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox\n" * 100)
    data = DataConfig(
        "language_model",
        train=(str(text),),
        target_symbols="characters",
        block_length=32,
        batch_tokens=128,
        data_dir=str(tmp_path / "cache"),
    )
    model = dataclasses.replace(MODELS["gpt2"], vocab_size=None)
    settings = TrainConfig(steps=4, log_every=2, label_smoothing=0.0)
    optimizer = OptimizerConfig("constant", 1e-3)
    train(Config(model, data, optimizer, settings, mesh=MeshConfig()), tmp_path / "run")
    logged = [line for line in read_metrics(tmp_path / "run") if line["split"] == "train"]
    assert [line["step"] for line in logged] == [2, 4]
    size = load_config(tmp_path / "run").model.vocab_size
    filled = Config(dataclasses.replace(model, vocab_size=size), data, optimizer, settings)
    batch = {"inputs": np.zeros((4, 32)), "targets": np.zeros((4, 32))}
    for line in logged:
        # Tokens over tokens a second are the seconds of the steps.
        seconds = line["tokens"] / line["tokens_per_second"]
        assert line["mfu"] == pytest.approx(2 * step_flops(filled, batch) / seconds / 1e12)
