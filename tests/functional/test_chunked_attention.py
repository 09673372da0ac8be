"""Blocks of any size give what the whole matrix gives, forward and backward."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal, temporary_bytes
from transformer.functional import Mask, attend
from transformer.functional.chunked_attention import chunked_attention

B, T, S, K, G, H, HV = 2, 19, 23, 3, 2, 5, 7
N = K * G
SCALE = H**-0.5
BLOCK = 8  # divides neither T nor S


def operands(dtype=jnp.float32):
    shapes = (B, T, N, H), (B, S, K, H), (B, S, K, HV)
    return tuple(normal(i, *shape).astype(dtype) for i, shape in enumerate(shapes))


def boolean(*shape: int) -> jax.Array:
    return jax.random.bernoulli(jax.random.key(7), 0.6, shape)


# Queries stand in the middle of the keys: T != S, and positions are not indices.
QUERIES = jnp.arange(T)[None] + jnp.array([[2], [4]])
KEYS = jnp.arange(S)[None]
QUERY_SEGMENTS = jnp.array([[1] * 9 + [2] * 8 + [0] * 2, [1] * 3 + [2] * 16])
KEY_SEGMENTS = jnp.array([[1] * 12 + [2] * 7 + [0] * 4, [0] + [1] * 5 + [2] * 17])

MASKS = {
    "none": None,
    "boolean [B,N,T,S]": boolean(B, N, T, S),
    "boolean [B,1,T,S]": boolean(B, 1, T, S),
    "boolean [1,N,1,S]": boolean(1, N, 1, S),
    "boolean [B,1,T,1]": boolean(B, 1, T, 1),
    "boolean, rows without a key": boolean(1, 1, T, S).at[:, :, 3:12].set(False),
    "causal": Mask(QUERIES, KEYS, causal=True),
    "window": Mask(QUERIES, KEYS, window=3),
    "padding": Mask.cross_attention(KEY_SEGMENTS != 0),
    "segments": Mask(query_segments=QUERY_SEGMENTS, key_segments=KEY_SEGMENTS),
    "all together": Mask(QUERIES, KEYS, QUERY_SEGMENTS, KEY_SEGMENTS, causal=True, window=5),
}
BIASES = [(1, 1, 1, 1), (1, N, T, S), (B, 1, 1, S), (1, N, T, 1)]


def forward_and_gradients(attention, query, key, value, bias, weights):
    """The output, and the gradient of a weighted sum of it for every operand."""

    def loss(query, key, value, bias):
        output = attention(query, key, value, bias=bias)
        return (output.astype(jnp.float32) * weights).sum(), output

    (_, output), gradients = jax.value_and_grad(loss, argnums=(0, 1, 2, 3), has_aux=True)(
        query, key, value, bias
    )
    return output, gradients


def assert_equal_to_plain(mask, bias_shape, block, dtype=jnp.float32, tolerance=2e-6):
    query, key, value = operands(dtype)
    bias = None if bias_shape is None else normal(4, *bias_shape)
    weights = normal(5, B, T, N, HV)
    both = []
    for attention in (
        partial(attend, mask=mask, implementation="plain"),
        partial(chunked_attention, mask=mask, scale=SCALE, block=block),
    ):
        run = jax.jit(partial(forward_and_gradients, attention))
        both.append(jax.tree.leaves(run(query, key, value, bias, weights)))
    assert len(both[0]) == (4 if bias is None else 5)
    for i, (plain, chunked) in enumerate(zip(*both, strict=True)):
        assert plain.dtype == chunked.dtype and plain.shape == chunked.shape
        assert jnp.isfinite(chunked).all()
        # A bias that is the same for all keys has gradient 0: there the scale is that of its terms,
        # of which a broadcast bias sums many, and rounding grows with the root of their number.
        scale = max(1.0, float(jnp.abs(plain).max()))
        if i == 4:
            scale *= (B * N * T * S / plain.size) ** 0.5
        np.testing.assert_allclose(
            chunked.astype(jnp.float32), plain.astype(jnp.float32), rtol=0, atol=tolerance * scale
        )


@pytest.mark.parametrize("name", MASKS)
def test_equals_plain_under_every_mask(name):
    assert_equal_to_plain(MASKS[name], None, BLOCK)


@pytest.mark.parametrize("shape", BIASES, ids=str)
def test_equals_plain_under_every_bias(shape):
    assert_equal_to_plain(MASKS["all together"], shape, BLOCK)


@pytest.mark.parametrize("block", [3, 512])
def test_equals_plain_at_any_block_size(block):
    assert_equal_to_plain(MASKS["all together"], (1, N, T, S), block)


def test_equals_plain_in_bfloat16():
    assert_equal_to_plain(MASKS["all together"], (1, N, T, S), BLOCK, jnp.bfloat16, tolerance=0.02)


def test_a_row_that_sees_nothing_is_0_with_gradient_0():
    """0 / 0 in such a row once spread NaN to every parameter."""
    query, key, value = operands()
    hidden = jnp.arange(3, 12)  # a whole block of queries and parts of two
    mask = MASKS["boolean, rows without a key"]
    output, gradients = jax.jit(
        partial(
            forward_and_gradients,
            partial(chunked_attention, mask=mask, scale=SCALE, block=BLOCK),
        )
    )(query, key, value, normal(4, 1, N, T, S), normal(5, B, T, N, HV))
    np.testing.assert_array_equal(output[:, hidden], 0)
    np.testing.assert_array_equal(gradients[0][:, hidden], 0)
    np.testing.assert_array_equal(gradients[3][:, :, hidden], 0)
    assert all(jnp.isfinite(g).all() for g in gradients)


def test_vmap_equals_a_loop():
    query, key, value = (normal(i, 3, *x.shape) for i, x in enumerate(operands()))
    mask = MASKS["causal"]

    def run(query, key, value):
        return chunked_attention(query, key, value, mask=mask, scale=SCALE, block=BLOCK)

    many = jax.jit(jax.vmap(run))(query, key, value)
    one = jax.jit(run)
    for i in range(3):
        np.testing.assert_allclose(many[i], one(query[i], key[i], value[i]), atol=1e-6)


def test_logits_beyond_the_range_of_exp():
    """The running maximum rises and falls over the blocks; exp never overflows."""
    query, key, value = operands()
    run = partial(chunked_attention, scale=1.0, block=BLOCK)
    output = run(300 * query, key, value)
    expected = attend(300 * query, key, value, scale=1.0, implementation="plain")
    np.testing.assert_allclose(output, expected, atol=1e-4)


def test_memory_is_linear_in_length():
    def temporaries(length, implementation):
        def loss(query, key, value, segments):
            mask = Mask.self_attention(segments, causal=True)
            return attend(query, key, value, mask=mask, implementation=implementation).sum()

        heads = ((1, length, 1, 16), jnp.float32)
        segments = ((1, length), jnp.bool_)
        return temporary_bytes(jax.grad(loss, argnums=(0, 1, 2)), heads, heads, heads, segments)

    plain, plain_eightfold = temporaries(2048, "plain"), temporaries(16384, "plain")
    chunked, chunked_eightfold = temporaries(2048, "chunked"), temporaries(16384, "chunked")
    assert plain_eightfold > 48 * plain
    assert chunked_eightfold < 9 * chunked
    assert chunked_eightfold < plain_eightfold / 40
