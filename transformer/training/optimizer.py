"""Adam and the learning-rate schedules (paper section 5.3)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from transformer.config import OptimizerConfig
from transformer.functional.schedules import noam

Schedule = Callable[[int | Int[Array, ""]], Float[Array, ""]]


def make_schedule(config: OptimizerConfig, model_dim: int, total_steps: int) -> Schedule:
    """The learning rate as a function of the step, which counts from 1.

    ``noam`` is equation 3 of the paper. The others rise linearly over ``warmup_steps``, or
    ``warmup_fraction`` of all, to ``learning_rate``; then ``linear`` and ``cosine`` decay to
    ``final_factor`` of it at ``total_steps`` and ``constant`` stays. The first step's rate is
    never 0.
    """
    if config.schedule == "noam":
        return lambda step: noam(step, model_dim, config.warmup_steps, config.learning_rate)

    part = config.warmup_fraction
    peak_step = max(config.warmup_steps if part is None else round(part * total_steps), 1)

    def schedule(step: int | Int[Array, ""]) -> Float[Array, ""]:
        step = jnp.asarray(step, jnp.float32)
        rise = jnp.minimum(step / peak_step, 1.0)
        progress = jnp.clip((step - peak_step) / max(total_steps - peak_step, 1), 0.0, 1.0)
        match config.schedule:
            case "linear":
                decay = 1.0 - progress
            case "cosine":
                decay = 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
            case _:
                decay = 1.0
        decay = config.final_factor + (1.0 - config.final_factor) * decay
        return config.learning_rate * rise * decay

    return schedule


_TABLES = ("embedding", "positions", "segments", "output")


def decaying(params: optax.Params, tables: bool = False) -> optax.Params:
    """True for what weight decay applies to: every ``kernel``, and if asked for the `tables`."""
    names = ("kernel", *(_TABLES if tables else ()))

    def decays(path: tuple, _: Array) -> bool:
        return getattr(path[-1], "key", None) in names

    return jax.tree_util.tree_map_with_path(decays, params)


def make_optimizer(config: OptimizerConfig, schedule: Schedule) -> optax.GradientTransformation:
    """Adam with optional clipping and decoupled weight decay (Loshchilov & Hutter 2019).

    Every setting gives the same tree of optimizer state, so that a run may be
    resumed with other settings.
    """
    clip = (
        optax.identity()
        if config.clip_norm is None
        else optax.clip_by_global_norm(config.clip_norm)
    )
    return optax.chain(
        clip,
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        optax.add_decayed_weights(
            config.weight_decay, mask=lambda params: decaying(params, config.decay_embeddings)
        ),
        # optax counts updates from 0, the schedules steps from 1.
        optax.scale_by_learning_rate(lambda count: schedule(jnp.asarray(count) + 1)),
    )
