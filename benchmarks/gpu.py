"""The attention kernel of a GPU: whether its numbers are right, and what a training step gains.

python -m benchmarks.gpu

Ends with code 1 where a number is wrong. Takes about five minutes on one GPU.
"""

import dataclasses
import statistics
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from transformer.config import Config, DataConfig, MeshConfig, ModelConfig, OptimizerConfig
from transformer.errors import UserError
from transformer.functional import Mask, attend
from transformer.models.build import build_model
from transformer.models.presets import PRESETS
from transformer.parallel.mesh import attention_kernel, make_mesh
from transformer.parallel.sharding import Sharding
from transformer.training.flops import step_flops, utilization
from transformer.training.heads import Batch
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.state import fresh_state
from transformer.training.step import make_train_step

_B, _T, _S, _N, _K = 3, 640, 512, 4, 2
_BOUND = 0.02
"""bfloat16 has 8 bits: errors of the kernel's are about twice those of rounding its result."""


def main(
    models: tuple[str, ...] = ("gpt2", "gpt2-medium"),
    rows: int = 16,
    length: int = 1024,
    steps: int = 20,
    rounds: int = 3,
) -> None:
    """Prints two tables.

    Args:
        models: presets, whose training step is timed in bfloat16, without dropout.
        rows: of a batch.
        length: of a row, in tokens.
        steps: training steps a round.
        rounds: of which the median is shown, kernel and no kernel taking turns.
    """
    kernel = attention_kernel(make_mesh(MeshConfig()))
    if kernel != "cudnn":
        raise UserError(f"devices: {jax.devices()}: expected GPUs")
    right = check_numbers("cudnn")
    print(f"\n{jax.devices()[0].device_kind}, {rows} x {length} tokens a step, bfloat16, dropout 0")
    print("| model | attention | ms a step | tokens/s | model FLOPs used | temporaries MiB |")
    print("|---|---|---|---|---|---|")
    for name in models:
        model = dataclasses.replace(
            PRESETS[name], dtype="bfloat16", dropout=0.0, attention_dropout=0.0
        )
        time_steps(name, model, rows, length, steps, rounds)
    sys.exit(0 if right else 1)


def masks() -> dict[str, tuple[int, Mask | None]]:
    """Name -> number of keys, and the mask, of all kinds that the kernel takes."""
    places = jnp.arange(_T)[None]
    at_end = jnp.arange(_T) < jnp.array([[_T], [391], [0]])
    return {
        "none": (_S, None),
        "cross": (_S, Mask.cross_attention(jnp.arange(_S) < jnp.array([[_S], [77], [0]]))),
        "causal": (_T, Mask.self_attention(None, places, causal=True)),
        "causal window": (_T, Mask.self_attention(None, places, causal=True, window=100)),
        "padding at the end": (_T, Mask.self_attention(at_end)),
        "causal padding at the end": (_T, Mask.self_attention(at_end, causal=True)),
        "causal padding in front": (_T, Mask.self_attention(at_end[:, ::-1], causal=True)),
    }


def check_numbers(implementation: Any) -> bool:
    """Compares the kernel in bfloat16 with the plain path in float32, forward and backward."""
    print("| mask | H | output | d query | d key | d value |")
    print("|---|---|---|---|---|---|")
    worst = 0.0
    for width in (64, 128):
        for name, (keys, mask) in masks().items():
            errors = _errors(implementation, mask, keys, width)
            worst = max(worst, *errors)
            print(f"| {name} | {width} | " + " | ".join(f"{e:.4f}" for e in errors) + " |")
    print(f"largest error {worst:.4f} of the largest entry; bound {_BOUND}")
    return worst < _BOUND


def _errors(implementation: Any, mask: Mask | None, keys: int, width: int) -> list[float]:
    """The largest differences, as parts of the largest entry; a NaN counts as infinite."""
    shapes = (_T, _N), (keys, _K), (keys, _K), (_T, _N)
    arrays = [
        jax.random.normal(jax.random.key(i), (_B, *shape, width), jnp.bfloat16)
        for i, shape in enumerate(shapes)
    ]

    def run(kind: Any, dtype: Any) -> list[Any]:
        *operands, cotangent = (x.astype(dtype) for x in arrays)

        @jax.jit
        def both(cotangent: Any, *operands: Any) -> Any:
            def function(*operands: Any) -> Any:
                return attend(*operands, mask=mask, implementation=kind)

            output, pull = jax.vjp(function, *operands)
            return output, *pull(cotangent)

        with jax.default_matmul_precision("highest"):
            return [np.asarray(x, np.float32) for x in both(cotangent, *operands)]

    pairs = zip(run(implementation, jnp.bfloat16), run("plain", jnp.float32), strict=True)
    errors = [float(np.abs(got - wanted).max() / np.abs(wanted).max()) for got, wanted in pairs]
    return [error if np.isfinite(error) else np.inf for error in errors]


def time_steps(
    name: str, model: ModelConfig, rows: int, length: int, steps: int, rounds: int
) -> None:
    """A line for each way of attention, measured in turn."""
    kinds = {"kernel": "auto", "plain": "plain", "chunked": "chunked"}
    runs = {kind: _Run(dataclasses.replace(model, attention=value), rows, length)
            for kind, value in kinds.items()}  # fmt: skip
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, run in runs.items():
            times[kind].append(run.seconds(steps))
    for kind, run in runs.items():
        seconds = statistics.median(times[kind])
        flops = step_flops(run.config, run.batch)
        share = utilization(flops / seconds, jax.devices())
        known = f"{share['mfu']:.1%}" if share else "peak unknown"
        print(
            f"| {name} | {kind} | {seconds * 1e3:.1f} | {rows * length / seconds:,.0f} | {known} | "
            f"{run.temporaries / 2**20:,.0f} |",
            flush=True,
        )


class _Run:
    """A model in training, on random tokens."""

    def __init__(self, model: ModelConfig, rows: int, length: int) -> None:
        self.config = Config(
            model, DataConfig("language_model", block_length=length), OptimizerConfig("constant")
        )
        random = np.random.default_rng(0)
        tokens = random.integers(0, model.vocab_size or 0, (rows, length + 1), np.int32)
        self.batch: Batch = {
            "inputs": tokens[:, :-1],
            "targets": tokens[:, 1:],
            "weights": np.ones((rows, length), np.float32),
        }
        network, settings = build_model(model), self.config.optimizer
        schedule = make_schedule(settings, model.model_dim, 100)
        optimizer = make_optimizer(settings, schedule)
        sharding = Sharding(make_mesh(MeshConfig()))
        step = make_train_step(network, optimizer, schedule, 0.0, 0, sharding=sharding)
        self._state = fresh_state(network, optimizer, 0, sharding)
        batch = sharding.put(self.batch)
        self._arrays, self._step = batch, step.compiled.lower(self._state, batch).compile()
        self.temporaries = self._step.memory_analysis().temp_size_in_bytes

    def seconds(self, steps: int) -> float:
        """Of one step, after one that is not counted."""
        self._state, metrics = self._step(self._state, self._arrays)
        assert np.isfinite(float(metrics.sums.loss))
        began = time.perf_counter()
        for _ in range(steps):
            self._state, metrics = self._step(self._state, self._arrays)
        jax.block_until_ready((self._state, metrics))
        return (time.perf_counter() - began) / steps


if __name__ == "__main__":
    try:
        tyro.cli(main)
    except UserError as error:
        sys.exit(f"error: {error}")
