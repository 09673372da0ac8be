"""What a checkpoint costs a training on this machine.

    python -m benchmarks.checkpoint --dim 512 --layers 6

Times single steps of a language model: with nothing else going on, the call that saves,
and the steps during which the save goes on in the background; then checking and loading.
"""

import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import tyro

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, to_dict
from transformer.models.build import build_model
from transformer.training.checkpoint import load_for_inference, restore_state
from transformer.training.integrity import verify, write_checksums
from transformer.training.meta import Meta
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.saving import Checkpoints
from transformer.training.state import init_state
from transformer.training.step import make_train_step


def seconds(function, *arguments):
    """The result, and how long it took."""
    start = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return result, time.perf_counter() - start


def main(
    dim: int = 512,
    layers: int = 6,
    vocabulary: int = 12_000,
    rows: int = 8,
    length: int = 64,
    steps: int = 10,
    saves: int = 3,
) -> None:
    """Measures the saves of a language model.

    Args:
        dim: its width.
        layers: their number.
        vocabulary: its size.
        rows: of a batch.
        length: of each row.
        steps: between two saves.
        saves: how many.
    """
    config = Config(
        ModelConfig(
            architecture="decoder",
            num_layers=layers,
            model_dim=dim,
            ff_dim=4 * dim,
            num_heads=8,
            vocab_size=vocabulary,
        ),
        DataConfig("language_model"),
    )
    model = build_model(config.model)
    settings = OptimizerConfig(schedule="constant", warmup_steps=0, learning_rate=1e-4)
    schedule = make_schedule(settings, dim, 1000)
    optimizer = make_optimizer(settings, schedule)
    state = jax.jit(init_state, static_argnums=(0, 1, 2))(model, optimizer, 0)
    step = make_train_step(model, optimizer, schedule, 0.0, 0)
    shape = rows, length
    tokens = np.random.default_rng(0).integers(4, vocabulary, shape).astype(np.int32)
    batch = {
        "inputs": tokens,
        "targets": tokens,
        "weights": np.ones(shape, np.float32),
        "segments": np.ones_like(tokens),
        "positions": np.broadcast_to(np.arange(length, dtype=np.int32), shape),
        "ids": np.arange(rows, dtype=np.int32),
    }
    count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    print(f"{count:,} parameters, {12 * count / 1e6:.0f} MB of state")
    for _ in range(3):
        state, _ = step(state, batch)
    alone, during, calls, whole = [], [], [], []
    with tempfile.TemporaryDirectory() as workdir:
        with Checkpoints(Path(workdir) / "checkpoints", keep=1) as checkpoints:
            for number in range(saves):
                for _ in range(steps):
                    (state, _), taken = seconds(step, state, batch)
                    alone.append(taken)
                meta = Meta(number, to_dict(config), {}, "")
                start = time.perf_counter()
                _, taken = seconds(checkpoints.save, state, meta)
                calls.append(taken)
                folder = checkpoints.path(number)
                while not folder.is_dir():
                    (state, _), taken = seconds(step, state, batch)
                    during.append(taken)
                whole.append(time.perf_counter() - start)
            checkpoints.wait()
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        like = jax.eval_shape(lambda: init_state(model, optimizer, 0))
        times = {
            "a step alone, median": np.median(alone),
            "a step alone, longest": max(alone),
            "the call that saves, longest": max(calls),
            "a step during a save, median": np.median(during),
            "a step during a save, longest": max(during),
            "until it is on disk, longest": max(whole),
            "making checksums": seconds(write_checksums, folder)[1],
            "checking checksums": seconds(verify, folder)[1],
            "restoring the state (checked before)": seconds(restore_state, folder, like)[1],
            "loading the parameters, check included": seconds(load_for_inference, folder)[1],
        }
        print(f"{size / 1e6:.0f} MB on disk")
    for name, value in times.items():
        print(f"{1000 * value:8.0f} ms  {name}")


if __name__ == "__main__":
    tyro.cli(main)
