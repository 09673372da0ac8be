"""The learning rate as a function of the step."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def noam(
    step: int | Int[Array, ""], model_dim: int, warmup_steps: int, factor: float = 1.0
) -> Float[Array, ""]:
    """The published schedule (paper, equation 3), steps counted from 1.

        factor * D^-0.5 * min(step^-0.5, step * warmup^-1.5)

    Linear rise over ``warmup_steps`` steps, then decay with the root of the step.
    Finite at step 0, where it is 0.
    """
    step = jnp.asarray(step, jnp.float32)
    decay = jnp.maximum(step, 1.0) ** -0.5
    return factor * model_dim**-0.5 * jnp.minimum(decay, step * warmup_steps**-1.5)
