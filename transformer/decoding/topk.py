"""Exact top-k over a long axis, by groups."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

_GROUP = 128


def grouped_top_k(
    logits: Float[Array, "B W V"], offsets: Float[Array, "B W"], k: int
) -> tuple[Float[Array, "B k"], Int[Array, "B k"]]:
    """The ``k`` largest of ``offsets[b, w] + logits[b, w, v]`` for each b.

    The k largest entries lie in the k groups of neighbours with the largest maxima, so
    one pass over the logits and two sorts of short rows find them; sorting all of them
    takes several times as long on a CPU. Of equal entries the first in the order (w, v)
    comes first, because the chosen groups are kept in that order.

    Args:
        logits: ``[B, W, V]``; W * V is at least k.
        offsets: ``[B, W]``, finite or -inf.
        k: how many.

    Returns:
        The values in falling order, and their indices ``w * V + v``.
    """
    batch, width, vocab = logits.shape
    groups = -(-vocab // _GROUP)
    whole = vocab // _GROUP * _GROUP
    maxima = logits[..., :whole].reshape(batch, width, -1, _GROUP).max(axis=-1)
    if whole < vocab:
        rest = logits[..., whole:].max(axis=-1, keepdims=True)
        maxima = jnp.concatenate([maxima, rest], axis=-1)
    maxima = (maxima + offsets[..., None]).reshape(batch, width * groups)
    _, chosen = jax.lax.top_k(maxima, min(k, width * groups))
    chosen = jnp.sort(chosen, axis=-1)[..., None]
    row, token = chosen // groups, chosen % groups * _GROUP + jnp.arange(_GROUP)
    values = logits[jnp.arange(batch)[:, None, None], row, jnp.minimum(token, vocab - 1)]
    values += jnp.take_along_axis(offsets, row[..., 0], axis=1)[..., None]
    values = jnp.where(token < vocab, values, -jnp.inf)
    best, place = jax.lax.top_k(values.reshape(batch, -1), k)
    indices = (row * vocab + token).reshape(batch, -1)
    return best, jnp.take_along_axis(indices, place, axis=1)
