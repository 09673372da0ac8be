"""Positions as vectors."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def sinusoids(positions: Int[Array, "*T"], dim: int) -> Float[Array, "*T D"]:
    """Sinusoidal position encodings (paper section 3.5).

        PE(pos, 2i)     = sin(pos / 10000^(2i / D))
        PE(pos, 2i + 1) = cos(pos / 10000^(2i / D))

    Computed, so there is no longest position. For an odd ``dim`` the last entry is
    a sine.

    Args:
        positions: any shape.
        dim: D, the width of the encoding.
    """
    index = jnp.arange(dim)
    rates = 10000.0 ** (-(index // 2 * 2) / dim)
    angles = positions[..., None].astype(jnp.float32) * rates
    return jnp.where(index % 2 == 0, jnp.sin(angles), jnp.cos(angles))


def rotary(
    x: Float[Array, "B T N H"], positions: Int[Array, "#B T"], theta: float = 10_000.0
) -> Float[Array, "B T N H"]:
    """Turns each pair of dimensions by an angle proportional to the position.

    Su et al. 2021 (RoFormer), equation 34, with dimension i paired with i + H/2 as in
    Llama's weights (the paper pairs neighbours: a permutation of the dimensions):

        y[i]       = x[i] cos(m w_i) - x[i + H/2] sin(m w_i)        w_i = theta^(-2i / H)
        y[i + H/2] = x[i + H/2] cos(m w_i) + x[i] sin(m w_i)

    The product of a query at m and a key at n then depends on m - n alone.

    Args:
        x: queries or keys, H even.
        positions: m of each token.
        theta: the base of the wavelengths.
    """
    half = x.shape[-1] // 2
    rates = theta ** (-jnp.arange(half) / half)
    angles = positions[..., None, None].astype(jnp.float32) * rates
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def relative_buckets(
    query_positions: Int[Array, "#B T"],
    key_positions: Int[Array, "#B S"],
    *,
    bidirectional: bool,
    buckets: int = 32,
    max_distance: int = 128,
) -> Int[Array, "#B T S"]:
    """T5's bucket of each distance (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the others grow logarithmically up to
    ``max_distance``, and everything farther shares the last. With ``bidirectional`` the
    upper half of the buckets is for keys after the query; else those share bucket 0.
    """
    distance = query_positions[:, :, None] - key_positions[:, None, :]
    bucket = jnp.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        bucket = jnp.where(distance < 0, buckets, 0)
        distance = jnp.abs(distance)
    distance = jnp.maximum(distance, 0)
    exact = buckets // 2
    # The logarithm in float32, as the published models take it: it decides at the borders.
    ratio = jnp.log(jnp.maximum(distance, 1).astype(jnp.float32) / exact)
    far = exact + (ratio / math.log(max_distance / exact) * (buckets - exact)).astype(jnp.int32)
    return bucket + jnp.where(distance < exact, distance, jnp.minimum(far, buckets - 1))
