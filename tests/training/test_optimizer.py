from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.config import OptimizerConfig
from transformer.training.optimizer import decaying, make_optimizer, make_schedule

PARAMS: Any = {
    "embedding": {"embedding": jnp.full((5, 3), 2.0)},
    "layer": {"kernel": jnp.full((3, 7), 2.0), "bias": jnp.full((7,), 2.0)},
    "norm": {"scale": jnp.full((3,), 2.0), "bias": jnp.full((3,), 2.0)},
}


def test_noam_starts_at_step_one_and_peaks_after_warmup():
    """Counting steps from 0 made the first update one of rate 0."""
    schedule = make_schedule(OptimizerConfig(), model_dim=512, total_steps=100_000)
    assert float(schedule(1)) == pytest.approx(1.747e-7, rel=1e-3)
    assert float(schedule(4000)) == pytest.approx(6.988e-4, rel=1e-3)
    assert float(schedule(0)) == 0.0


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("linear", {1: 0.25, 2: 0.5, 4: 1.0, 7: 0.5, 10: 0.0, 11: 0.0}),
        ("cosine", {1: 0.25, 4: 1.0, 6: 0.75, 7: 0.5, 8: 0.25, 10: 0.0, 11: 0.0}),
        ("constant", {1: 0.25, 4: 1.0, 7: 1.0, 1000: 1.0}),
    ],
)
def test_schedules(name, rates):
    config = OptimizerConfig(schedule=name, learning_rate=0.3, warmup_steps=4)
    schedule = make_schedule(config, model_dim=512, total_steps=10)
    for step, rate in rates.items():
        assert float(schedule(step)) == pytest.approx(0.3 * rate, abs=1e-7), step


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
def test_a_part_of_the_rate_may_be_left(name):
    config = OptimizerConfig(schedule=name, learning_rate=0.3, warmup_steps=4, final_factor=0.2)
    schedule = make_schedule(config, model_dim=512, total_steps=10)
    left = 1.0 if name == "constant" else 0.2
    for step, rate in {2: 0.5, 4: 1.0, 7: (1 + left) / 2, 10: left, 11: left}.items():
        assert float(schedule(step)) == pytest.approx(0.3 * rate, abs=1e-7), step


@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("total_steps", [1, 2, 100])
def test_first_rate_without_warmup_is_the_peak(name, total_steps):
    config = OptimizerConfig(schedule=name, learning_rate=0.3, warmup_steps=0)
    schedule = make_schedule(config, model_dim=512, total_steps=total_steps)
    assert float(schedule(1)) == pytest.approx(0.3)


def test_first_update_uses_the_rate_of_step_one():
    config = OptimizerConfig(schedule="linear", learning_rate=0.4, warmup_steps=4)
    optimizer = make_optimizer(config, make_schedule(config, 512, 10))
    state = optimizer.init(PARAMS)
    grads = jax.tree.map(jnp.ones_like, PARAMS)
    for expected in (0.1, 0.2):
        # Adam's update of a constant gradient is 1.
        updates: Any
        updates, state = optimizer.update(grads, state, PARAMS)
        np.testing.assert_allclose(updates["layer"]["kernel"], -expected, rtol=1e-5)


def test_a_part_of_all_steps_warms_up():
    config = OptimizerConfig(schedule="linear", learning_rate=0.5, warmup_fraction=0.1)
    schedule = make_schedule(config, 512, 40)
    assert [float(schedule(step)) for step in (1, 4, 22, 40)] == [0.125, 0.5, 0.25, 0.0]


def test_decay_shrinks_kernels_only():
    """Decay once hit biases, norms and embeddings too."""
    config = OptimizerConfig(
        schedule="constant", learning_rate=0.5, warmup_steps=0, weight_decay=0.1
    )
    optimizer = make_optimizer(config, make_schedule(config, 512, 10))
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    updates, _ = optimizer.update(zeros, optimizer.init(PARAMS), PARAMS)
    params: Any = optax.apply_updates(PARAMS, updates)
    np.testing.assert_allclose(params["layer"]["kernel"], 2.0 * (1 - 0.5 * 0.1), rtol=1e-6)
    for leaf in (params["layer"]["bias"], *params["norm"].values(), *params["embedding"].values()):
        np.testing.assert_array_equal(leaf, 2.0)
    assert sum(jax.tree.leaves(decaying(PARAMS))) == 1


def test_embeddings_decay_if_asked_for():
    """Devlin et al. 2019, appendix A.2: the published program spares biases and norms alone."""
    config = OptimizerConfig(
        schedule="constant",
        learning_rate=0.5,
        warmup_steps=0,
        weight_decay=0.1,
        decay_embeddings=True,
    )
    optimizer = make_optimizer(config, make_schedule(config, 512, 10))
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    updates, _ = optimizer.update(zeros, optimizer.init(PARAMS), PARAMS)
    params: Any = optax.apply_updates(PARAMS, updates)
    for leaf in (params["layer"]["kernel"], params["embedding"]["embedding"]):
        np.testing.assert_allclose(leaf, 2.0 * (1 - 0.5 * 0.1), rtol=1e-6)
    for leaf in (params["layer"]["bias"], *params["norm"].values()):
        np.testing.assert_array_equal(leaf, 2.0)


def test_clipping_scales_the_whole_gradient():
    config = OptimizerConfig(clip_norm=1.0)
    optimizer = make_optimizer(config, make_schedule(config, 512, 10))
    grads = jax.tree.map(lambda x: 100 * x, PARAMS)
    _, state = optimizer.update(grads, optimizer.init(PARAMS), PARAMS)
    first_moment = optax.tree.get(state, "mu")
    assert float(optax.tree.norm(first_moment)) == pytest.approx(0.1, rel=1e-5)


def test_every_setting_has_the_same_state_tree():
    """So a run may go on with other settings of the optimizer."""
    trees = set()
    for config in (OptimizerConfig(), OptimizerConfig(clip_norm=1.0, weight_decay=0.1)):
        optimizer = make_optimizer(config, make_schedule(config, 512, 10))
        trees.add(jax.tree.structure(optimizer.init(PARAMS)))
    assert len(trees) == 1
