"""What a training step reads and writes."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from transformer.models.build import Model, init_params
from transformer.parallel.sharding import Sharding


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
    params = init_params(model, jax.random.key(seed))
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def state_places(
    model: Model, optimizer: optax.GradientTransformation, sharding: Sharding
) -> TrainState:
    """Where each array of a state lies on a mesh: a `NamedSharding` for each.

    Raises:
        UserError: an axis of a parameter that the mesh does not divide; names it.
    """
    params = sharding.parameters(model)
    shapes = jax.eval_shape(lambda: init_state(model, optimizer, 0))
    moments = sharding.optimizer_state(optimizer, params, shapes.opt_state)
    places: Any = (sharding.everywhere, params, moments)
    return TrainState(*places)


def fresh_state(
    model: Model, optimizer: optax.GradientTransformation, seed: int, sharding: Sharding | None
) -> TrainState:
    """`init_state` where the state shall lie: no device ever holds more than its part."""
    places = None if sharding is None else state_places(model, optimizer, sharding)
    init = jax.jit(init_state, static_argnums=(0, 1, 2), out_shardings=places)
    return init(model, optimizer, seed)


def state_shapes(
    model: Model, optimizer: optax.GradientTransformation, sharding: Sharding | None
) -> TrainState:
    """The shapes of a state's arrays, and where they lie."""
    shapes = jax.eval_shape(lambda: init_state(model, optimizer, 0))
    if sharding is None:
        return shapes
    return jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        shapes,
        state_places(model, optimizer, sharding),
    )
