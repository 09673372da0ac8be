"""How far activations in bfloat16 take a training from one in float32."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parallel.cases import MODELS, make_batch
from transformer.config import ModelConfig, OptimizerConfig
from transformer.models.build import build_model
from transformer.training.heads import read_hidden
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.state import init_state
from transformer.training.step import make_train_step

STEPS = 20


def losses(config: ModelConfig) -> np.ndarray:
    """Of `STEPS` steps on one batch, before each."""
    model, batch = build_model(config), make_batch(config)
    settings = OptimizerConfig("constant", learning_rate=3e-3, warmup_steps=4)
    schedule = make_schedule(settings, config.model_dim, STEPS)
    optimizer = make_optimizer(settings, schedule)
    step = make_train_step(model, optimizer, schedule, 0.0, 0)
    state = jax.jit(lambda: init_state(model, optimizer, 1))()
    hidden = jax.eval_shape(
        lambda params, arrays: read_hidden(model, params, arrays, {}), state.params, batch
    )
    assert hidden.dtype == config.dtype
    found = []
    for _ in range(STEPS):
        state, metrics = step(state, batch)
        found.append(metrics.sums.loss / metrics.sums.weight)
    floats = [x for x in jax.tree.leaves((state, found)) if x.dtype != jnp.int32]
    assert {x.dtype for x in floats} == {jnp.dtype("float32")}
    return np.array(found)


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_stays_near_that_of_float32(name):
    """Off by 0.02 % (T5) to 0.14 % (BERT) at the most, while the loss falls by 19 to 66 %."""
    config = dataclasses.replace(MODELS[name], dropout=0.0, attention_dropout=0.0, ff_dropout=0.0)
    exact = losses(config)
    rounded = losses(dataclasses.replace(config, dtype="bfloat16"))
    assert exact[-1] < 0.85 * exact[0]
    assert 0 < np.abs(rounded / exact - 1).max() < 0.004
