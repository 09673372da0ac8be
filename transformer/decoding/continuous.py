"""Many sources through a batch of fixed size: a decided sentence makes room for the next.

Few shapes are compiled, and none for a particular sentence. Sources are padded to powers of
two; those of a width that cannot fill a batch ride with somewhat wider ones. A full batch has
three places in the cache for two source tokens, which is seldom too few. Sentences that need
more, and the last few, which would keep a whole batch waiting, begin again at the end, in a
batch with all the places their length limits allow.
"""

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import DecodeConfig
from transformer.decoding import beam
from transformer.decoding.beam import Beams, Vocabulary
from transformer.decoding.prefix import rows_of
from transformer.functional.partition import on_mesh
from transformer.models.cache import spread
from transformer.models.seq2seq import Cache, Seq2Seq

Output = tuple[list[int], float]
"""Token ids without the end symbol, and their score."""
Progress = Callable[[int, int], None]
"""Called with (sources done, sources in all)."""

_NARROWEST = 16
# How many times its own width a source may be padded to.
_MOST_PADDED = 4
# Source tokens held at once, padding included: bounds the memory of very long lines.
_MOST_TOKENS = 16_384
# On CPU a step's many small operations do not gain by a second core, while two halves of the
# batch, each in a thread of its own, run side by side in 0.6 of the time. Smaller parts would
# read the weights too often.
_ROWS_OF_A_STREAM = 32


def decode_all(
    model: Seq2Seq,
    params: Any,
    sources: Sequence[Sequence[int]],
    config: DecodeConfig,
    vocabulary: Vocabulary,
    n_best: int = 1,
    progress: Progress | None = None,
) -> list[list[Output]]:
    """The best outputs of every source, best first.

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
    found: dict[int, list[Output]] = {}
    lock, stopped = threading.Lock(), threading.Event()

    def run(which: list[int], rows: int, width: int, places: int, leave: int) -> None:
        # Longest first: at the end, when the batch runs empty, the short ones are left.
        queue = deque(sorted(which, key=lambda i: -len(sources[i])))
        streams = _streams(rows)

        def stream() -> None:
            batch = _Batch(
                model, params, config, vocabulary, n_best, rows // streams, width, places
            )
            if streams > 1:
                with lock:  # The first one compiles, the others find the programs.
                    batch.insert({})
                    batch.advance(0)
            while not stopped.is_set():
                with lock:
                    needed = min(batch.intake, len(queue))
                    taken = [queue.popleft() for _ in range(needed) if len(batch.free) >= needed]
                if taken:
                    batch.insert({i: sources[i] for i in taken})
                    continue
                wanted = needed or len(batch.owners) - leave // streams
                if wanted <= 0:
                    return
                outputs = batch.advance(wanted)
                with lock:
                    found.update(outputs)
                    if progress is not None:
                        progress(len(found), len(sources))

        with ThreadPoolExecutor(streams) as pool:
            try:
                for done in as_completed([pool.submit(stream) for _ in range(streams)]):
                    done.result()
            finally:  # After an interrupt, or a failure of one, the others end soon.
                stopped.set()
        stopped.clear()

    def waiting(width: int) -> list[int]:
        return [i for i, s in enumerate(sources) if i not in found and len(s) <= width]

    longest = max(map(len, sources), default=0)
    width = _NARROWEST
    while len(found) < len(sources):
        most = min(config.batch_size, max(1, _MOST_TOKENS // width))
        if len(waiting(width)) >= most:
            places = min(width * 3 // 2, width + config.extra_length)
            run(waiting(width), most, width, places, leave=most // 8)
        rest = waiting(width)
        if rest and (width >= longest or waiting(width // _MOST_PADDED)):
            rows = min(most, rows_of(len(rest)))
            run(rest, rows, width, width + config.extra_length, leave=0)
        width *= 2
    return [found[i] for i in range(len(sources))]


class _Batch:
    """The device's state, and who sits in which row."""

    def __init__(
        self, model, params, config, vocabulary, n_best, rows: int, width: int, places: int
    ):
        self.model, self.params = model, params
        self.config, self.vocabulary = config, vocabulary
        self.width = width
        self.intake = max(1, rows // 8)
        self.owners: dict[int, int] = {}
        self.free = list(range(rows))
        self.beams = _idle(model, params, config, n_best, rows, width, places)

    def insert(self, sources: dict[int, Sequence[int]]) -> None:
        """Encodes at most `intake` sources and begins their search."""
        tokens = np.full((self.intake, self.width), self.model.config.pad_id, np.int32)
        limits = np.zeros(self.intake, np.int32)
        rows = np.full(self.intake, len(self.free) + len(self.owners), np.int32)
        for slot, (i, source) in enumerate(sources.items()):
            tokens[slot, : len(source)] = source
            limits[slot] = len(source) + self.config.extra_length
            rows[slot] = row = self.free.pop()
            self.owners[row] = i
        encoded = _encode(self.model, self.params, tokens)
        self.beams = _insert(self.beams, encoded, rows, limits, self.vocabulary)

    def advance(self, wanted: int) -> dict[int, list[Output]]:
        """Some steps, until `wanted` sentences are decided or one needs more places at most.

        Returns the outputs of those decided; those that need more places are dropped.
        """
        self.beams = _advance(
            self.model, self.params, self.beams, self.config, self.vocabulary, wanted
        )
        self.beams, *results = _harvest(self.beams, self.config)
        decided, outgrown, tokens, lengths, scores = jax.device_get(results)
        outputs = {}
        for row in np.flatnonzero(decided | outgrown).tolist():
            self.free.append(row)
            i = self.owners.pop(row)
            if decided[row]:
                outputs[i] = [
                    (ids[: length - 1].tolist(), float(score))
                    for ids, length, score in zip(
                        tokens[row], lengths[row], scores[row], strict=True
                    )
                    if length > 0
                ]
        return outputs


def _streams(rows: int) -> int:
    if jax.default_backend() != "cpu" or on_mesh():
        return 1
    return max(1, min(_cores(), rows // _ROWS_OF_A_STREAM))


def _cores() -> int:
    """Those this process may use, where the system says so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4, 5, 6))
def _idle(model, params, config, n_best, rows, width, places) -> Beams:
    source = jax.ShapeDtypeStruct((rows, width), jnp.int32)
    start = functools.partial(model.apply, capacity=places * config.beam_size, method="start")
    cache = jax.eval_shape(start, {"params": params}, source)
    cache = spread(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), cache))
    return beam.idle(rows, places, config, n_best, cache)


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

    return beam.advance(decode, beams, config, vocabulary, wanted, beam.STEPS)


@functools.partial(jax.jit, static_argnums=1, donate_argnums=0)
def _harvest(beams: Beams, config):
    live = beam.live(beams, config)
    decided, outgrown = (beams.limits > 0) & ~live, live & beam.full(beams)
    results = beam.results(beams), beams.lengths, beams.scores
    return beam.release(beams, decided | outgrown), decided, outgrown, *results
