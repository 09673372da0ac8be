"""Sinusoids against values computed from section 3.5 of the paper."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional import sinusoids


def test_literal_values():
    # D = 4: rates 1 and 10000^(-2/4) = 0.01.
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.841471, 0.540302, 0.00999983, 0.99995],
        [0.909297, -0.416147, 0.0199987, 0.9998],
    ]
    np.testing.assert_allclose(sinusoids(jnp.arange(3), 4), expected, atol=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 5, 11, 512])
def test_equals_the_formula_for_odd_dimensions_too(dim):
    positions = [0, 1, 7, 299]
    expected = [
        [
            (math.sin if i % 2 == 0 else math.cos)(pos / 10000 ** ((i - i % 2) / dim))
            for i in range(dim)
        ]
        for pos in positions
    ]
    encoded = sinusoids(jnp.array(positions), dim)
    assert encoded.shape == (4, dim) and encoded.dtype == jnp.float32
    np.testing.assert_allclose(encoded, expected, atol=5e-5)


def test_takes_positions_of_any_shape_and_knows_no_longest_one():
    """Tables of a fixed length crashed one token beyond it; these are computed."""
    positions = jnp.array([[0, 3, 100_003], [5, 5, 1]])
    encoded = sinusoids(positions, 7)
    assert encoded.shape == (2, 3, 7)
    np.testing.assert_array_equal(encoded[1, 0], encoded[1, 1])
    assert jnp.isfinite(encoded).all() and (jnp.abs(encoded) <= 1).all()
