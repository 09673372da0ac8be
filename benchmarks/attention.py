"""Plain against chunked attention by length: time and temporary memory, forward and backward.

python -m benchmarks.attention

Both take turns, so that what else the machine does slows them alike. Of the longest rows plain
attention is compiled, but not run.
"""

import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import tyro

from transformer.functional import Mask, attend
from transformer.functional.attention import Implementation


def main(
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 16384),
    heads: int = 8,
    head_dim: int = 64,
    rounds: int = 5,
    longest: int = 4096,
) -> None:
    """Prints a table.

    Args:
        lengths: T = S, one row each.
        heads: N.
        head_dim: H.
        rounds: timed calls; the median is shown.
        longest: of rows that are run.
    """
    print(f"causal, B = 1, N = {heads}, H = {head_dim}, float32, {jax.devices()[0].platform}")
    print("| T | plain ms | chunked ms | speed | plain MiB | chunked MiB | memory |")
    print("|---|---|---|---|---|---|---|")
    for length in lengths:
        x = jax.random.normal(jax.random.key(0), (1, length, heads, head_dim))
        plain, chunked = (_compiled(x, kind) for kind in ("plain", "chunked"))
        times = "| | "
        if length <= longest:
            seconds = [(_seconds(plain, x), _seconds(chunked, x)) for _ in range(rounds)]
            whole, blocks = (statistics.median(column) for column in zip(*seconds, strict=True))
            times = f"{whole * 1e3:.1f} | {blocks * 1e3:.1f} | {whole / blocks:.2f}"
        whole, blocks = (run.memory_analysis().temp_size_in_bytes for run in (plain, chunked))
        sizes = f"{whole / 2**20:.1f} | {blocks / 2**20:.1f} | {blocks / whole:.3f}"
        print(f"| {length} | {times} | {sizes} |", flush=True)


def _compiled(x: jax.Array, implementation: Implementation) -> Any:
    """The gradient of causal attention."""
    mask = Mask.self_attention(None, jnp.arange(x.shape[1])[None], causal=True)

    def loss(query, key, value):
        return attend(query, key, value, mask=mask, implementation=implementation).sum()

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, x, x).compile()


def _seconds(run: Any, x: jax.Array) -> float:
    """Of one call, after one that is not counted."""
    jax.block_until_ready(run(x, x, x))
    began = time.perf_counter()
    jax.block_until_ready(run(x, x, x))
    return time.perf_counter() - began


if __name__ == "__main__":
    tyro.cli(main)
