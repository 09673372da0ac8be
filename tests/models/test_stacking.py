"""Layers one by one, and in one array each."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.config import ModelConfig
from transformer.models.build import build_model, init_params
from transformer.models.cache import DecoderCache
from transformer.models.stacking import unrolled, with_layers

CONFIG = ModelConfig(
    "encoder_decoder", 11, 6, 10, 3, vocab_size=13, positions="relative", norm_placement="pre"
)


@pytest.fixture(scope="module")
def params():
    return init_params(build_model(CONFIG), jax.random.key(0))


def equal(tree: Any, other: Any) -> bool:
    same = jax.tree.structure(tree) == jax.tree.structure(other)
    return same and all(map(np.array_equal, jax.tree.leaves(tree), jax.tree.leaves(other)))


def test_there_and_back(params):
    """Eleven layers: 10 comes after 9, not after 1."""
    stacked = with_layers(params, stacked=True)
    assert stacked["decoder"].keys() == {"layers", "final_norm", "relative_bias"}
    kernel = stacked["decoder"]["layers"]["feed_forward"]["up"]["kernel"]
    assert kernel.shape == (11, 6, 10)
    np.testing.assert_array_equal(
        kernel[10], params["decoder"]["layer_10"]["feed_forward"]["up"]["kernel"]
    )
    assert equal(with_layers(stacked, stacked=False), params)
    for tree, kind in ((params, False), (stacked, True)):
        assert equal(with_layers(tree, kind), tree)


def test_the_state_of_an_optimizer_is_converted_too(params):
    optimizer = optax.chain(optax.identity(), optax.scale_by_adam())
    stacked = with_layers(params, stacked=True)
    found = with_layers(optimizer.init(stacked), stacked=False)
    assert equal(found, optimizer.init(params))


def test_a_fresh_network_has_stacked_parameters_of_the_same_shapes(params):
    model = build_model(dataclasses.replace(CONFIG, scan_layers=True))
    fresh = init_params(model, jax.random.key(0))
    shapes = jax.tree.map(jnp.shape, fresh)
    assert shapes == jax.tree.map(jnp.shape, with_layers(params, stacked=True))
    kernel = fresh["encoder"]["layers"]["self_attention"]["query"]["kernel"]
    assert len({row.tobytes() for row in np.asarray(kernel)}) == 11, "layers are drawn alike"
    # Xavier's bound is that of a single layer's kernel.
    assert 0.9 < float(jnp.abs(kernel).max()) / (6 / (6 + 6)) ** 0.5 <= 1


def test_a_scanned_network_decodes_as_the_plain_one():
    """While it trains: evaluations decode with it."""
    config = ModelConfig("decoder", 4, 6, 10, 3, vocab_size=13, local_window=2)
    config = dataclasses.replace(config, scan_layers=True, remat="full")
    scanned, plain = build_model(config), build_model(unrolled(config))
    params = init_params(scanned, jax.random.key(0))
    tokens, positions = jnp.array([[3, 5, 7, 2, 8]]), jnp.arange(5)[None]
    cache = DecoderCache.empty(config, 1, 5)

    def decode(model, params):
        return model.apply({"params": params}, tokens, positions, cache, 0, method="decode")

    found, expected = decode(scanned, params), decode(plain, with_layers(params, stacked=False))
    assert equal(found, expected)
    whole: Any = scanned.apply({"params": params}, tokens, method="hidden")
    np.testing.assert_allclose(found[0], whole, atol=1e-6)
