"""What "Attention Is All You Need" says about its parts, checked on ours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional import Mask, attend, sinusoids

B, T, S, N, H = 2, 7, 11, 3, 5


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


@pytest.mark.parametrize("dim", [7, 53])
def test_dot_products_have_variance_dim_and_scaled_ones_variance_1(dim):
    """Section 3.2.1, footnote 4. Over two keys, log(w0 / w1) is the difference of two products."""
    many = 20_011
    query, key = normal(0, many, 1, 1, dim), normal(1, many, 2, 1, dim)
    for scale, expected in ((1.0, dim), (None, 1.0)):
        # Without softmax's limits on float32 a ratio of e**-100 would be lost.
        query_scale = 0.01
        _, weights = attend(
            query_scale * query, key, key, scale=scale, return_weights=True, implementation="plain"
        )
        products = np.log(weights[..., 0] / weights[..., 1]) / query_scale
        assert products.var() / 2 == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_weights_sum_to_1(causal):
    segments = jnp.array([[1] * T, [1] * (T - 2) + [0] * 2])
    mask = Mask.self_attention(segments, causal=causal)
    x = normal(0, B, T, N, H)
    _, weights = attend(x, x, x, mask=mask, return_weights=True)
    np.testing.assert_allclose(weights.sum(-1)[0], 1, rtol=1e-6)
    np.testing.assert_allclose(weights.sum(-1)[1, :, : T - 2], 1, rtol=1e-6)
    np.testing.assert_array_equal(weights[1, :, T - 2 :], 0)
    assert (weights >= 0).all()


def test_masking_before_the_softmax_is_not_zeroing_after_it():
    """Section 3.2.3: illegal connections are set to -inf *before* the softmax."""
    query, key, value = normal(0, B, T, N, H), normal(1, B, S, N, H), normal(2, B, S, N, H)
    allowed = jnp.arange(S) % 3 != 1
    masked, weights = attend(query, key, value, mask=allowed[None, None, None], return_weights=True)
    _, unmasked_weights = attend(query, key, value, return_weights=True)
    zeroed_weights = unmasked_weights * allowed
    zeroed = jnp.einsum("bnts,bsnh->btnh", zeroed_weights, value)
    assert jnp.abs(masked - zeroed).max() > 0.1
    assert (zeroed_weights.sum(-1) < 0.99).all()
    renormalised = zeroed_weights / zeroed_weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, renormalised, atol=1e-6)


@pytest.mark.parametrize("dim", [2, 10, 11])
@pytest.mark.parametrize("shift", [1, 13])
def test_a_shift_of_sinusoids_is_a_rotation_independent_of_position(dim, shift):
    """Section 3.5: PE(pos + k) is a linear function of PE(pos), the same one for every pos."""
    positions = jnp.arange(37)
    now, later = sinusoids(positions, dim), sinusoids(positions + shift, dim)
    for i in range(dim // 2):
        angle = shift / 10000 ** (2 * i / dim)
        rotation = np.array(
            [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]], np.float32
        )
        pair = slice(2 * i, 2 * i + 2)
        np.testing.assert_allclose(later[:, pair], now[:, pair] @ rotation.T, atol=2e-5)


def test_self_attention_without_positions_is_permutation_equivariant_until_a_causal_mask():
    x = normal(0, B, T, N, H)
    permutation = jnp.array([3, 0, 6, 1, 5, 2, 4])
    segments = jnp.ones((B, T), jnp.int32)

    def self_attention(x, causal):
        return attend(x, x, x, mask=Mask.self_attention(segments, causal=causal))

    moved = self_attention(x[:, permutation], causal=False)
    np.testing.assert_allclose(moved, self_attention(x, False)[:, permutation], atol=1e-6)
    moved = self_attention(x[:, permutation], causal=True)
    assert jnp.abs(moved - self_attention(x, True)[:, permutation]).max() > 0.1
