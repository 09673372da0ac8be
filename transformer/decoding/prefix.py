"""Text that a model has read, kept so that any number of continuations go on from it.

Prompts of different lengths are rows padded at the end. A row's padding stays where it is in
the cache, hidden by its segment 0, and what follows is written behind it: positions, not places,
say what comes after what.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from transformer.models.cache import DecoderCache
from transformer.models.decoder import Decoder

Ids = Sequence[int]
_SMALLEST = 16


def bucket(size: int) -> int:
    """The least of 16, 24, 32, 48, 64, 96, ... that is at least `size`: few shapes to compile."""
    power = max(_SMALLEST, 1 << (size - 1).bit_length())
    return power * 3 // 4 if power > _SMALLEST and size <= power * 3 // 4 else power


def rows_of(count: int) -> int:
    """The power of two that so many rows are filled up to."""
    return 1 << (count - 1).bit_length()


def filled(values: ArrayLike, fill: int = 0) -> np.ndarray:
    """One value for each row, filled up to as many rows as are compiled for."""
    values = np.asarray(values)
    missing = rows_of(len(values)) - len(values)
    return np.pad(values, (0, missing), constant_values=fill)


@dataclass(frozen=True)
class Prefix:
    """Some rows of text that a decoder has read.

    Attributes:
        ids: of each row, without padding; the arrays may have more rows.
        hidden: ``[R, D]``, of each row's last token.
        cache: R rows of S places.
    """

    ids: list[list[int]]
    hidden: Any
    cache: DecoderCache

    @property
    def places(self) -> int:
        return self.cache.positions.shape[1]


def padded(
    rows: Sequence[Ids], count: int, width: int, pad: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids as int32 ``[count, width]``, and their lengths ``[count]``."""
    tokens = np.full((count, width), pad, np.int32)
    lengths = np.zeros(count, np.int32)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = ids
        lengths[row] = len(ids)
    return tokens, lengths


def read(
    model: Decoder,
    params: Any,
    rows: Sequence[Ids],
    prefix: Prefix | None = None,
    parents: Sequence[int] | None = None,
) -> Prefix:
    """Reads rows of ids, each after a row of `prefix` where one is given.

    Args:
        model: the decoder.
        params: its parameters.
        rows: checked ids; none of them may be empty unless it goes on from a prefix.
        prefix: what has been read before.
        parents: of each row, which one of the prefix it goes on from; None: the first.
    """
    count = rows_of(len(rows))
    tokens, lengths = padded(rows, count, bucket(max(map(len, rows))))
    if prefix is None:
        return Prefix([list(row) for row in rows], *_read(model, params, tokens, lengths))
    parents = parents if parents is not None else [0] * len(rows)
    origins = np.array([*parents, *[0] * (count - len(rows))], np.int32)
    offsets = np.array([len(prefix.ids[i]) for i in origins], np.int32)
    known = prefix.cache, prefix.hidden, origins, offsets
    ids = [[*prefix.ids[i], *row] for i, row in zip(parents, rows, strict=True)]
    return Prefix(ids, *_read(model, params, tokens, lengths, known))


@functools.partial(jax.jit, static_argnums=0)
def _read(model: Decoder, params, tokens, lengths, known=None):
    count, width = tokens.shape
    offsets, before = jnp.zeros(count, jnp.int32), None
    if known is None:
        cache, index = DecoderCache.empty(model.config, count, width), 0
    else:
        cache, before, origins, offsets = known
        index, before = cache.positions.shape[1], before[origins]
        cache = cache.fork(origins, index + width)
    hidden, cache = extend(model, params, tokens, lengths, offsets, cache, index)
    last = hidden[jnp.arange(count), jnp.maximum(lengths - 1, 0)]
    if before is not None:
        last = jnp.where(lengths[:, None] > 0, last, before)
    return last, cache


def extend(model: Decoder, params, tokens, lengths, offsets, cache: DecoderCache, index):
    """Rows padded at the end, read on from a cache (for use under jit).

    Args:
        model: the decoder.
        params: its parameters.
        tokens: int ``[B, T]``.
        lengths: int ``[B]``, tokens that are no padding.
        offsets: int ``[B]``, the position of each row's first token.
        cache: what was read before.
        index: int scalar, where the tokens' keys are written.

    Returns:
        ``[B, T, D]``, and the new cache.
    """
    places = jnp.arange(tokens.shape[1])
    real = places < lengths[:, None]
    # Padding keeps within the table of positions.
    positions = jnp.where(real, offsets[:, None] + places, 0)
    known = tokens, positions, cache, index, real.astype(jnp.int32)
    result: Any = model.apply({"params": params}, *known, method="decode")
    return result
