"""Compiling a training step by depth, with and without a scan over the layers.

    python -m benchmarks.compile_time --layers 6 24 96

A GPT-2 of small width: how long XLA takes hardly depends on the width. Times are of the process on
all its cores, which other programs on the machine do not change; memory is what the compiled step
needs besides its state and its batch.
"""

import time
from typing import Literal

import jax
import numpy as np
import tyro

from transformer.config import ModelConfig, OptimizerConfig
from transformer.models.build import build_model
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.state import state_shapes
from transformer.training.step import make_train_step

Remat = Literal["none", "dots", "full"]


def main(
    layers: tuple[int, ...] = (6, 24, 96),
    scan: tuple[bool, ...] = (False, True),
    remat: tuple[Remat, ...] = ("none",),
    width: int = 256,
    length: int = 128,
    rows: int = 8,
) -> None:
    """Prints a table.

    Args:
        layers: depths.
        scan: values of ``model.scan_layers``.
        remat: values of ``model.remat``.
        width: D; the feed-forward layer is four times as wide.
        length: T.
        rows: B.
    """
    print(f"GPT-2 of width {width}, B = {rows}, T = {length}, {jax.devices()[0].platform}")
    print("| layers | scan_layers | remat | trace s | compile s | temporary MiB |")
    print("|---|---|---|---|---|---|")
    for depth in layers:
        for scanned in scan:
            for policy in remat:
                config = _config(depth, scanned, policy, width, length)
                cells = _measure(config, rows)
                print(f"| {depth} | {scanned} | {policy} | {cells} |", flush=True)


def _config(depth: int, scan: bool, remat: Remat, width: int, length: int) -> ModelConfig:
    return ModelConfig(
        "decoder",
        num_layers=depth,
        model_dim=width,
        ff_dim=4 * width,
        num_heads=width // 64,
        vocab_size=1024,
        positions="learned",
        max_positions=length,
        norm_placement="pre",
        activation="gelu_tanh",
        attention_bias=True,
        embedding_scaling="none",
        scan_layers=scan,
        remat=remat,
    )


def _measure(config: ModelConfig, rows: int) -> str:
    model, settings = build_model(config), OptimizerConfig()
    schedule = make_schedule(settings, config.model_dim, 1000)
    optimizer = make_optimizer(settings, schedule)
    step = make_train_step(model, optimizer, schedule, 0.0, 0)
    tokens = np.ones((rows, config.max_positions or 0), np.int32)
    batch = {"inputs": tokens, "targets": tokens, "weights": tokens.astype(np.float32)}
    state = state_shapes(model, optimizer, None)
    began = time.process_time()
    lowered = step.trace(state, batch).lower()
    traced = time.process_time()
    analysis = lowered.compile().memory_analysis()
    done = time.process_time()
    assert analysis is not None
    temporary = analysis.temp_size_in_bytes / 2**20
    return f"{traced - began:.1f} | {done - traced:.1f} | {temporary:,.0f}"


if __name__ == "__main__":
    tyro.cli(main)
