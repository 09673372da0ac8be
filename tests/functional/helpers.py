"""What the tests of pure functions share."""

import jax


def normal(seed: int, *shape: int) -> jax.Array:
    """Standard normal float32 numbers."""
    return jax.random.normal(jax.random.key(seed), shape)
