"""The layers between the attentions, as functions of their parameters."""

import functools
import math
import operator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

# Up to so many vectors a table is the better left operand of their product.
_FEW_ROWS = 32


def linear(
    x: Float[Array, "*M D"],
    kernel: Float[Array, "D F"],
    bias: Float[Array, " F"] | None = None,
) -> Float[Array, "*M F"]:
    """``x W + b`` in the type of ``x``.

    The product is taken on two-dimensional operands: with ``[B, T, D]`` XLA on CPU
    puts transposing copies into the gradient of the kernel and a training step takes
    half as long again.
    """
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) == 1 and jax.default_backend() == "cpu":
        y = _one_row(rows[0], kernel.astype(x.dtype))
    else:
        y = rows @ kernel.astype(x.dtype)
    if bias is not None:
        y += bias.astype(x.dtype)
    return y.reshape(*x.shape[:-1], kernel.shape[1])


def _one_row(x: Float[Array, " D"], kernel: Float[Array, "D F"]) -> Float[Array, " F"]:
    """``x W`` by blocks of W's rows, each block contiguous in memory.

    Reading W is all the work. XLA on CPU gives each of its tasks some columns of W, in
    strides from end to end of it; with a task for each block, products of GPT-2's shapes went
    from 59-77% to 78-94% of the memory's bandwidth (jax 0.10, two cores).
    """
    blocks = math.gcd(len(x), 8)
    parts = jnp.einsum(
        "nd,ndf->nf",
        x.reshape(blocks, -1),
        kernel.reshape(blocks, -1, kernel.shape[1]),
        preferred_element_type=jnp.float32,
    )
    # Written out, the sum becomes one with what follows; a reduction is a call of its own.
    return functools.reduce(operator.add, [*parts]).astype(x.dtype)


def vocabulary_logits(
    hidden: Float[Array, "M D"], table: Float[Array, "V D"]
) -> Float[Array, "M V"]:
    """``hidden table^T`` in float32: the product of each vector with each row of a large table."""
    few = 1 < len(hidden) <= _FEW_ROWS and jax.default_backend() == "cpu"
    left, right = (table, hidden) if few else (hidden, table)
    product = jax.lax.dot_general(
        left, right, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    if not few:
        return product
    # XLA on CPU packs the right operand before it multiplies, which for a few vectors takes as
    # long as the product: with the table on the left it is 1.4 to 1.6 times as fast (jax 0.10,
    # two cores). Without a barrier XLA merges the transposition and swaps the operands back.
    return jax.lax.optimization_barrier(product).T


def layer_norm(
    x: Float[Array, "*M D"],
    scale: Float[Array, " D"],
    bias: Float[Array, " D"],
    epsilon: float = 1e-6,
) -> Float[Array, "*M D"]:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the last axis.

    Ba et al. 2016. Statistics are taken in float32, the result is in the type of ``x``.
    """
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + epsilon) * scale + bias).astype(x.dtype)


def rms_norm(
    x: Float[Array, "*M D"], scale: Float[Array, " D"], epsilon: float = 1e-6
) -> Float[Array, "*M D"]:
    """``x / sqrt(mean(x^2) + epsilon) * scale`` over the last axis.

    Zhang and Sennrich 2019. The statistic is taken in float32, the result is in the
    type of ``x``.
    """
    wide = x.astype(jnp.float32)
    square = jnp.square(wide).mean(axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(square + epsilon) * scale).astype(x.dtype)


def gelu(x: Float[Array, "*M"]) -> Float[Array, "*M"]:
    """``x Phi(x)``, Phi the normal distribution (Hendrycks and Gimpel 2016).

    By erf, where `jax.nn.gelu` has the slower erfc.
    """
    return 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5))


def gelu_tanh(x: Float[Array, "*M"]) -> Float[Array, "*M"]:
    """``x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``: GPT's approximation of `gelu`."""
    return jax.nn.gelu(x, approximate=True)


def dropout(
    x: Float[Array, "*M D"], rate: float, key: PRNGKeyArray | UInt32[Array, "2"] | None
) -> Float[Array, "*M D"]:
    """Zeroes entries at ``rate`` and scales the others so that the expectation stays.

    Without a key, and at rate 0, ``x`` is returned.

    Srivastava et al. 2014. Sixteen random bits decide about an entry, half the work of
    a random float, so the rate is met to within 2^-17.
    """
    if key is None or rate == 0:
        return x
    dropped = min(round(rate * 2**16), 2**16 - 1)
    width = x.shape[-1]
    words = jax.random.bits(key, (*x.shape[:-1], -(-width // 2)), jnp.uint32)
    halves = jax.lax.bitcast_convert_type(words, jnp.uint16)
    bits = halves.reshape(*x.shape[:-1], -1)[..., :width]
    kept = jnp.asarray(2**16 / (2**16 - dropped), x.dtype)
    return jnp.where(bits >= dropped, x * kept, jnp.zeros((), x.dtype))
