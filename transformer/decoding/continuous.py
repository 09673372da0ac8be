"""Many sources through a batch of fixed size: a decided sentence makes room for the next.

Compiled shapes are few: sources are padded to powers of two, and the cache begins with one
place a source token and doubles when a sentence needs more. One program a pair of the two
does all the steps; nothing is compiled for a particular sentence.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import DecodeConfig
from transformer.decoding import beam
from transformer.decoding.beam import Beams, Vocabulary
from transformer.models.seq2seq import PAD, Cache, Seq2Seq

Progress = Callable[[int, int], None]
"""Called with (sources done, sources in all)."""

_SHORTEST = 16
# Source tokens held at once, padding included: bounds the memory of very long lines.
_MOST_TOKENS = 16_384


def decode_all(
    model: Seq2Seq,
    params: Any,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
    vocabulary: Vocabulary,
    n_best: int = 1,
    progress: Progress | None = None,
) -> list[list[tuple[list[int], float]]]:
    """The best outputs of every source, each as (ids without the end symbol, score).

    An output may have ``config.extra_length`` tokens more than its source (the end symbol
    counted on both sides). The result of a source depends neither on the others nor on
    `config.batch_size`.

    Args:
        model: the network; `params` its parameters.
        sources: token ids, each ending in the end symbol, all in the vocabulary.
        config: beam size, length penalty, limits, batch size.
        vocabulary: special ids.
        n_best: outputs a source, at most ``config.beam_size``.
        progress: see `Progress`.
    """
    found: list[list[tuple[list[int], float]]] = [[] for _ in sources]
    widths = [_power_of_two(max(len(source), _SHORTEST)) for source in sources]
    done = 0
    for width in sorted(set(widths), reverse=True):
        # Longest first, so that the last ones, which run in a half-empty batch, are short.
        queue = [
            i for i in np.argsort([-len(s) for s in sources], kind="stable") if widths[i] == width
        ]
        rows = min(config.batch_size, max(1, _MOST_TOKENS // width), _power_of_two(len(queue)))
        batch = _Batch(model, params, config, vocabulary, n_best, rows, width)
        while queue or batch.owners:
            while queue and len(batch.free) >= min(batch.intake, len(queue)):
                batch.insert({i: sources[i] for i in queue[: batch.intake]})
                del queue[: batch.intake]
            for i, outputs in batch.advance(batch.intake if queue else rows + 1):
                found[i] = outputs
                done += 1
            if progress is not None:
                progress(done, len(sources))
    return found


class _Batch:
    """The device's state and who sits in which row."""

    def __init__(self, model, params, config, vocabulary, n_best, rows: int, width: int):
        self.model, self.params = model, params
        self.config, self.vocabulary = config, vocabulary
        self.width = width
        self.intake = max(1, rows // 4)
        self.owners: dict[int, int] = {}
        self.free = list(range(rows))
        self.beams = _idle(model, params, config, n_best, rows, width)

    def insert(self, sources: dict[int, Sequence[int]]) -> None:
        """Encodes at most `intake` sources and begins their search."""
        tokens = np.full((self.intake, self.width), PAD, np.int32)
        limits = np.zeros(self.intake, np.int32)
        rows = np.full(self.intake, len(self.free) + len(self.owners), np.int32)
        for slot, (i, source) in enumerate(sources.items()):
            tokens[slot, : len(source)] = source
            limits[slot] = len(source) + self.config.extra_length
            rows[slot] = row = self.free.pop()
            self.owners[row] = i
        encoded = _encode(self.model, self.params, tokens)
        self.beams = _insert(self.beams, encoded, rows, limits, self.vocabulary)

    def advance(self, wanted: int) -> list[tuple[int, list[tuple[list[int], float]]]]:
        """Steps until `wanted` sentences are decided or the cache must grow; returns those done."""
        self.beams = _advance(
            self.model, self.params, self.beams, self.config, self.vocabulary, wanted
        )
        self.beams, *found = _harvest(self.beams, self.config)
        full, decided, tokens, lengths, scores = jax.device_get(found)
        done = []
        for row in np.flatnonzero(decided):
            outputs = [
                (tokens[row, r, : lengths[row, r] - 1].tolist(), float(scores[row, r]))
                for r in range(scores.shape[1])
                if lengths[row, r] > 0
            ]
            done.append((self.owners.pop(row), outputs))
            self.free.append(int(row))
        if full:
            self.beams = _grow(self.beams)
        return done


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4, 5))
def _idle(model, params, config, n_best, rows, width) -> Beams:
    source = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    start = functools.partial(model.apply, capacity=width * config.beam_size, method="start")
    cache = jax.eval_shape(start, {"params": params}, source)
    cache = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), cache)
    return beam.idle(rows, width, config, n_best, cache)


@functools.partial(jax.jit, static_argnums=0)
def _encode(model, params, source) -> Cache:
    return model.apply({"params": params}, source, 0, method="start")


@functools.partial(jax.jit, static_argnums=4, donate_argnums=0)
def _insert(beams: Beams, encoded: Cache, rows, limits, vocabulary) -> Beams:
    def put(old, new):
        return old.at[rows].set(new, mode="drop")

    cache = beams.cache._replace(
        memories=jax.tree.map(put, beams.cache.memories, encoded.memories),
        source=put(beams.cache.source, encoded.source),
    )
    return beam.insert(beams._replace(cache=cache), rows, limits, vocabulary)


@functools.partial(jax.jit, static_argnums=(0, 3, 4), donate_argnums=2)
def _advance(model, params, beams: Beams, config, vocabulary, wanted) -> Beams:
    def decode(tokens, positions, cache, index, mask):
        return model.apply(
            {"params": params}, tokens, positions, cache, index, mask, method="decode"
        )

    return beam.advance(decode, beams, config, vocabulary, wanted)


@functools.partial(jax.jit, static_argnums=1, donate_argnums=0)
def _harvest(beams: Beams, config):
    decided = (beams.limits > 0) & ~beam.live(beams, config)
    found = beam.results(beams), beams.lengths, beams.scores
    beams = beam.release(beams, config)
    return beams, ~beam.room(beams), decided, *found


@jax.jit
def _grow(beams: Beams) -> Beams:
    layers = jax.tree.map(lambda x: jnp.concatenate([x, x], axis=2), beams.cache.layers)
    return beam.grow(beams._replace(cache=beams.cache._replace(layers=layers)))
