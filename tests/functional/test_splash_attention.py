"""The TPU's kernel, run step by step on CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal
from transformer.functional import Mask, attend
from transformer.functional.splash_attention import _Band, splash_attention

B, T, N, K, H, HV = 2, 300, 4, 2, 16, 24
"""T makes three blocks of 128, the last one not whole."""
S = 200
SEGMENTS = jnp.repeat(jnp.array([[1, 2, 0], [3, 1, 1]]), 100, axis=1)
PLACES = jnp.where(SEGMENTS == 1, jnp.array([[0], [100]]), jnp.array([[100], [0]]))
POSITIONS = jnp.arange(T) - PLACES
PADDING = jnp.arange(T) < jnp.array([[T], [170]])
INDICES = jnp.arange(T)[None]
MASKS = {
    "none": None,
    "causal": Mask.self_attention(None, INDICES, causal=True),
    "window": Mask.self_attention(None, INDICES, window=37),
    "causal window of segments": Mask.self_attention(SEGMENTS, POSITIONS, causal=True, window=37),
    "causal segments": Mask.self_attention(SEGMENTS, POSITIONS, causal=True),
    "segments": Mask.self_attention(SEGMENTS),
    "padding": Mask.self_attention(PADDING),
    "cross": Mask.cross_attention(jnp.arange(S) < jnp.array([[0], [70]])),
}


@pytest.mark.parametrize("name", MASKS)
def test_equals_the_plain_path_forward_and_backward(name):
    """In float32; queries of padding, and of a row of nothing else, give 0 as everywhere."""
    mask, width = MASKS[name], S if name in ("none", "cross") else T
    operands = normal(0, B, T, N, H), normal(1, B, width, K, H), normal(2, B, width, K, HV)

    @jax.jit
    def both(cotangent, *operands):
        def kernel(*operands):
            return splash_attention(*operands, mask=mask, scale=0.3, interpret=True)

        def plain(*operands):
            return attend(*operands, mask=mask, scale=0.3, implementation="plain")

        results = []
        for function in (kernel, plain):
            output, pull = jax.vjp(function, *operands)
            results.append((output, *pull(cotangent)))
        return results

    for got, expected in zip(*both(normal(3, B, T, N, HV), *operands), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("causal", "window"), [(False, None), (True, None), (True, 3), (False, 3), (True, 1)]
)
def test_a_block_that_is_all_alike_is_said_in_one_entry(causal, window):
    band, size = _Band(12, 16, causal, window), 4
    distance = np.arange(12)[:, None] - np.arange(16)
    expected = np.full((12, 16), True)
    if causal:
        expected &= distance >= 0
    if window:
        expected &= abs(distance) < window
    for i, j in np.ndindex(3, 4):
        block = slice(i * size, (i + 1) * size), slice(j * size, (j + 1) * size)
        np.testing.assert_array_equal(np.broadcast_to(band[block], (size, size)), expected[block])
        assert (band[block].size == 1) == (expected[block].all() or not expected[block].any())
