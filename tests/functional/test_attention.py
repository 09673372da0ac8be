"""Attention against loops in numpy that follow the equation word for word."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal, temporary_bytes
from transformer.functional import Mask, attend, cudnn_attention
from transformer.functional.partition import Placing, placing

B, T, S, K, G, H, HV = 5, 7, 11, 3, 2, 13, 17
N = K * G


def operands():
    return normal(0, B, T, N, H), normal(1, B, S, K, H), normal(2, B, S, K, HV)


def by_hand(query, key, value, mask=None, bias=None, scale=H**-0.5):
    """Paper, equation 1: one query of one head at a time, in float64."""
    query, key, value = (np.asarray(x, np.float64) for x in (query, key, value))
    batch, length, heads, _ = query.shape
    width, group = key.shape[1], heads // key.shape[2]
    shape = (batch, heads, length, width)
    mask = np.broadcast_to(True if mask is None else np.asarray(mask), shape)
    bias = np.broadcast_to(0.0 if bias is None else np.asarray(bias), shape)
    output = np.zeros((batch, length, heads, value.shape[-1]))
    all_weights = np.zeros(shape)
    for b, n, t in np.ndindex(batch, heads, length):
        seen = [s for s in range(width) if mask[b, n, t, s]]
        if not seen:
            continue
        logits = np.array(
            [scale * (query[b, t, n] @ key[b, s, n // group]) + bias[b, n, t, s] for s in seen]
        )
        weights = np.exp(logits) / np.exp(logits).sum()
        for s, weight in zip(seen, weights, strict=True):
            output[b, t, n] += weight * value[b, s, n // group]
            all_weights[b, n, t, s] = weight
    return output, all_weights


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
@pytest.mark.parametrize(
    ("scale", "masked", "biased"),
    [(None, False, False), (1.0, False, False), (None, True, False), (1.0, True, True)],
)
def test_equals_the_equation(implementation, scale, masked, biased):
    query, key, value = operands()
    mask = jax.random.bernoulli(jax.random.key(3), 0.6, (B, N, T, S)) if masked else None
    bias = normal(4, 1, N, T, S) if biased else None
    got = jax.jit(attend, static_argnames=("scale", "implementation"))(
        query, key, value, mask=mask, bias=bias, scale=scale, implementation=implementation
    )
    expected, _ = by_hand(query, key, value, mask, bias, H**-0.5 if scale is None else scale)
    assert got.shape == (B, T, N, HV)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)


def test_weights_are_those_of_the_equation():
    query, key, value = operands()
    mask = (jnp.arange(S)[None] <= jnp.arange(T)[:, None] + 2)[None, None]
    output, weights = jax.jit(attend, static_argnames="return_weights")(
        query, key, value, mask=mask, return_weights=True
    )
    expected_output, expected = by_hand(query, key, value, mask)
    assert weights.shape == (B, N, T, S) and weights.dtype == jnp.float32
    np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(output, expected_output, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
def test_a_query_that_sees_nothing_gives_0_and_finite_gradients(implementation):
    """Masks of -inf turned such a row into 0 / 0: NaN there, and NaN in every gradient."""

    @jax.jit
    def output_and_gradients(mask, cotangent, *operands):
        output, pull = jax.vjp(
            lambda *x: attend(*x, mask=mask, implementation=implementation), *operands
        )
        return output, pull(cotangent)

    mask = jnp.ones((B, 1, T, S), bool).at[2, :, 4].set(False)
    output, gradients = output_and_gradients(mask, normal(3, B, T, N, HV), *operands())
    np.testing.assert_array_equal(output[2, 4], 0)
    assert (jnp.abs(output).sum(axis=(-2, -1)) == 0).sum() == 1
    assert all(jnp.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][2, 4], 0)

    nobody = jnp.zeros_like(mask)
    output, gradients = output_and_gradients(nobody, normal(3, B, T, N, HV), *operands())
    for array in (output, *gradients):
        np.testing.assert_array_equal(array, 0)


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_content_of_padding_changes_nothing(implementation, causal):
    """Key lengths once were taken and ignored, and a fused path once dropped the padding mask."""
    valid = jnp.arange(S)[None] < jnp.array([11, 2, 5, 7, 3])[:, None]
    query, (_, key, value) = normal(0, B, S, N, H), operands()
    padding = ~valid[..., None, None]

    @jax.jit
    def run(query, key, value):
        mask = Mask.self_attention(valid, causal=True) if causal else Mask.cross_attention(valid)
        return attend(query, key, value, mask=mask, implementation=implementation)

    before = run(query, key, value)
    after = run(query, jnp.where(padding, 1e4, key), jnp.where(padding, -1e4, value))
    np.testing.assert_array_equal(before[valid], after[valid])
    assert jnp.isfinite(after).all()
    # The same call on other content of the *visible* keys does change.
    assert not np.allclose(before[valid], run(query, key, value + 1)[valid])


def test_causal_output_has_no_gradient_from_the_future():
    x = normal(0, 1, T, 2, H)
    mask = Mask.self_attention(jnp.ones((1, T), bool), causal=True)
    # [T, 1, T, 2, H]
    jacobian = jax.jit(jax.jacrev(lambda k: attend(x, k, k, mask=mask).sum(axis=(0, 2, 3))))(x)
    reach = jnp.abs(jacobian).sum(axis=(1, 3, 4)) > 0
    np.testing.assert_array_equal(reach, np.tril(np.ones((T, T), bool)))


def test_key_value_heads_serve_consecutive_query_heads():
    query, key, value = operands()
    run = jax.jit(attend)
    grouped = run(query, key, value)
    repeated = run(query, jnp.repeat(key, G, axis=2), jnp.repeat(value, G, axis=2))
    np.testing.assert_allclose(grouped, repeated, rtol=1e-6, atol=1e-6)


def test_large_logits_do_not_overflow():
    query, key, value = operands()
    output = attend(query * 1e4, key * 1e4, value)
    assert jnp.isfinite(output).all()


def test_dropout_acts_on_the_weights_and_keeps_their_expectation():
    query, key, value = normal(0, 1, T, 1, H), normal(1, 1, S, 1, H), jnp.eye(S)[None, :, None]
    run = jax.jit(attend, static_argnames=("dropout_rate", "return_weights"))
    plain, weights = run(query, key, value, return_weights=True)

    def dropped(key_):
        return attend(query, key, value, dropout_rate=0.25, dropout_key=key_)

    # With an identity as the values the output *is* the dropped weights.
    outputs = jax.jit(jax.vmap(dropped))(jax.random.split(jax.random.key(2), 2003))[:, 0, :, 0]
    ratio = outputs / weights[0, 0]
    is_kept = ratio > 0.5
    np.testing.assert_allclose(ratio[is_kept], 4 / 3, rtol=1e-5)
    np.testing.assert_array_equal(ratio[~is_kept], 0)
    np.testing.assert_allclose(is_kept.mean(axis=0), 0.75, atol=0.05)
    np.testing.assert_allclose(outputs.mean(axis=0), plain[0, :, 0], atol=0.01)
    # The weights handed back are those before dropout.
    _, returned = run(
        query, key, value, dropout_rate=0.25, dropout_key=jax.random.key(3), return_weights=True
    )
    np.testing.assert_array_equal(returned, weights)


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
def test_bfloat16_in_bfloat16_out_and_softmax_in_float32(implementation):
    wide = operands()
    narrow = tuple(x.astype(jnp.bfloat16) for x in wide)
    got = jax.jit(attend, static_argnames="implementation")(*narrow, implementation=implementation)
    assert got.dtype == jnp.bfloat16
    query, key, value = (x.astype(jnp.float32) for x in narrow)
    expected, _ = by_hand(query, key, value)
    np.testing.assert_allclose(got.astype(jnp.float32), expected, atol=0.02)


def test_auto_takes_blocks_where_the_matrix_is_large():
    def temporaries(length, implementation):
        return temporary_bytes(
            lambda q: attend(q, q, q, implementation=implementation),
            ((1, length, 1, 2), jnp.float32),
        )

    long, short = temporaries(2048, "auto"), temporaries(128, "auto")
    assert long == temporaries(2048, "chunked")
    assert short == temporaries(128, "plain")
    assert temporaries(2048, "plain") > 2 * long


def kernels_in(kernel, length=512, dtype=jnp.float32, **options) -> int:
    """How many kernels `attend` calls on a device that has them."""
    means = Placing(lambda x, _: x, 1, lambda function, *_: function, kernel)
    with placing(means):
        x = jnp.zeros((1, length, 2, 8), dtype)
        jaxpr = str(jax.make_jaxpr(lambda x: attend(x, x, x, **options))(x))
    return jaxpr.count("pallas_call[") + jaxpr.count("cudnn")


def test_auto_takes_the_kernel_of_the_devices_where_it_can():
    places = jnp.arange(512)[None]
    causal = Mask.self_attention(None, places, causal=True)
    anywhere = Mask(places, places, causal=True)
    assert kernels_in("splash") == kernels_in("splash", mask=causal) == 1
    assert kernels_in("splash", 511) == kernels_in(None) == 0
    others: Any = (
        {"implementation": "plain"},
        {"implementation": "chunked"},
        {"mask": causal.dense()},
        {"mask": anywhere},
        {"bias": jnp.zeros((1, 1, 512, 512))},
        {"return_weights": True},
        {"dropout_rate": 0.1, "dropout_key": jax.random.key(0)},
    )
    for options in others:
        assert kernels_in("splash", **options) == 0, options


def test_the_kernel_of_a_gpu_is_taken_where_it_can_be(monkeypatch):
    """cuDNN is needed even to trace it, so XLA stands in."""
    monkeypatch.setattr(
        cudnn_attention, "cudnn_attention", partial(cudnn_attention.cudnn_attention, program="xla")
    )
    called = []
    original = jax.nn.dot_product_attention
    monkeypatch.setattr(
        jax.nn, "dot_product_attention", lambda *a, **k: called.append(1) or original(*a, **k)
    )
    kernels_in("cudnn", dtype=jnp.bfloat16)
    assert called == [1]
    kernels_in("cudnn")  # of float32 it cannot
    assert called == [1]


def test_a_kernel_that_is_asked_for_what_it_cannot_do_says_so():
    query, key, value = operands()
    for implementation in ("splash", "cudnn"):
        with pytest.raises(ValueError, match=f"the kernel '{implementation}' cannot do this"):
            attend(query, key, value, bias=jnp.zeros((1, 1, 1, S)), implementation=implementation)


def test_mistakes_are_named():
    query, key, value = operands()
    with pytest.raises(ValueError, match="6 query heads are not a multiple of 4"):
        attend(query, normal(1, B, S, 4, H), normal(2, B, S, 4, HV))
    with pytest.raises(ValueError, match=r"dropout_rate = 0.5 needs a dropout_key"):
        attend(query, key, value, dropout_rate=0.5)


@pytest.mark.parametrize("implementation", ["plain", "chunked"])
def test_a_bias_of_minus_infinity_hides_a_key(implementation):
    """With a mask besides, the masked keys won the softmax; without one the row was NaN."""
    query, key, value = (jax.random.normal(jax.random.key(i), (2, 3, 5, 7)) for i in range(3))
    bias = jnp.zeros((1, 1, 3, 3)).at[..., 1, :].set(-jnp.inf).at[..., 2, 0].set(-jnp.inf)
    mask = jnp.ones((1, 1, 3, 3), bool).at[..., 1, 1:].set(False)
    options: Any = {"mask": mask, "bias": bias, "implementation": implementation}
    output = attend(query, key, value, **options)
    np.testing.assert_array_equal(output[:, 1], 0)
    np.testing.assert_allclose(
        output[:, 2], attend(query[:, 2:], key[:, 1:], value[:, 1:])[:, 0], rtol=1e-5, atol=1e-6
    )
    gradient = jax.grad(lambda q: attend(q, key, value, **options).sum())(query)
    assert jnp.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[:, 1], 0)
