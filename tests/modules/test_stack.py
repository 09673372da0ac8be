"""Scanned and rematerialised stacks learn what the plain one does."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.parallel.cases import MODELS, make_batch
from transformer.config import ModelConfig
from transformer.models.build import build_model, init_params
from transformer.models.stacking import with_layers
from transformer.training.losses import loss_sums

TWO = {name: dataclasses.replace(config, num_layers=2) for name, config in MODELS.items()}
# With windows a turn of the loop is two layers.
FAMILIES = {**TWO, "gpt3": dataclasses.replace(TWO["gpt2"], num_layers=4, local_window=3)}
# Every family scanned; more of one that has all there is: two stacks, a memory, and a bias that
# their layers share.
CASES: list[tuple[str, bool, Any]] = [(name, True, "full") for name in FAMILIES]
CASES += [("t5", True, "dots"), ("t5", False, "full")]


def gradient(config: ModelConfig, params: Any):
    """With dropout."""
    model, batch = build_model(config), make_batch(config)

    def loss(params):
        sums = loss_sums(model, params, batch, 0.1, jax.random.key(7))
        return sums.loss / sums.weight

    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.fixture(scope="module")
def plain():
    """What the plain stack makes of each family, computed once."""
    known: dict[str, Any] = {}

    def compute(name: str):
        if name not in known:
            config = FAMILIES[name]
            params = init_params(build_model(config), jax.random.key(0))
            known[name] = config, params, gradient(config, params)
        return known[name]

    return compute


@pytest.mark.parametrize(("name", "scan", "remat"), CASES)
def test_the_loss_and_its_gradient_are_those_of_the_plain_stack(plain, name, scan, remat):
    """In float32, with dropout: 2e-7 of gradients up to 0.7 at the most."""
    config, params, (loss, grads) = plain(name)
    config = dataclasses.replace(config, scan_layers=scan, remat=remat)
    found, found_grads = gradient(config, with_layers(params, stacked=scan))
    np.testing.assert_allclose(found, loss, rtol=1e-6)
    found_grads = with_layers(found_grads, stacked=False)
    assert jax.tree.structure(found_grads) == jax.tree.structure(grads)
    for expected, value in zip(*map(jax.tree.leaves, (grads, found_grads)), strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-6)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(grads)) > 1e-2
