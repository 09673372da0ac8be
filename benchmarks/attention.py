"""Plain against chunked attention by length: time and temporary memory, forward and backward.

python -m benchmarks.attention
"""

import statistics
import time

import jax
import jax.numpy as jnp
import tyro

from transformer.functional import Mask, attend
from transformer.functional.attention import Implementation


def main(
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096),
    heads: int = 8,
    head_dim: int = 64,
    rounds: int = 5,
) -> None:
    """Prints a table.

    Args:
        lengths: T = S, one row each.
        heads: N.
        head_dim: H.
        rounds: timed calls; the median is shown.
    """
    print(f"causal, B = 1, N = {heads}, H = {head_dim}, float32, {jax.devices()[0].platform}")
    print("| T | plain ms | chunked ms | plain MiB | chunked MiB |")
    print("|---|---|---|---|---|")
    for length in lengths:
        x = jax.random.normal(jax.random.key(0), (1, length, heads, head_dim))
        mask = Mask.self_attention(jnp.ones((1, length), int), causal=True)
        kinds: tuple[Implementation, ...] = ("plain", "chunked")
        cells = [_measure(x, mask, kind, rounds) for kind in kinds]
        times = " | ".join(f"{seconds * 1e3:.1f}" for seconds, _ in cells)
        sizes = " | ".join(f"{size / 2**20:.1f}" for _, size in cells)
        print(f"| {length} | {times} | {sizes} |", flush=True)


def _measure(x, mask, implementation: Implementation, rounds: int) -> tuple[float, int]:
    def loss(query, key, value):
        return attend(query, key, value, mask=mask, implementation=implementation).sum()

    run = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, x, x).compile()
    jax.block_until_ready(run(x, x, x))
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(run(x, x, x))
        seconds.append(time.perf_counter() - began)
    analysis = run.memory_analysis()
    assert analysis is not None
    return statistics.median(seconds), analysis.temp_size_in_bytes


if __name__ == "__main__":
    tyro.cli(main)
