"""Positions against values computed by hand from the papers."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal
from transformer.functional import relative_buckets, rotary, sinusoids


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


def test_rotary_products_depend_on_the_distance_alone():
    """RoFormer, equation 16: <R_m q, R_n k> = <q, R_(n-m) k>."""
    q, k = normal(5, 1, 1, 3, 14), normal(6, 1, 1, 3, 14)

    def product(m: int, n: int):
        turned = rotary(q, jnp.array([[m]])), rotary(k, jnp.array([[n]]))
        return jnp.einsum("btnh,btnh->bn", *turned)

    np.testing.assert_allclose(product(2, 7), product(102, 107), atol=2e-5)
    np.testing.assert_allclose(product(3, 3), jnp.einsum("btnh,btnh->bn", q, k), atol=1e-5)
    assert jnp.abs(product(2, 7) - product(7, 2)).max() > 0.1


def test_rotary_turns_the_pair_i_and_i_plus_half_by_its_own_rate():
    """H = 4, theta = 100: rates 1 and 1/10; one-hot vectors show the pairing."""
    x = jnp.eye(4)[None, :, None]
    turned = rotary(x, jnp.array([[3, 3, 3, 3]]), 100.0)[0, :, 0]
    c, s, c2, s2 = np.cos(3), np.sin(3), np.cos(0.3), np.sin(0.3)
    expected = [[c, 0, s, 0], [0, c2, 0, s2], [-s, 0, c, 0], [0, -s2, 0, c2]]
    np.testing.assert_allclose(turned, expected, atol=1e-6)


def test_relative_buckets_are_t5s():
    """Worked by hand from Raffel et al.: 32 buckets, 16 a direction; of these 8 exact, and
    8 + floor(8 log(d / 8) / log(128 / 8)) beyond. Causal: 16 exact, log(d / 16) / log 8."""
    distances = jnp.array([[0, 1, 7, 8, 11, 12, 16, 45, 46, 127, 128, 1000]])
    zero = jnp.array([[0]])
    back = relative_buckets(distances, zero, bidirectional=True)[0, :, 0]
    assert back.tolist() == [0, 1, 7, 8, 8, 9, 10, 12, 13, 15, 15, 15]
    ahead = relative_buckets(-distances, zero, bidirectional=True)[0, :, 0]
    assert ahead.tolist() == [0] + [16 + b for b in back.tolist()[1:]]
    causal = relative_buckets(distances, zero, bidirectional=False)[0, :, 0]
    assert causal.tolist() == [0, 1, 7, 8, 11, 12, 16, 23, 24, 31, 31, 31]
    assert relative_buckets(-distances, zero, bidirectional=False).max() == 0
