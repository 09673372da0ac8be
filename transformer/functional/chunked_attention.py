"""Exact attention in blocks, without the T x S matrix.

The softmax is accumulated over blocks of keys with a running maximum and sum
(Milakov & Gimelshein 2018; Rabe & Staats 2021), and the backward pass rebuilds
each block's weights from the saved log-sum-exp (Dao et al. 2022, algorithm 4).
Blocks in which the mask shows nothing are skipped. Memory is linear in T and S.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from transformer.functional.masks import Mask

BLOCK = 512


class _Tiles(NamedTuple):
    """The operands, heads grouped and lengths padded to whole blocks."""

    query: Any  # [B, K, G, T, H]
    key: Any  # [B, K, S, H]
    value: Any  # [B, K, S, Hv]
    mask: Any  # Mask, bool [b, k, g, t, s], or None
    bias: Any  # float [b, k, g, t, s], or None


def chunked_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K Hv"],
    *,
    mask: Mask | Bool[Array, "#B #N #T #S"] | None = None,
    bias: Float[Array, "#B #N #T #S"] | None = None,
    scale: float,
    block: int = BLOCK,
) -> Float[Array, "B T N Hv"]:
    """Equals the plain path of `transformer.functional.attend` to float32 rounding.

    Arguments as there; ``block`` is the number of queries and of keys in a block.
    The gradient reaches query, key, value and bias.
    """
    return _attention(query, key, value, bias, mask, scale, block)


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _attention(query, key, value, bias, mask, scale, block):
    return _forward(query, key, value, bias, mask, scale, block)[0]


def _forward(query, key, value, bias, mask, scale, block):
    tiles, queries, keys = _tile(query, key, value, bias, mask, block)
    batch, kv_heads, groups, padded, _ = tiles.query.shape
    key_blocks = tiles.key.shape[2] // keys
    rows = (batch, kv_heads, groups, queries)

    def query_block(_, i):
        q = _rows(tiles.query, i, queries)

        def key_block(j, carry):
            visible = _visible(tiles, i, j, queries, keys, key.shape[1])

            def accumulate(carry):
                total, maximum, output = carry
                logits = _logits(tiles, q, i, j, queries, keys, scale)
                logits = jnp.where(visible, logits, -jnp.inf)
                new_maximum = jnp.maximum(maximum, logits.max(axis=-1))
                # A row that has seen nothing yet has maximum -inf: shift it by 0 instead.
                shift = jnp.where(jnp.isfinite(new_maximum), new_maximum, 0.0)
                weights = jnp.exp(logits - shift[..., None])
                rescale = jnp.exp(maximum - shift)
                values = _keys(tiles.value, j, keys)
                update = jnp.einsum(
                    "bkgts,bksv->bkgtv",
                    weights.astype(values.dtype),
                    values,
                    preferred_element_type=jnp.float32,
                )
                return (
                    total * rescale + weights.sum(axis=-1),
                    new_maximum,
                    output * rescale[..., None] + update,
                )

            return jax.lax.cond(visible.any(), accumulate, lambda carry: carry, carry)

        start = (
            jnp.zeros(rows, jnp.float32),
            jnp.full(rows, -jnp.inf, jnp.float32),
            jnp.zeros((*rows, tiles.value.shape[-1]), jnp.float32),
        )
        total, maximum, output = jax.lax.fori_loop(0, key_blocks, key_block, start)
        seen = total > 0
        output = output / jnp.where(seen, total, 1.0)[..., None]
        # +inf makes every rebuilt weight of a row that sees nothing exp(-inf) = 0.
        log_sum = jnp.where(seen, maximum + jnp.log(jnp.where(seen, total, 1.0)), jnp.inf)
        return None, (output, log_sum)

    _, (output, log_sum) = jax.lax.scan(query_block, None, jnp.arange(padded // queries))
    output = _untile(output, query.shape[1]).astype(query.dtype)
    return output, (query, key, value, bias, mask, output, log_sum)


def _backward(scale, block, residuals, gradient):
    query, key, value, bias, mask, output, log_sums = residuals
    tiles, queries, keys = _tile(query, key, value, bias, mask, block)
    batch, kv_heads, _, padded, head_dim = tiles.query.shape
    query_blocks, key_blocks = padded // queries, tiles.key.shape[2] // keys
    gradient = _group_queries(gradient, kv_heads, queries)
    output = _group_queries(output, kv_heads, queries)
    # Row sums of dP * P, by way of dO * O (Dao et al. 2022, appendix B.4).
    correction = (gradient.astype(jnp.float32) * output.astype(jnp.float32)).sum(axis=-1)

    def key_block(carry, j):
        k, v = _keys(tiles.key, j, keys), _keys(tiles.value, j, keys)

        def query_block(i, carry):
            visible = _visible(tiles, i, j, queries, keys, key.shape[1])

            def accumulate(carry):
                d_query, d_bias, d_key, d_value = carry
                q, d_out = _rows(tiles.query, i, queries), _rows(gradient, i, queries)
                logits = _logits(tiles, q, i, j, queries, keys, scale)
                weights = jnp.where(visible, jnp.exp(logits - log_sums[i][..., None]), 0.0)
                d_value += _sum("bkgts,bkgtv->bksv", weights.astype(d_out.dtype), d_out)
                d_weights = _sum("bkgtv,bksv->bkgts", d_out, v)
                rows = jax.lax.dynamic_slice_in_dim(correction, i * queries, queries, axis=3)
                d_logits = weights * (d_weights - rows[..., None])
                if d_bias is not None:
                    d_bias = _add_block(d_bias, d_logits, i, j, queries, keys)
                d_logits = (d_logits * scale).astype(q.dtype)
                d_key += _sum("bkgts,bkgth->bksh", d_logits, q)
                update = _rows(d_query, i, queries) + _sum("bkgts,bksh->bkgth", d_logits, k)
                d_query = jax.lax.dynamic_update_slice_in_dim(d_query, update, i * queries, axis=3)
                return d_query, d_bias, d_key, d_value

            return jax.lax.cond(visible.any(), accumulate, lambda carry: carry, carry)

        d_query, d_bias = carry
        start = (
            d_query,
            d_bias,
            jnp.zeros(k.shape, jnp.float32),
            jnp.zeros(v.shape, jnp.float32),
        )
        d_query, d_bias, d_key, d_value = jax.lax.fori_loop(0, query_blocks, query_block, start)
        return (d_query, d_bias), (d_key, d_value)

    start = (
        jnp.zeros(tiles.query.shape, jnp.float32),
        None if bias is None else jnp.zeros(tiles.bias.shape, jnp.float32),
    )
    (d_query, d_bias), (d_key, d_value) = jax.lax.scan(key_block, start, jnp.arange(key_blocks))
    d_query = d_query.transpose(0, 3, 1, 2, 4).reshape(batch, padded, -1, head_dim)
    d_query = d_query[:, : query.shape[1]].astype(query.dtype)
    d_key = _join_keys(d_key, key.shape[1]).astype(key.dtype)
    d_value = _join_keys(d_value, value.shape[1]).astype(value.dtype)
    if bias is not None:
        d_bias = _trim_bias(d_bias, bias.shape).astype(bias.dtype)
    return d_query, d_key, d_value, d_bias, None


_attention.defvjp(_forward, _backward)


def _sum(equation, a, b):
    return jnp.einsum(equation, a, b, preferred_element_type=jnp.float32)


def _tile(query, key, value, bias, mask, block):
    """Groups heads, pads lengths to whole blocks; returns tiles, queries and keys a block."""
    length, kv_heads = query.shape[1], key.shape[2]
    queries, keys = min(block, length), min(block, key.shape[1])
    tiles = _Tiles(
        _group_queries(query, kv_heads, queries),
        _pad(key.transpose(0, 2, 1, 3), 2, keys),
        _pad(value.transpose(0, 2, 1, 3), 2, keys),
        _tile_mask(mask, kv_heads, queries, keys),
        _tile_array(bias, kv_heads, queries, keys),
    )
    return tiles, queries, keys


def _group_queries(array, kv_heads, queries):
    """``[B, T, N, H]`` to ``[B, K, G, T padded, H]``."""
    batch, length, heads, dim = array.shape
    array = array.reshape(batch, length, kv_heads, heads // kv_heads, dim)
    return _pad(array.transpose(0, 2, 3, 1, 4), 3, queries)


def _tile_mask(mask, kv_heads, queries, keys):
    if not isinstance(mask, Mask):
        return _tile_array(mask, kv_heads, queries, keys)

    def pad(vector, multiple):
        return None if vector is None else _pad(vector, 1, multiple)

    return Mask(
        pad(mask.query_positions, queries),
        pad(mask.key_positions, keys),
        pad(mask.query_segments, queries),
        pad(mask.key_segments, keys),
        mask.causal,
        mask.window,
    )


def _tile_array(array, kv_heads, queries, keys):
    """A mask or bias ``[b, n, t, s]`` as ``[b, k, g, t, s]``, varying lengths padded."""
    if array is None:
        return None
    batch, heads, length, width = array.shape
    split = (1, 1) if heads == 1 else (kv_heads, heads // kv_heads)
    array = array.reshape(batch, *split, length, width)
    if length > 1:
        array = _pad(array, 3, queries)
    return _pad(array, 4, keys) if width > 1 else array


def _pad(array, axis, multiple):
    missing = -array.shape[axis] % multiple
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return jnp.pad(array, widths)


def _rows(array, i, queries):
    return jax.lax.dynamic_slice_in_dim(array, i * queries, queries, axis=3)


def _keys(array, j, keys):
    return jax.lax.dynamic_slice_in_dim(array, j * keys, keys, axis=2)


def _block(array, i, j, queries, keys):
    """Block (i, j) of a tiled mask or bias; an axis of size 1 is left to broadcast."""
    if array.shape[3] > 1:
        array = _rows(array, i, queries)
    if array.shape[4] > 1:
        array = jax.lax.dynamic_slice_in_dim(array, j * keys, keys, axis=4)
    return array


def _add_block(d_bias, d_logits, i, j, queries, keys):
    """Adds a block's gradient to a bias, summed over the axes the bias is broadcast on."""
    old = _block(d_bias, i, j, queries, keys)
    summed = tuple(a for a in range(5) if old.shape[a] == 1 and d_logits.shape[a] > 1)
    new = old + d_logits.sum(axis=summed, keepdims=True)
    at = (
        0,
        0,
        0,
        i * queries if d_bias.shape[3] > 1 else 0,
        j * keys if d_bias.shape[4] > 1 else 0,
    )
    return jax.lax.dynamic_update_slice(d_bias, new, at)


