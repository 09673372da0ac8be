"""The training and evaluation steps: pure functions, compiled once a batch shape."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from transformer.config import Config
from transformer.functional.losses import LossSums
from transformer.functional.partition import placing
from transformer.models.build import Model, build_model
from transformer.parallel.sharding import Sharding
from transformer.training.heads import Batch
from transformer.training.losses import loss_sums
from transformer.training.optimizer import Schedule, make_optimizer, make_schedule
from transformer.training.state import TrainState, state_places


class StepMetrics(NamedTuple):
    """One optimizer step, as scalars on the device."""

    sums: LossSums
    """Sums over the step's target tokens; divide by ``sums.weight`` for means."""
    grad_norm: Float[Array, ""]
    """Norm of the whole gradient, before clipping."""
    learning_rate: Float[Array, ""]


EvalStep = Callable[[Any, Batch], LossSums]


@dataclass(frozen=True)
class TrainStep:
    """``step(state, batch) -> (state, metrics)`` (see `make_train_step`).

    Attributes:
        compiled: the same for a batch that lies where it shall; a function of `jax.jit`.
        sharding: the mesh, if there is one.
        accumulate: micro-batches of a batch.
    """

    compiled: Any
    sharding: Sharding | None
    accumulate: int

    def __call__(self, state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        return self.compiled(state, _arrays(batch, self.sharding, self.accumulate))

    def trace(self, state: TrainState, batch: Batch) -> jax.stages.Traced:
        """The program that a call runs, not compiled yet; nothing is put on a device.

        Args:
            state: from `transformer.training.state.state_shapes`.
            batch: arrays on the host, of which only the shapes matter.
        """
        shapes = _needed(batch)
        if self.sharding is not None:
            shapes = self.sharding.placed_shapes(shapes, self.accumulate)
        return self.compiled.trace(state, shapes)


def make_training(
    config: Config, sharding: Sharding | None
) -> tuple[Model, optax.GradientTransformation, TrainStep]:
    """The network, the optimizer and the step of a run: what is trained, and what a plan compiles.

    Args:
        config: complete settings (see `transformer.training.fill`).
        sharding: the mesh, if there is one.
    """
    settings, model = config.train, build_model(config.model)
    schedule = make_schedule(config.optimizer, config.model.model_dim, settings.steps)
    optimizer = make_optimizer(config.optimizer, schedule)
    step = make_train_step(
        model,
        optimizer,
        schedule,
        settings.label_smoothing,
        settings.seed,
        settings.accumulate,
        settings.lm_weight,
        sharding,
    )
    return model, optimizer, step


def make_train_step(
    model: Model,
    optimizer: optax.GradientTransformation,
    schedule: Schedule,
    label_smoothing: float,
    seed: int,
    accumulate: int = 1,
    lm_weight: float = 0.0,
    sharding: Sharding | None = None,
) -> TrainStep:
    """Builds ``step(state, batch) -> (state, metrics)``, which consumes (donates) its state.

    The gradient is that of the mean loss over the batch (see `loss_sums`). With
    ``accumulate`` above 1 the batch's rows are taken in that many equal parts, one at
    a time: gradients of sums are added up and divided once by the whole weight, so
    the result is that of the whole batch however the tokens are spread over the parts.
    Dropout follows from (seed, step, part).

    With a `sharding` the state lies on its mesh (see `state_places`) and stays there, and each
    batch is put on it. The result is the same, to rounding.
    """
    places = None if sharding is None else state_places(model, optimizer, sharding)

    def gradient(params: Any, batch: Batch, key: Array) -> tuple[Any, LossSums]:
        def objective(params: Any) -> tuple[Float[Array, ""], LossSums]:
            sums = loss_sums(model, params, batch, label_smoothing, key, lm_weight)
            return sums.loss, sums

        return jax.grad(objective, has_aux=True)(params)

    def accumulated(params: Any, batch: Batch, key: Array) -> tuple[Any, LossSums]:
        if accumulate == 1:
            return gradient(params, batch, key)

        def add(total: Any, part: tuple[Batch, Array]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, gradient(params, *part)), None

        parts = jax.tree.map(lambda x: x.reshape(accumulate, -1, *x.shape[1:]), dict(batch))
        keys = jax.random.split(key, accumulate)
        shapes = jax.eval_shape(gradient, params, batch, key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return jax.lax.scan(add, zeros, (parts, keys))[0]

    @partial(jax.jit, donate_argnums=0, out_shardings=places and (places, None))
    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        step = state.step + 1
        key = jax.random.fold_in(jax.random.key(seed), step)
        with placing(sharding and sharding.placing):
            grads, sums = accumulated(state.params, batch, key)
        weight = jnp.maximum(sums.weight, 1.0)
        grads = jax.tree.map(lambda g: g / weight, grads)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = StepMetrics(sums, optax.tree.norm(grads), schedule(step))
        return TrainState(step, params, opt_state), metrics

    return TrainStep(train_step, sharding, accumulate)


def make_eval_step(
    model: Model, label_smoothing: float, sharding: Sharding | None = None
) -> EvalStep:
    """Builds ``step(params, batch) -> sums`` over the batch (see `loss_sums`), without dropout."""

    @jax.jit
    def evaluate(params: Any, batch: Batch) -> LossSums:
        with placing(sharding and sharding.placing):
            return loss_sums(model, params, batch, label_smoothing)

    return lambda params, batch: evaluate(params, _arrays(batch, sharding))


def _arrays(batch: Batch, sharding: Sharding | None, accumulate: int = 1) -> Batch:
    """The parts of a batch that the devices need, on them where there are several."""
    return _needed(batch) if sharding is None else sharding.put(batch, accumulate)


def _needed(batch: Batch) -> Batch:
    return {name: array for name, array in batch.items() if name != "ids"}
