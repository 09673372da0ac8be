"""The cross-entropy's values, and that the one made in chunks is the same one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal, temporary_bytes
from transformer.functional import cross_entropy, linear_cross_entropy

B, T, V, D = 3, 5, 11, 7


def by_hand(logits, target, epsilon):
    """The formula, for one token, in float64."""
    log_p = np.asarray(logits, np.float64)
    log_p = log_p - np.log(np.exp(log_p).sum())
    uniform = epsilon * log_p.mean() if epsilon else 0.0
    return -((1 - epsilon) * log_p[target] + uniform)


def test_smoothing_is_spread_over_the_whole_vocabulary():
    """Several conventions exist (leave out the target; leave out padding): ours is pinned."""
    logits, target = jnp.array([[2.0, 0, 0, 0, 0]]), jnp.array([0])
    smoothed = cross_entropy(logits, target, label_smoothing=0.1)
    assert float(smoothed.loss) == pytest.approx(0.5927, abs=5e-5)
    assert float(smoothed.nll) == pytest.approx(0.4327, abs=5e-5)
    assert float(smoothed.weight) == 1
    plain = cross_entropy(logits, target)
    assert float(plain.loss) == float(plain.nll) == pytest.approx(0.4327, abs=5e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
def test_sums_the_weighted_formula(epsilon):
    logits = normal(0, B, T, V)
    targets = jax.random.randint(jax.random.key(1), (B, T), 0, V)
    weights = jax.random.uniform(jax.random.key(2), (B, T))
    sums = jax.jit(cross_entropy, static_argnums=3)(logits, targets, weights, epsilon)
    expected = {
        e: sum(weights[i] * by_hand(logits[i], targets[i], e) for i in np.ndindex(B, T))
        for e in (epsilon, 0.0)
    }
    assert float(sums.loss) == pytest.approx(float(expected[epsilon]), rel=1e-5)
    assert float(sums.nll) == pytest.approx(float(expected[0.0]), rel=1e-5)
    assert float(sums.weight) == pytest.approx(float(weights.sum()), rel=1e-6)


def test_the_gradient_is_softmax_minus_the_smoothed_target():
    logits, targets = normal(0, T, V), jnp.array([0, 3, 10, 3, 1])
    gradient = jax.jit(jax.grad(lambda x: cross_entropy(x, targets, None, 0.1).loss))(logits)
    smoothed = 0.9 * jax.nn.one_hot(targets, V) + 0.1 / V
    np.testing.assert_allclose(gradient, jax.nn.softmax(logits) - smoothed, atol=1e-6)


def test_the_loss_does_not_vary_with_padding():
    """A smoothed loss once grew with the number of pad columns in the batch."""
    logits, targets = normal(0, B, T, V), jnp.full((B, T), 4)
    loss = jax.jit(cross_entropy, static_argnums=3)
    before = loss(logits, targets, jnp.ones((B, T)), 0.1)
    after = loss(
        jnp.concatenate([logits, normal(1, B, 20, V)], axis=1),
        jnp.pad(targets, ((0, 0), (0, 20))),
        jnp.pad(jnp.ones((B, T)), ((0, 0), (0, 20))),
        0.1,
    )
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_pad_target_adds_0_even_at_probability_0():
    """A pad target of probability 0 once added 0 * log 0 and turned the loss to NaN."""
    logits = normal(0, T, V).at[:, 0].set(-jnp.inf)
    targets = jnp.array([3, 0, 5, 0, 0])
    weights = (targets != 0).astype(jnp.float32)

    loss_and_gradient = jax.jit(
        jax.value_and_grad(lambda x: cross_entropy(x, targets, weights).loss)
    )
    loss, gradient = loss_and_gradient(logits)
    expected = sum(by_hand(logits[i], targets[i], 0.0) for i in (0, 2))
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    assert jnp.isfinite(gradient).all()
    np.testing.assert_array_equal(gradient[jnp.array([1, 3, 4])], 0)


def test_micro_batches_add_up_to_the_batch():
    """Means of micro-batches gave the 4 tokens of one the weight of the 60 of another."""
    logits = normal(0, 64, V)
    targets = jax.random.randint(jax.random.key(1), (64,), 0, V)

    def mean(logits, parts):
        sums = [cross_entropy(logits[p], targets[p], label_smoothing=0.1) for p in parts]
        return sum(s.loss for s in sums) / sum(s.weight for s in sums)

    whole = jax.jit(jax.value_and_grad(lambda x: mean(x, [slice(0, 64)])))(logits)
    parts = jax.jit(jax.value_and_grad(lambda x: mean(x, [slice(0, 4), slice(4, 64)])))(logits)
    np.testing.assert_allclose(whole[0], parts[0], rtol=1e-6)
    np.testing.assert_allclose(whole[1], parts[1], rtol=1e-5, atol=1e-9)


def test_bfloat16_logits_give_the_float32_loss_of_those_logits():
    """A loss taken in bfloat16 moves in steps of 0.03 at 7 nats."""
    logits = (4 * normal(0, 1, 501)).astype(jnp.bfloat16)
    targets = jnp.array([17])
    loss = cross_entropy(logits, targets, label_smoothing=0.1).loss
    assert loss.dtype == jnp.float32
    assert float(loss) == float(
        cross_entropy(logits.astype(jnp.float32), targets, label_smoothing=0.1).loss
    )
    assert float(loss) == pytest.approx(by_hand(logits[0], 17, 0.1), rel=1e-6)
    assert float(loss) != float(loss.astype(jnp.bfloat16))


def whole(hidden, embedding, targets, weights, epsilon):
    return cross_entropy(hidden @ embedding.T, targets, weights, epsilon)


# 1031 rows of a large vocabulary are three chunks, the last one short; the others are one.
@pytest.mark.parametrize(
    ("rows", "size", "epsilon"), [(1, V, 0.1), (17, V, 0.0), (1031, V, 0.1), (1031, 2053, 0.1)]
)
def test_in_chunks_equals_in_one_forward_and_backward(rows, size, epsilon):
    hidden, embedding = normal(0, rows, D), normal(1, size, D)
    targets = jax.random.randint(jax.random.key(2), (rows,), 0, size)
    weights = jnp.maximum(jax.random.uniform(jax.random.key(3), (rows,)) - 0.3, 0.0).at[0].set(1)

    def compute(function):
        def loss(hidden, embedding):
            sums = function(hidden, embedding, targets, weights, epsilon)
            return 3 * sums.loss / sums.weight + sums.nll, sums

        (_, sums), gradients = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(
            hidden, embedding
        )
        return (*sums, *gradients)

    for chunked, expected in zip(compute(linear_cross_entropy), compute(whole), strict=True):
        assert chunked.shape == expected.shape and chunked.dtype == expected.dtype
        np.testing.assert_allclose(chunked, expected, rtol=1e-5, atol=1e-6)


def test_in_chunks_equals_in_one_in_bfloat16():
    hidden, embedding = normal(0, 523, 32).astype(jnp.bfloat16), normal(1, 2053, 32)
    targets = jax.random.randint(jax.random.key(2), (523,), 0, 2053)
    weights = jnp.ones(523)

    def compute(function):
        return jax.jit(
            jax.value_and_grad(
                lambda h, e: function(h, e, targets, weights, 0.1).loss / 523, argnums=(0, 1)
            )
        )(hidden, embedding)

    loss, gradients = compute(linear_cross_entropy)
    expected, expected_gradients = compute(
        lambda h, e, *rest: whole(h.astype(jnp.float32), e.astype(jnp.bfloat16), *rest)
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert gradients[0].dtype == jnp.bfloat16 and gradients[1].dtype == jnp.float32
    for got, wanted in zip(gradients, expected_gradients, strict=True):
        got, wanted = got.astype(jnp.float32), wanted.astype(jnp.float32)
        np.testing.assert_allclose(got, wanted, atol=0.01 * float(jnp.abs(wanted).max()))


def test_padding_weighs_nothing_in_chunks():
    hidden, embedding = normal(0, 17, D), normal(1, V, D)
    targets = jnp.arange(17) % V
    weights = (jnp.arange(17) < 13).astype(jnp.float32)

    @jax.jit
    @jax.value_and_grad
    def loss_and_gradient(hidden):
        return linear_cross_entropy(hidden, embedding, targets, weights).loss

    loss, gradient = loss_and_gradient(hidden)
    np.testing.assert_array_equal(gradient[13:], 0)
    assert (jnp.abs(gradient[:13]).sum(axis=-1) > 0).all()
    assert loss == loss_and_gradient(hidden.at[13:].set(99.0))[0]


def test_logits_are_never_all_alive():
    rows, vocabulary = 8192, 4099

    def temporaries(function):
        return temporary_bytes(
            jax.grad(lambda *x: function(*x, 0.1).loss, argnums=(0, 1)),
            ((rows, 8), jnp.float32),
            ((vocabulary, 8), jnp.float32),
            ((rows,), jnp.int32),
            ((rows,), jnp.float32),
        )

    all_logits = 4 * rows * vocabulary
    assert temporaries(linear_cross_entropy) < all_logits / 4
    assert temporaries(whole) >= all_logits


def test_a_small_vocabulary_is_one_chunk_without_padding():
    def program(rows, size):
        shapes = [(rows, D), (size, D), (rows,), (rows,)]
        types = [jnp.float32, jnp.float32, jnp.int32, jnp.float32]
        arguments = [jax.ShapeDtypeStruct(*both) for both in zip(shapes, types, strict=True)]
        return jax.jit(linear_cross_entropy).lower(*arguments).as_text()

    assert "tensor<1x769x7xf32>" in program(769, 71)
    assert "tensor<2x392x7xf32>" in program(769, 2053)
