"""Attention by cuDNN's kernel for NVIDIA GPUs, through `jax.nn.dot_product_attention`.

A flash attention (Dao et al. 2022), with memory linear in T and S. It knows indices and lengths
only: what a mask shows is brought to the front of each row.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.functional.masks import Mask

_WIDEST_HEAD = 128


def cudnn_fits(query: Array, value: Array, mask: Mask) -> bool:
    """Whether `cudnn_attention` can compute this.

    Of half precision, with heads of a multiple of 8 up to 128 dimensions, keys and values alike;
    rules by index; padding, but not several segments; a window only of causal rows without padding.
    """
    width = query.shape[-1]
    segmented = mask.key_segments is not None
    return (
        query.dtype in (jnp.bfloat16, jnp.float16)
        and width % 8 == 0
        and width <= _WIDEST_HEAD
        and value.shape[-1] == width
        and mask.by_index
        and not (segmented and mask.key_segments.dtype != bool)
        and (mask.window is None or (mask.causal and not segmented))
    )


def cudnn_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K H"],
    *,
    mask: Mask | None = None,
    scale: float,
    program: Literal["cudnn", "xla"] = "cudnn",
) -> Float[Array, "B T N H"]:
    """Equals the plain path of `transformer.functional.attend` to rounding.

    Arguments as there, of a kind that `cudnn_fits`.

    Args:
        query: ``[B, T, N, H]``.
        key: ``[B, S, K, H]``.
        value: ``[B, S, K, H]``.
        mask: what each query may see.
        scale: factor on the logits.
        program: "xla" computes the same call without the kernel, to test it on any device.
    """
    mask = mask or Mask()
    visible, queries, query_lengths, key_lengths = mask.key_segments, None, None, None
    if visible is not None:
        keys = _visible_first(visible)
        key, value = _reorder(key, keys), _reorder(value, keys)
        # A row of no keys may not be: it is given one, and its output is 0 below.
        key_lengths = jnp.maximum(visible.sum(axis=1), 1).astype(jnp.int32)
        if mask.causal:  # by index, so queries go where their keys go
            queries = _visible_first(mask.query_segments)
            query, query_lengths = _reorder(query, queries), key_lengths
    output = jax.nn.dot_product_attention(
        query,
        key,
        value,
        scale=scale,
        is_causal=mask.causal,
        query_seq_lengths=query_lengths,
        key_value_seq_lengths=key_lengths,
        local_window_size=None if mask.window is None else (mask.window - 1, 0),
        implementation=program,
    )
    if queries is not None:
        output = _reorder(output, jnp.argsort(queries, axis=1))
    return jnp.where(mask.seeing()[..., None, None], output, 0)


def _visible_first(visible: Bool[Array, "B S"]) -> Int[Array, "B S"]:
    """The order that brings what is visible to the front, and else leaves all as it is."""
    return jnp.argsort(~visible, axis=1, stable=True)


@jax.custom_vjp
def _reorder(array, order):
    """``[B, S, ...]`` with the tokens of each row in that order, a permutation."""
    return jax.vmap(lambda row, places: row[places])(array, order)


_reorder.defvjp(
    lambda array, order: (_reorder(array, order), order),
    # The gradient of a gather would be a scatter, which GPUs take one entry at a time.
    lambda order, gradient: (_reorder(gradient, jnp.argsort(order, axis=1)), None),
)
