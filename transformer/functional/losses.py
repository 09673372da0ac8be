"""Label-smoothed cross-entropy, as sums to be divided by the weight of the *global* batch.

The smoothed target gives every word of the vocabulary, the right one included,
``epsilon / V``, and the right one ``1 - epsilon`` besides (Szegedy et al. 2016,
section 7; paper section 5.4):

    loss = -(1 - epsilon) log p[target] - (epsilon / V) sum_v log p[v]
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from transformer.functional.partition import batch_shards, constrain

# Rows of logits alive at a time: [512, 32,000] float32 is 64 MB. Of a small vocabulary more rows,
# up to so many logits (4 MB): a batch of characters is then one piece without padding.
_ROWS = 512
_LOGITS = 2**20


class LossSums(NamedTuple):
    """Sums over the tokens of a batch; a mean is taken only at the very end.

    Attributes:
        loss: weighted sum of the smoothed cross-entropy, in nats. The gradient flows
            through this one alone.
        nll: weighted sum of ``-log p[target]``, in nats; exp(nll / weight) is the perplexity.
        weight: sum of the weights.
    """

    loss: Float[Array, ""]
    nll: Float[Array, ""]
    weight: Float[Array, ""]


def cross_entropy(
    logits: Float[Array, "*M V"],
    targets: Int[Array, "*M"],
    weights: Float[Array, "*M"] | None = None,
    label_smoothing: float = 0.0,
) -> LossSums:
    """Sums of the label-smoothed cross-entropy, in float32 whatever the type of ``logits``.

    A token of weight 0, such as padding, adds exactly 0 even where its logits are
    infinite. With logits [2, 0, 0, 0, 0], target 0 and epsilon 0.1 the loss is 0.5927.

    Args:
        logits: unnormalised, ``[..., V]``.
        targets: ids in [0, V).
        weights: of each token; None: 1.
        label_smoothing: epsilon.
    """
    if weights is None:
        weights = jnp.ones(targets.shape, jnp.float32)
    logits = logits.astype(jnp.float32)
    log_sum = jax.nn.logsumexp(logits, axis=-1)
    loss, nll = _token_losses(logits, log_sum, targets, label_smoothing)
    counted = weights > 0
    nll = jax.lax.stop_gradient(jnp.where(counted, weights * nll, 0.0).sum())
    return LossSums(jnp.where(counted, weights * loss, 0.0).sum(), nll, weights.sum())


def linear_cross_entropy(
    hidden: Float[Array, "M D"],
    embedding: Float[Array, "V D"],
    targets: Int[Array, " M"],
    weights: Float[Array, " M"],
    label_smoothing: float = 0.0,
) -> LossSums:
    """`cross_entropy` of the logits ``hidden @ embedding.T``, never holding all of them.

    Logits are made a few hundred rows at a time, and differentiated while they are at
    hand, so neither the forward nor the backward pass keeps an ``[M, V]`` array.
    """
    sums: Any = _sums(hidden, embedding, targets, weights, label_smoothing)
    return LossSums(sums[0], jax.lax.stop_gradient(sums[1]), weights.sum())


def _token_losses(logits, log_sum, targets, label_smoothing):
    picked = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nll = log_sum - picked
    if label_smoothing == 0:
        return nll, nll
    uniform = log_sum - logits.mean(axis=-1)
    return (1 - label_smoothing) * nll + label_smoothing * uniform, nll


def _chunks(array, rows, parts):
    """``[M, ...]`` to ``[chunks, parts * rows, ...]``: each with rows of all the devices, among
    which the M rows lie in equal parts, so that all are at work."""
    split = array.reshape(parts, -1, *array.shape[1:])
    missing = -split.shape[1] % rows
    split = jnp.pad(split, [(0, 0), (0, missing)] + [(0, 0)] * (array.ndim - 1))
    split = split.reshape(parts, -1, rows, *array.shape[1:]).swapaxes(0, 1)
    chunks = split.reshape(-1, parts * rows, *array.shape[1:])
    return constrain(chunks, None, "batch", *[None] * (array.ndim - 1))


def _joined(chunks, count, parts):
    """The inverse of `_chunks`, of ``count`` rows."""
    split = chunks.reshape(len(chunks), parts, -1, *chunks.shape[2:]).swapaxes(0, 1)
    split = split.reshape(parts, -1, *chunks.shape[2:])[:, : count // parts]
    return split.reshape(count, *chunks.shape[2:])


def _chunked(hidden, targets, weights, vocabulary):
    parts = batch_shards()
    count = len(hidden) // parts
    # Pieces of nearly one size, so that little of the last one is padding.
    pieces = -(-count // max(_ROWS, _LOGITS // vocabulary))
    rows = min(count, 8 * -(-count // (8 * pieces)))
    return tuple(_chunks(array, rows, parts) for array in (hidden, targets, weights))


def _gathered(embedding, dtype):
    """All columns on every device once, instead of once for each piece of rows."""
    return constrain(embedding.astype(dtype), "vocab", None)


def _project(rows, embedding):
    return jax.lax.dot_general(
        rows, embedding, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _sums(hidden, embedding, targets, weights, label_smoothing):
    table = _gathered(embedding, hidden.dtype)

    def add(sums, chunk):
        rows, target, weight = chunk
        logits = _project(rows, table)
        log_sum = jax.nn.logsumexp(logits, axis=-1)
        loss, nll = _token_losses(logits, log_sum, target, label_smoothing)
        return (sums[0] + weight @ loss, sums[1] + weight @ nll), None

    zero = jnp.zeros((), jnp.float32)
    chunks = _chunked(hidden, targets, weights, len(embedding))
    return jax.lax.scan(add, (zero, zero), chunks)[0]


def _sums_forward(hidden, embedding, targets, weights, label_smoothing):
    table = _gathered(embedding, hidden.dtype)
    vocabulary = embedding.shape[0]

    def add(carry, chunk):
        loss_sum, nll_sum, d_table = carry
        rows, target, weight = chunk
        logits = _project(rows, table)
        # One exponential serves the sum and the gradient.
        maximum = logits.max(axis=-1)
        exponentials = jnp.exp(logits - maximum[:, None])
        total = exponentials.sum(axis=-1)
        loss, nll = _token_losses(logits, maximum + jnp.log(total), target, label_smoothing)
        # d loss / d logits = softmax - smoothed target, by row.
        d_logits = exponentials * (weight / total)[:, None]
        d_logits -= (label_smoothing / vocabulary) * weight[:, None]
        is_target = jnp.arange(vocabulary) == target[:, None]
        d_logits -= jnp.where(is_target, (1 - label_smoothing) * weight[:, None], 0.0)
        d_logits = d_logits.astype(rows.dtype)
        d_rows = d_logits @ table
        d_table += jax.lax.dot_general(
            d_logits, rows, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
        )
        return (loss_sum + weight @ loss, nll_sum + weight @ nll, d_table), d_rows

    zero = jnp.zeros((), jnp.float32)
    start = (zero, zero, jnp.zeros(embedding.shape, jnp.float32))
    chunks = _chunked(hidden, targets, weights, vocabulary)
    (loss, nll, d_table), d_rows = jax.lax.scan(add, start, chunks)
    d_hidden = _joined(d_rows, len(hidden), batch_shards())
    return (loss, nll), (d_hidden, d_table.astype(embedding.dtype))


def _sums_backward(label_smoothing, residuals, cotangents):
    d_hidden, d_table = residuals
    scale = cotangents[0]
    return (
        (scale * d_hidden).astype(d_hidden.dtype),
        (scale * d_table).astype(d_table.dtype),
        None,
        None,
    )


_sums.defvjp(_sums_forward, _sums_backward)
