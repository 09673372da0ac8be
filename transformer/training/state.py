"""What a training step reads and writes."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from transformer.models.build import Model


class TrainState(flax.struct.PyTreeNode):
    """Everything a run is: with the data, the seed and this, the next step is determined."""

    step: Int[Array, ""]
    """Optimizer steps done."""
    params: Any
    """The model's parameters."""
    opt_state: optax.OptState
    """Moments and counters of the optimizer."""


def init_state(model: Model, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    """A fresh state: parameters from ``seed``, moments 0, step 0.

    Pure, so ``jax.eval_shape`` gives its shapes and ``jax.jit`` compiles it once.
    """
    # A parameter's first value follows from its path and shape, not from the tokens.
    arguments: dict[str, Any] = {"inputs": jnp.ones((1, 2), jnp.int32)}
    if model.config.architecture == "encoder_decoder":
        arguments["source"] = arguments["inputs"]
    params = model.init(jax.random.key(seed), **arguments)["params"]
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))
