"""Speed of decoding at published sizes with random weights, beside another program.

python -m benchmarks.generate greedy --batch 1 \
    --peer "sh -c 'python decode_peers.py --only gpt2 | grep B=1'" --unit tok/s
python -m benchmarks.generate beam --batch 16 \
    --peer "sh -c 'python decode_peers.py --only marian | grep beam'" --unit tok/s

greedy: GPT-2 (124 million parameters), prompts of 32 tokens, 128 new ones. A step of a single
row reads every weight once and does little else, so its speed is given as a share of the
memory's bandwidth, which is measured in every round. beam: Marian's base size, sources of 32
tokens, outputs of exactly 64. Tokens a second count the whole call, prompts and encoder included.
"""

import dataclasses
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.peer import alternate
from transformer.config import DecodeConfig, GenerateConfig
from transformer.data.pretrained_tokenizer import TokenIds
from transformer.data.tokenizer import SpecialIds
from transformer.decoding.beam import Vocabulary
from transformer.decoding.continuous import decode_all
from transformer.decoding.generate import Generator
from transformer.host_memory import keep_freed_memory
from transformer.models.build import build_model
from transformer.models.presets import PRESETS

PROMPT, SOURCE = 32, 32


def main(
    work: tyro.conf.Positional[Literal["greedy", "beam"]],
    batch: int = 1,
    beam_size: int = 4,
    new: int | None = None,
    peer: str | None = None,
    unit: str = "tok/s",
    rounds: int = 3,
    trace: str | None = None,
) -> None:
    """Measures decoding.

    Args:
        work: what.
        batch: rows, or sentences (16 is what the published figures of `beam` are for).
        beam_size: hypotheses of `beam`.
        new: tokens of an output; None: 128 of `greedy`, 64 of `beam`.
        peer: a command to compare with, see `benchmarks.peer`.
        unit: as the peer writes it.
        rounds: how often, in turn with the peer.
        trace: write a profile of one call to this directory.
    """
    keep_freed_memory()
    if work == "greedy":
        call, measure = _greedy(batch, new or 128)
    else:
        call, measure = _beam(batch, beam_size, new or 64)
    began = time.perf_counter()
    call()
    print(f"first call, programs compiled: {time.perf_counter() - began:.1f} s")
    call()  # The first one found out how many steps to take at once.
    print(alternate(measure, peer, unit, rounds))
    if trace is not None:
        with jax.profiler.trace(trace):
            call()


def _greedy(batch: int, new: int) -> tuple[Callable[[], Any], Callable[[], float]]:
    config = PRESETS["gpt2"]
    size = config.vocab_size or 0
    model: Any = build_model(config)
    params = jax.jit(model.init)(jax.random.key(0), jnp.ones((1, 2), jnp.int32))["params"]
    tokenizer = TokenIds(size, SpecialIds(pad=0, begin=-1, end=-1, never=()))
    settings = GenerateConfig(temperature=0.0, max_new_tokens=new, batch_size=batch)
    generator = Generator(model, params, tokenizer, settings)
    prompts = np.random.default_rng(0).integers(0, size, (batch, PROMPT)).tolist()
    read = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    bandwidth = _bandwidth()

    def measure() -> float:
        most = bandwidth()
        began = time.perf_counter()
        next(generator.stream(prompts))
        first = time.perf_counter() - began
        began = time.perf_counter()
        found = generator.generate(prompts)
        seconds = time.perf_counter() - began
        tokens = sum(len(outputs[0].ids) for outputs in found)
        most = (most + bandwidth()) / 2
        rate = read * (new - 1) / (seconds - first)
        print(
            f"{tokens / seconds:,.1f} tok/s; first token after {first * 1e3:.0f} ms, then "
            f"{(seconds - first) / (new - 1) * 1e3:.2f} ms a step: weights at {rate / 1e9:.1f} "
            f"of {most / 1e9:.1f} GB/s, {rate / most:.0%}"
        )
        return tokens / seconds

    return lambda: generator.generate(prompts), measure


def _beam(batch: int, width: int, new: int) -> tuple[Callable[[], Any], Callable[[], float]]:
    config = dataclasses.replace(
        PRESETS["transformer-base"],
        vocab_size=32_000,
        activation="silu",
        attention_bias=True,
        output_bias=True,
    )
    model: Any = build_model(config)
    tokens = jnp.ones((1, 2), jnp.int32)
    params = jax.jit(model.init)(jax.random.key(0), tokens, tokens)["params"]
    vocabulary = Vocabulary(32_000, begin=2, end=3, banned=(0,))
    # No output may end before its limit, as the peers are told.
    embedding = params["embedding"]
    bias = embedding["output_bias"].at[vocabulary.end].set(-1e9)
    params = params | {"embedding": embedding | {"output_bias": bias}}
    sources = np.random.default_rng(0).integers(4, 8_000, (batch, SOURCE)).tolist()
    settings = DecodeConfig(beam_size=width, extra_length=new - SOURCE, length_penalty=1.0)

    def call() -> Any:
        return decode_all(model, params, sources, settings, vocabulary)

    def measure() -> float:
        began = time.perf_counter()
        found = call()
        seconds = time.perf_counter() - began
        lengths = {len(outputs[0][0]) + 1 for outputs in found}
        assert lengths == {new}, lengths
        print(f"{seconds:.2f} s, {seconds / new * 1e3:.1f} ms a token of all sentences")
        return batch * new / seconds

    return call, measure


def _bandwidth() -> Callable[[], float]:
    """Measures how fast two threads read memory, in bytes a second: the faster of two programs.

    A shared machine's memory is now fast, now slow, so that medians are compared with means.
    """
    array = np.ones((2**15, 2**12), np.float32)
    halves = np.split(array, 2)
    device, total = jax.device_put(array), jax.jit(lambda x: x.sum(axis=1))

    def by_threads() -> None:
        threads = [threading.Thread(target=half.sum) for half in halves]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def measure() -> float:
        programs = (by_threads, lambda: jax.block_until_ready(total(device)))
        return array.nbytes / min(map(_median_seconds, programs))

    return measure


def _median_seconds(call: Callable[[], Any], times: int = 5) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


if __name__ == "__main__":
    tyro.cli(main)
