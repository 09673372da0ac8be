"""Scaled dot-product attention: one function for every architecture.

Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V        (paper, equation 1)
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt32

from transformer.functional.chunked_attention import chunked_attention
from transformer.functional.layers import dropout
from transformer.functional.masks import Mask
from transformer.functional.partition import Kernel, attention_kernel, by_shard

Implementation = Literal["auto", "plain", "chunked", "splash", "cudnn"]

# Where the logits of one head exceed this many entries, blocks beat the whole matrix in time on
# CPU (benchmarks/attention.py), and everywhere in memory.
_CHUNKED_FROM = 1024 * 1024

# Where both lengths reach this many tokens an accelerator's kernel is used, if it has one.
_KERNEL_FROM = 512


def attend(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K Hv"],
    *,
    mask: Mask | Bool[Array, "#B #N #T #S"] | None = None,
    bias: Float[Array, "#B #N #T #S"] | None = None,
    scale: float | None = None,
    dropout_rate: float = 0.0,
    dropout_key: PRNGKeyArray | UInt32[Array, "2"] | None = None,
    implementation: Implementation = "auto",
    return_weights: bool = False,
) -> Any:
    """Attends from T queries to S keys (paper section 3.2.1).

    Query head n reads key/value head ``n // (N / K)``. The softmax is taken in
    float32. A query that may see no key gets output 0 and gradient 0.

    Args:
        query: ``[B, T, N, H]``.
        key: ``[B, S, K, H]``, N a multiple of K.
        value: ``[B, S, K, Hv]``.
        mask: what each query may see: a `Mask`, or a boolean array, True = may attend.
        bias: added to the scaled logits before the softmax.
        scale: factor on the logits; None: ``H ** -0.5``.
        dropout_rate: rate at which attention weights are dropped.
        dropout_key: random key, needed where ``dropout_rate > 0``.
        implementation: "plain" holds the ``T x S`` logits; "chunked" never does
            (`transformer.functional.chunked_attention`), nor do "splash", a TPU's kernel,
            and "cudnn", an NVIDIA GPU's. "auto" picks by size, and a kernel where the devices
            of the mesh have it (`Placing`) and it can do what is asked. Dropout and
            ``return_weights`` need the weights and so the plain path.
        return_weights: also return the weights, ``[B, N, T, S]`` float32, before dropout.

    Returns:
        ``[B, T, N, Hv]`` in the type of ``query``, and the weights if asked for.

    Raises:
        ValueError: N is not a multiple of K, or a dropout rate comes without a key, or the
            kernel asked for cannot do this.
    """
    heads, kv_heads = query.shape[2], key.shape[2]
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads are not a multiple of {kv_heads} key/value heads")
    if dropout_rate > 0 and dropout_key is None:
        raise ValueError(f"attention dropout_rate = {dropout_rate} needs a dropout_key")
    if scale is None:
        scale = float(query.shape[-1] ** -0.5)
    if not (return_weights or dropout_rate > 0):
        if implementation == "auto":
            implementation = _fastest(query, key, value, mask, bias)
        if implementation in ("splash", "cudnn"):
            return _by_kernel(implementation, query, key, value, mask, bias, scale)
        if implementation == "chunked":
            return chunked_attention(query, key, value, mask=mask, bias=bias, scale=scale)
    return _plain(query, key, value, mask, bias, scale, dropout_rate, dropout_key, return_weights)


def _fastest(query, key, value, mask, bias) -> Implementation:
    kernel, lengths = attention_kernel(), (query.shape[1], key.shape[1])
    if kernel and min(lengths) >= _KERNEL_FROM and _fits(kernel, query, value, mask, bias):
        return kernel
    return "chunked" if lengths[0] * lengths[1] >= _CHUNKED_FROM else "plain"


def _fits(kernel: Kernel, query, value, mask, bias) -> bool:
    if bias is not None or not (mask is None or isinstance(mask, Mask)):
        return False
    if kernel == "splash":
        return mask is None or mask.by_index
    from transformer.functional.cudnn_attention import cudnn_fits

    return cudnn_fits(query, value, mask or Mask())


def _by_kernel(kernel: Kernel, query, key, value, mask, bias, scale):
    # Loading a kernel's module takes a third of a second, so it waits until one is used.
    if not _fits(kernel, query, value, mask, bias):
        raise ValueError(f"the kernel {kernel!r} cannot do this: its module says what it can")
    if kernel == "splash":
        from transformer.functional.splash_attention import splash_attention as attention
    else:
        from transformer.functional.cudnn_attention import cudnn_attention as attention
    mask = mask or Mask()
    rules = dataclasses.replace(mask, query_positions=None, key_positions=None)

    def run(query, key, value, query_segments, key_segments):
        part = dataclasses.replace(rules, query_segments=query_segments, key_segments=key_segments)
        return attention(query, key, value, mask=part, scale=scale)

    queries, keys = ("batch", None, "heads", None), ("batch", None, "kv_heads", None)
    segments = ("batch", None)
    run = by_shard(run, (queries, keys, keys, segments, segments), queries)
    return run(query, key, value, mask.query_segments, mask.key_segments)


def _plain(query, key, value, mask, bias, scale, dropout_rate, dropout_key, return_weights):
    batch, length, heads, _ = query.shape
    kv_heads = key.shape[2]

    def grouped(array):
        """``[B, N, ...]`` as ``[B, K, ...]``: the queries of all heads that share a key's."""
        return array.reshape(batch, kv_heads, -1, array.shape[-1])

    # Heads first and queries on the left: XLA on CPU then multiplies the heads-first keys and
    # values of a cache as they lie, without a transposed copy of them. An axis for the heads of a
    # group, even of size 1, would cost a third more.
    logits = scale * jnp.einsum(
        "bkth,bkhs->bkts",
        grouped(query.swapaxes(1, 2)),
        key.transpose(0, 2, 3, 1),
        preferred_element_type=jnp.float32,
    ).reshape(batch, heads, length, -1)
    if isinstance(mask, Mask):
        mask = mask.dense()
    if bias is not None:
        logits += bias
        allowed = logits > -jnp.inf  # a bias of -inf hides a key as a mask does
        mask = allowed if mask is None else mask & allowed
    if mask is not None:
        logits = jnp.where(mask, logits, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(logits, axis=-1)
    if mask is not None:
        # A row without a visible key has a uniform softmax; it, and its gradient, become 0.
        weights = jnp.where(mask.any(axis=-1, keepdims=True), weights, 0.0)
    used = weights
    if dropout_rate > 0:
        used = dropout(weights, dropout_rate, dropout_key)
    output = jnp.einsum(
        "bkts,bksv->bktv",
        grouped(used.astype(value.dtype)),
        value.swapaxes(1, 2),
        preferred_element_type=jnp.float32,
    )
    output = output.reshape(batch, heads, length, -1).swapaxes(1, 2).astype(query.dtype)
    return (output, weights) if return_weights else output
