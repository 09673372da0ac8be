"""What "Attention Is All You Need" says about its parts, checked on ours."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.extend.core import jaxprs_in_params

from transformer.config import ModelConfig
from transformer.functional import Mask, attend, sinusoids
from transformer.models.seq2seq import Seq2Seq
from transformer.modules.block import Block
from transformer.modules.embed import Embedding

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
        return jnp.asarray(attend(x, x, x, mask=Mask.self_attention(segments, causal=causal)))

    moved = self_attention(x[:, permutation], causal=False)
    np.testing.assert_allclose(moved, self_attention(x, False)[:, permutation], atol=1e-6)
    moved = self_attention(x[:, permutation], causal=True)
    assert jnp.abs(moved - self_attention(x, True)[:, permutation]).max() > 0.1


def block_shapes(config: ModelConfig):
    """The parameters of an encoder layer, as shapes, and its jaxpr on [B, T, D]."""
    block = Block(config)
    x = jax.ShapeDtypeStruct((B, T, config.model_dim), jnp.float32)
    shapes = jax.eval_shape(lambda key, x: block.init(key, x, None), jax.random.key(0), x)
    jaxpr = jax.make_jaxpr(lambda params, x: block.apply(params, x, None))(shapes, x)
    return jax.tree.leaves(shapes), jaxpr


def matmul_flops(jaxpr) -> int:
    """2 x the multiplications of every matrix product in a jaxpr and those inside it."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            ((contracted, _), _) = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            summed = math.prod(left[axis] for axis in contracted)
            total += 2 * summed * math.prod(equation.outvars[0].aval.shape)
        total += sum(matmul_flops(inner) for inner in jaxprs_in_params(equation.params))
    return total


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_a_layer_has_4dd_plus_2df_weights_and_the_number_of_heads_costs_nothing(heads):
    """Section 3.2.2: the total cost is similar to that of single-head attention of full width."""
    dim, ff_dim = 30, 53
    config = ModelConfig(model_dim=dim, ff_dim=ff_dim, num_heads=heads, attention="plain")
    leaves, jaxpr = block_shapes(config)
    weights = sum(math.prod(leaf.shape) for leaf in leaves if len(leaf.shape) == 2)
    assert weights == 4 * dim**2 + 2 * dim * ff_dim
    # Every weight is used once a token; the two products with T x T are 2 T^2 D each.
    assert matmul_flops(jaxpr.jaxpr) == 2 * B * T * weights + 4 * B * T**2 * dim


@pytest.mark.parametrize("attention", ["plain", "chunked"])
def test_no_output_of_the_decoder_depends_on_a_later_input(attention):
    """d output[t] / d input[t + 1] is exactly 0, and every other one in reach is not.

    The derivatives are taken through the whole model, with respect to the decoder's and the
    encoder's embedded inputs; examples never mix.
    """
    config = ModelConfig(
        num_layers=1, model_dim=N * H, ff_dim=19, num_heads=N, vocab_size=31, attention=attention
    )
    model = Seq2Seq(config)
    source = jax.random.randint(jax.random.key(0), (B, S), 1, 31)
    inputs = jax.random.randint(jax.random.key(1), (B, T), 1, 31)
    variables = model.init(jax.random.key(2), source, inputs)
    direction = normal(3, config.model_dim)

    def outputs(shifts):
        """[B, T], each position's hidden vector along a random direction."""

        def shift(call, args, kwargs, context):
            embedded = call(*args, **kwargs)
            if isinstance(context.module, Embedding) and context.method_name == "__call__":
                embedded += shifts[args[0].shape[1]]
            return embedded

        with nn.intercept_methods(shift):
            return jnp.asarray(model.apply(variables, source, inputs, method="hidden")) @ direction

    zeros = {length: jnp.zeros((B, length, config.model_dim)) for length in (S, T)}
    jacobian = jax.jit(jax.jacrev(outputs))(zeros)
    same_example = np.eye(B, dtype=bool)[:, None, :, None]
    of_inputs, of_source = (
        (jacobian[length] != 0).any(axis=-1) for length in (T, S)
    )  # [B, T, B, T] and [B, T, B, S]
    np.testing.assert_array_equal(of_inputs, same_example & np.tri(T, dtype=bool)[:, None])
    np.testing.assert_array_equal(of_source, np.broadcast_to(same_example, (B, T, B, S)))
