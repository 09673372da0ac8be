"""Exact top-k over a long axis, by groups."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_SMALLEST_GROUP, _LARGEST_GROUP = 64, 256


def grouped_top_k(
    logits: Float[Array, "B W V"],
    offsets: Float[Array, "B W"],
    k: int,
    excluded: tuple[int, ...] = (),
) -> tuple[Float[Array, "B k"], Int[Array, "B k"]]:
    """The ``k`` largest of ``offsets[b, w] + logits[b, w, v]`` for each b.

    The k largest entries lie in the k groups of neighbours with the largest maxima, so one
    pass over the logits and two sorts of short rows find them; sorting whole rows takes many
    times as long on a CPU. Of equal entries the first in the order (w, v) comes first,
    because the chosen groups are kept in that order.

    Args:
        logits: ``[B, W, V]``; W * V is at least k.
        offsets: ``[B, W]``, finite or -inf.
        k: how many.
        excluded: values of v that do not count (they come last, as -inf).

    Returns:
        The values in falling order, and their indices ``w * V + v``.
    """
    batch, _, vocab = logits.shape
    size = _group_size(vocab)
    maxima = _group_maxima(logits, size, excluded) + offsets[..., None]
    groups = maxima.shape[-1]
    maxima = maxima.reshape(batch, -1)
    _, chosen = jax.lax.top_k(maxima, min(k, maxima.shape[-1]))
    chosen = jnp.sort(chosen, axis=-1)[..., None]

    row, token = chosen // groups, chosen % groups * size + jnp.arange(size)
    values = logits[jnp.arange(batch)[:, None, None], row, jnp.minimum(token, vocab - 1)]
    values += jnp.take_along_axis(offsets, row[..., 0], axis=1)[..., None]
    counts = (token < vocab) & (token[..., None] != jnp.array(excluded, int)).all(axis=-1)
    values = jnp.where(counts, values, -jnp.inf).reshape(batch, -1)
    best, place = jax.lax.top_k(values, k)
    return best, jnp.take_along_axis((row * vocab + token).reshape(batch, -1), place, axis=1)


def _group_size(vocab: int) -> int:
    """The divisor of `vocab` of a good size, so that no group is cut; else any good size."""
    sizes = range(_SMALLEST_GROUP, _LARGEST_GROUP + 1)
    whole = [size for size in sizes if vocab % size == 0]
    return min(whole or [128], key=lambda size: abs(size - 128))


def _group_maxima(logits: Array, size: int, excluded: tuple[int, ...]) -> Array:
    """``[B, W, V]`` to ``[B, W, ceil(V / size)]``."""
    *rows, vocab = logits.shape
    whole = vocab // size * size
    maxima = logits[..., :whole].reshape(*rows, -1, size).max(axis=-1)
    if whole < vocab:
        rest = logits[..., whole:].max(axis=-1, keepdims=True)
        maxima = jnp.concatenate([maxima, rest], axis=-1)
    # Only the groups with an excluded id are looked at again: masking all logits would write
    # a copy of them.
    for group in sorted({v // size for v in excluded}):
        start = group * size
        part = logits[..., start : start + size]
        gone = [v - start for v in excluded if v // size == group]
        maxima = maxima.at[..., group].set(part.at[..., jnp.array(gone)].set(-jnp.inf).max(axis=-1))
    return maxima
