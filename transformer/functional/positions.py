"""Positions as vectors."""

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
