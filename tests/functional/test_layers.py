"""Linear, layer norm and dropout against numpy and against their own statistics."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal
from transformer.functional import (
    dropout,
    gelu,
    gelu_tanh,
    layer_norm,
    linear,
    rms_norm,
    vocabulary_logits,
)

B, T, D, F = 2, 3, 5, 7


@pytest.mark.parametrize("leading", [(), (T,), (B, T)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear_is_a_matrix_product_on_the_last_axis(leading, with_bias):
    x, kernel = normal(0, *leading, D), normal(1, D, F)
    bias = normal(2, F) if with_bias else None
    expected = np.asarray(x) @ np.asarray(kernel) + (np.asarray(bias) if with_bias else 0)
    got = linear(x, kernel, bias)
    assert got.shape == (*leading, F)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dim", [5, 12, 64])
def test_linear_of_one_row_equals_that_row_among_others(dim):
    """One row takes another way on CPU: by blocks, as many as divide the dimension."""
    x, kernel, bias = normal(0, 1, dim), normal(1, dim, F), normal(2, F)
    together = linear(jnp.concatenate([x, x]), kernel, bias)
    np.testing.assert_allclose(linear(x, kernel, bias), together[:1], rtol=1e-5, atol=1e-5)
    gradient = jax.grad(lambda x: jnp.sin(linear(x, kernel)).sum())(x)
    expected = jnp.cos(x @ kernel) @ kernel.T
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a rule of the CPU")
def test_linear_of_one_row_reads_the_kernel_by_contiguous_blocks():
    def program(rows):
        return jax.jit(linear).lower(normal(0, rows, 64), normal(1, 64, F)).as_text()

    assert "tensor<8x8x7xf32>" in program(1)
    assert "tensor<8x8x7xf32>" not in program(2)


def test_linear_computes_in_the_type_of_its_input():
    for rows in (B, 1):
        got = linear(normal(0, rows, D).astype(jnp.bfloat16), normal(1, D, F), normal(2, F))
        assert got.dtype == jnp.bfloat16


@pytest.mark.parametrize("rows", [1, 2, 32, 33])
def test_vocabulary_logits_is_a_product_with_the_transposed_table(rows):
    """Few rows take another way on CPU: the table is the left operand."""
    x, table = normal(0, rows, D), normal(1, F, D)
    np.testing.assert_allclose(vocabulary_logits(x, table), x @ table.T, rtol=1e-5, atol=1e-5)
    gradients = jax.grad(lambda *a: jnp.sin(vocabulary_logits(*a)).sum(), (0, 1))(x, table)
    slope = jnp.cos(x @ table.T)
    for got, expected in zip(gradients, (slope @ table, slope.T @ x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    narrow = vocabulary_logits(x.astype(jnp.bfloat16), table.astype(jnp.bfloat16))
    assert narrow.dtype == jnp.float32


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a rule of the CPU")
@pytest.mark.parametrize(("rows", "swapped"), [(1, False), (2, True), (32, True), (33, False)])
def test_vocabulary_logits_of_few_vectors_has_the_table_on_the_left_of_the_compiled_product(
    rows, swapped
):
    lowered = jax.jit(vocabulary_logits).lower(normal(0, rows, D), normal(1, F, D))
    program: Any = lowered.compile().as_text()
    assert (f"f32[{F},{rows}]" in program) == swapped


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_layer_norm_equals_the_formula(epsilon, offset):
    """With an offset: E[x^2] - E[x]^2 would lose every digit of the variance."""
    x = np.asarray(normal(0, B, T, D)) + np.float32(offset)
    scale, bias = np.asarray(normal(1, D)), np.asarray(normal(2, D))
    wide = x.astype(np.float64)
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    expected = (wide - mean) / np.sqrt(variance + epsilon) * scale + bias
    got = layer_norm(jnp.asarray(x), jnp.asarray(scale), jnp.asarray(bias), epsilon)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-3 if offset else 1e-5)


def test_layer_norm_of_a_constant_row_is_its_bias_with_finite_gradient():
    x, bias = jnp.full((1, D), 3.0), normal(2, D)
    np.testing.assert_allclose(layer_norm(x, jnp.ones(D), bias)[0], bias, atol=1e-6)
    gradient = jax.grad(lambda x: layer_norm(x, jnp.ones(D), bias)[0, 0])(x)
    assert jnp.isfinite(gradient).all()


def test_layer_norm_takes_statistics_in_float32():
    x = (normal(0, 64, 257) + 8).astype(jnp.bfloat16)
    got = layer_norm(x, jnp.ones(257), jnp.zeros(257))
    assert got.dtype == jnp.bfloat16
    wide = layer_norm(x.astype(jnp.float32), jnp.ones(257), jnp.zeros(257))
    np.testing.assert_array_equal(got, wide.astype(jnp.bfloat16))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_zeroes_at_its_rate_and_keeps_the_expectation(rate):
    shape = (211, 503)
    x = normal(0, *shape) + 3
    y = dropout(x, rate, jax.random.key(1))
    is_kept = y != 0
    np.testing.assert_allclose(y[is_kept], x[is_kept] / (1 - rate), rtol=2e-4)
    deviation = np.sqrt(rate * (1 - rate) / x.size)
    assert abs(1 - is_kept.mean() - rate) < 4 * deviation
    assert y.mean() == pytest.approx(x.mean(), abs=4 * deviation * 4 / (1 - rate))


def test_dropout_decides_about_every_entry_on_its_own():
    """Two entries share a random word; a mask repeated over an axis once went unnoticed."""

    def signs(seed):
        kept = dropout(jnp.ones((401, 302)), 0.5, jax.random.key(seed)) != 0
        return np.where(kept, 1.0, -1.0)

    x = signs(0)
    # No row or column repeats another, and neighbours know nothing of each other.
    for rows in (x, x.T):
        correlations = rows @ rows.T / rows.shape[1] - np.eye(len(rows))
        assert np.abs(correlations).max() < 6 / np.sqrt(rows.shape[1])
    bound = 5 / np.sqrt(x.size)
    assert abs((x[:, ::2] * x[:, 1::2]).mean()) < bound
    assert abs((x[:, 1:-1:2] * x[:, 2::2]).mean()) < bound
    assert abs((x[:-1] * x[1:]).mean()) < bound
    assert abs((x * signs(1)).mean()) < bound


def test_dropout_is_a_function_of_its_key_and_its_gradient_is_the_mask():
    x = normal(0, T, D)
    key = jax.random.key(7)
    y = dropout(x, 0.3, key)
    np.testing.assert_array_equal(y, dropout(x, 0.3, key))
    gradient = jax.grad(lambda x: dropout(x, 0.3, key).sum())(x)
    np.testing.assert_allclose(gradient * x, y, rtol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 7])
def test_dropout_of_odd_widths_and_of_rate_0(width):
    x = normal(0, T, width).astype(jnp.bfloat16)
    y = dropout(x, 0.5, jax.random.key(0))
    assert y.shape == x.shape and y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(dropout(x, 0.0, jax.random.key(0)), x)


def test_dropout_of_nearly_1_stays_finite():
    y = dropout(jnp.ones((31, 37)), 0.999_999, jax.random.key(0))
    assert jnp.isfinite(y).all()


def test_rms_norm_has_no_mean_and_no_bias():
    """[3, 4]: mean square 12.5. An offset is kept, unlike in layer norm."""
    x = jnp.array([[3.0, 4.0]])
    root = np.sqrt(12.5 + 0.5)
    np.testing.assert_allclose(
        rms_norm(x, jnp.array([1.0, 2.0]), 0.5), [[3 / root, 8 / root]], rtol=1e-6
    )
    wide = rms_norm(jnp.array([[300.0, 400.0]], jnp.bfloat16), jnp.ones(2))
    assert wide.dtype == jnp.bfloat16
    np.testing.assert_allclose(wide.astype(jnp.float32), [[0.8485, 1.1314]], rtol=4e-3)


def test_the_two_gelus_differ_as_they_should():
    """gelu(1) = Phi(1) = 0.841345; the approximation of GPT gives 0.841192."""
    one = jnp.ones((1,))
    np.testing.assert_allclose(gelu(one), [0.8413447], rtol=1e-6)
    np.testing.assert_allclose(gelu_tanh(one), [0.8411920], rtol=1e-6)


def test_gelu_by_erf_is_as_exact_as_by_erfc():
    x = jnp.linspace(-9, 9, 1009)
    exact = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in np.asarray(x, np.float64)])
    np.testing.assert_allclose(gelu(x), exact, rtol=1e-6, atol=1e-6)
    slope = jax.vmap(jax.grad(lambda v: gelu(v[None])[0]))(x)
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(jax.nn.gelu))(x), atol=2e-3)
    assert float(jax.grad(lambda v: gelu(v[None])[0])(0.0)) == 0.5
