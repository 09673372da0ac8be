"""The training and evaluation steps: pure functions, compiled once a batch shape."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from transformer.functional.losses import LossSums, cross_entropy, linear_cross_entropy
from transformer.models.build import Model
from transformer.training.optimizer import Schedule
from transformer.training.state import TrainState

Batch = Mapping[str, Array | np.ndarray]
"""See `transformer.data.batches.Batch`."""

# What the networks read of a batch, by the names of their arguments.
_MODEL_INPUTS = ("source", "inputs", "segments", "positions")


class StepMetrics(NamedTuple):
    """One optimizer step, as scalars on the device."""

    sums: LossSums
    """Sums over the step's target tokens; divide by ``sums.weight`` for means."""
    grad_norm: Float[Array, ""]
    """Norm of the whole gradient, before clipping."""
    learning_rate: Float[Array, ""]


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]
EvalStep = Callable[[Any, Batch], LossSums]


def loss_sums(
    model: Model,
    params: Any,
    batch: Batch,
    label_smoothing: float,
    dropout_key: Array | None = None,
    lm_weight: float = 0.0,
) -> LossSums:
    """The label-smoothed loss (paper section 5.4), summed over the weighted target tokens.

    Of a batch with ``labels``: the cross-entropy of the classes, summed over the examples, plus
    ``lm_weight`` times the loss of the tokens (Radford et al. 2018, equation 5). ``nll`` and
    ``weight`` are then of the classes alone.

    With a ``dropout_key`` the model is in training mode.
    """
    mode: Any = {
        "train": dropout_key is not None,
        "rngs": None if dropout_key is None else {"dropout": dropout_key},
    }
    arguments: Any = {name: jnp.asarray(batch[name]) for name in _MODEL_INPUTS if name in batch}
    hidden: Any = model.apply({"params": params}, **arguments, **mode, method="hidden")
    if "labels" not in batch:
        return _token_sums(model, params, hidden, batch, label_smoothing)
    logits: Any = model.apply({"params": params}, hidden, batch["ends"], **mode, method="classify")
    labels = jnp.asarray(batch["labels"])
    sums = cross_entropy(logits, jnp.maximum(labels, 0), (labels >= 0).astype(jnp.float32))
    if lm_weight:
        tokens = _token_sums(model, params, hidden, batch, label_smoothing)
        sums = sums._replace(loss=sums.loss + lm_weight * tokens.loss)
    return sums


def _token_sums(
    model: Model, params: Any, hidden: Any, batch: Batch, label_smoothing: float
) -> LossSums:
    hidden = hidden.reshape(-1, hidden.shape[-1])
    embedding = params["embedding"]
    table = embedding["embedding" if model.config.tie_embeddings else "output"]
    if model.config.output_bias:
        # The bias of a logit is the weight of one more hidden dimension, which is always 1.
        hidden = jnp.concatenate([hidden, jnp.ones_like(hidden[:, :1])], axis=1)
        table = jnp.concatenate([table, embedding["output_bias"][:, None]], axis=1)
    targets, weights = (jnp.asarray(batch[name]).reshape(-1) for name in ("targets", "weights"))
    return linear_cross_entropy(hidden, table, targets, weights, label_smoothing)


def make_train_step(
    model: Model,
    optimizer: optax.GradientTransformation,
    schedule: Schedule,
    label_smoothing: float,
    seed: int,
    accumulate: int = 1,
    lm_weight: float = 0.0,
) -> TrainStep:
    """Builds ``step(state, batch) -> (state, metrics)``, which consumes (donates) its state.

    The gradient is that of the mean loss (see `loss_sums`) over the batch's target tokens, or
    over its examples where it has ``labels``. With
    ``accumulate`` above 1 the batch's rows are taken in that many equal parts, one at
    a time: gradients of sums are added up and divided once by the whole weight, so
    the result is that of the whole batch however the tokens are spread over the parts.
    Dropout follows from (seed, step, part).
    """

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

    @partial(jax.jit, donate_argnums=0)
    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        step = state.step + 1
        key = jax.random.fold_in(jax.random.key(seed), step)
        grads, sums = accumulated(state.params, batch, key)
        weight = jnp.maximum(sums.weight, 1.0)
        grads = jax.tree.map(lambda g: g / weight, grads)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics = StepMetrics(sums, optax.tree.norm(grads), schedule(step))
        return TrainState(step, params, opt_state), metrics

    return lambda state, batch: train_step(state, _arrays(batch))


def make_eval_step(model: Model, label_smoothing: float) -> EvalStep:
    """Builds ``step(params, batch) -> sums`` over the batch's target tokens, without dropout."""

    @jax.jit
    def evaluate(params: Any, batch: Batch) -> LossSums:
        return loss_sums(model, params, batch, label_smoothing)

    return lambda params, batch: evaluate(params, _arrays(batch))


def _arrays(batch: Batch) -> Batch:
    """The parts of a batch that the device needs."""
    return {name: array for name, array in batch.items() if name != "ids"}
