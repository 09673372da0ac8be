import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.decoding.topk import grouped_top_k


def reference(logits, offsets, k, excluded):
    """By a stable sort of everything: falling values, the first index of equal ones first."""
    scores = np.array(logits + offsets[..., None])
    scores[..., list(excluded)] = -np.inf
    flat = scores.reshape(len(scores), -1)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(flat, order, axis=1), order


@pytest.mark.parametrize("vocab", [7, 127, 211, 2 * 131], ids=str)
@pytest.mark.parametrize("k", [1, 5])
def test_equals_a_stable_sort_also_among_ties(vocab, k):
    """Vocabularies below one group, prime, and divisible by a group; many equal values."""
    logits = jax.random.randint(jax.random.key(vocab), (3, 2, vocab), 0, 9).astype(jnp.float32)
    offsets = jnp.array([[0.0, 0.5], [1.0, -jnp.inf], [-2.0, -2.0]])
    excluded = (0, 3, vocab - 1)
    values, indices = grouped_top_k(logits, offsets, k, excluded)
    expected_values, expected_indices = reference(logits, offsets, k, excluded)
    np.testing.assert_array_equal(values, expected_values)
    finite = np.isfinite(expected_values)
    np.testing.assert_array_equal(
        np.where(finite, indices, -1), np.where(finite, expected_indices, -1)
    )


def test_huge_excluded_values_do_not_hide_their_neighbours():
    logits = jnp.arange(262.0)[None, None].at[..., 257:].set(1e9)
    values, indices = grouped_top_k(logits, jnp.zeros((1, 1)), 3, tuple(range(257, 262)))
    assert indices.tolist() == [[256, 255, 254]]
    assert values.tolist() == [[256.0, 255.0, 254.0]]