def _trim_bias(d_bias, shape):
    """A tiled bias gradient without its padding, in the shape of the bias."""
    return d_bias[..., : shape[2], : shape[3]].reshape(shape)


def _logits(tiles, q, i, j, queries, keys, scale):
    logits = scale * _sum("bkgth,bksh->bkgts", q, _keys(tiles.key, j, keys))
    if tiles.bias is not None:
        logits += _block(tiles.bias, i, j, queries, keys)
    return logits


def _visible(tiles, i, j, queries, keys, length):
    """What block (i, j) may see; the keys that pad the last block are hidden."""
    inside = (j * keys + jnp.arange(keys) < length)[None, None, None, None]
    if tiles.mask is None:
        return inside
    if isinstance(tiles.mask, Mask):
        block = tiles.mask.block((i * queries, queries), (j * keys, keys))
        return block[:, :, None] & inside
    return _block(tiles.mask, i, j, queries, keys) & inside


def _untile(blocks, length):
    """``[blocks, B, K, G, t, H]`` to ``[B, T, N, H]``."""
    count, batch, kv_heads, groups, rows, dim = blocks.shape
    joined = blocks.transpose(1, 0, 4, 2, 3, 5).reshape(batch, count * rows, kv_heads * groups, dim)
    return joined[:, :length]


def _join_keys(blocks, length):
    """``[blocks, B, K, s, H]`` to ``[B, S, K, H]``."""
    count, batch, kv_heads, rows, dim = blocks.shape
    joined = blocks.transpose(1, 0, 3, 2, 4).reshape(batch, count * rows, kv_heads, dim)
    return joined[:, :length]
