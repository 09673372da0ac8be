"""Masks against the matrices they stand for (rows are queries, columns are keys)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional import Mask


def table(drawing: str) -> np.ndarray:
    """``"1 . 1"``-style rows to a boolean matrix."""
    return np.array([[cell == "1" for cell in row.split()] for row in drawing.strip().split("\n")])


def dense(mask: Mask) -> np.ndarray:
    """The only matrix of a mask of one example."""
    matrix = mask.dense()
    assert matrix.shape[:2] == (1, 1)
    return np.asarray(matrix[0, 0])


def test_causal():
    expected = table("""
        1 . . .
        1 1 . .
        1 1 1 .
        1 1 1 1
    """)
    np.testing.assert_array_equal(
        dense(Mask.self_attention(jnp.ones((1, 4), bool), causal=True)), expected
    )


def test_causal_with_padding_is_the_matrix_of_the_docstring():
    expected = table("""
        1 . . .
        1 1 . .
        1 1 . .
        1 1 . 1
    """)
    mask = Mask(jnp.arange(4)[None], jnp.arange(4)[None], None, jnp.array([[1, 1, 0, 1]]), True)
    np.testing.assert_array_equal(dense(mask), expected)


def test_causal_compares_positions_not_indices():
    """A flag that compared indices let the last of 5 cached tokens see key 0 only."""
    one_step = Mask(jnp.array([[3]]), jnp.arange(5)[None], causal=True)
    np.testing.assert_array_equal(dense(one_step), table("1 1 1 1 ."))
    two_steps = Mask(jnp.array([[3, 4]]), jnp.arange(5)[None], causal=True)
    np.testing.assert_array_equal(
        dense(two_steps),
        table("""
            1 1 1 1 .
            1 1 1 1 1
        """),
    )
    scattered = Mask(jnp.array([[5, 1]]), jnp.array([[7, 0, 5]]), causal=True)
    np.testing.assert_array_equal(
        dense(scattered),
        table("""
            . 1 1
            . 1 .
        """),
    )


def test_window_is_a_band():
    expected = table("""
        1 1 . . .
        1 1 1 . .
        . 1 1 1 .
        . . 1 1 1
        . . . 1 1
    """)
    segments = jnp.ones((1, 5), bool)
    np.testing.assert_array_equal(dense(Mask.self_attention(segments, window=2)), expected)
    np.testing.assert_array_equal(
        dense(Mask.self_attention(segments, window=2, causal=True)), np.tril(expected)
    )


def test_segments_see_themselves_and_padding_sees_and_is_seen_by_nothing():
    expected = table("""
        1 1 . . .
        1 1 . . .
        . . 1 1 .
        . . 1 1 .
        . . . . .
    """)
    mask = Mask.self_attention(jnp.array([[1, 1, 2, 2, 0]]))
    np.testing.assert_array_equal(dense(mask), expected)


def test_cross_attention_hides_padding_from_every_query():
    mask = Mask.cross_attention(jnp.array([[1, 1, 0], [1, 0, 0]]))
    assert mask.dense().shape == (2, 1, 1, 3)
    np.testing.assert_array_equal(mask.dense()[:, 0, 0], [[1, 1, 0], [1, 0, 0]])
    # Any segment but 0 is visible, whatever its number.
    np.testing.assert_array_equal(
        Mask.cross_attention(jnp.array([[3, 7, 0]])).dense()[0, 0, 0], [1, 1, 0]
    )


def test_booleans_are_segments():
    segments = jnp.array([[1, 1, 0, 1]])
    for causal in (False, True):
        np.testing.assert_array_equal(
            Mask.self_attention(segments, causal=causal).dense(),
            Mask.self_attention(segments > 0, causal=causal).dense(),
        )


def test_rows_of_a_batch_may_differ_in_positions():
    """Left padding: the same key positions, shifted by row."""
    positions = jnp.array([[0, 1, 2], [0, 0, 1]])
    mask = Mask.self_attention(jnp.array([[1, 1, 1], [0, 1, 1]]), positions, causal=True).dense()
    np.testing.assert_array_equal(mask[0, 0], np.tril(np.ones((3, 3), bool)))
    np.testing.assert_array_equal(
        mask[1, 0],
        table("""
            . . .
            . 1 .
            . 1 1
        """),
    )


def test_no_rule_hides_nothing():
    np.testing.assert_array_equal(Mask().dense(), np.ones((1, 1, 1, 1), bool))


SEGMENTS = jnp.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 0, 0]])
KEY_SEGMENTS = jnp.array([[1, 1, 2, 2, 2, 2, 2, 2, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]])
QUERIES, KEYS = jnp.arange(7)[None] + 2, jnp.arange(11)[None]


@pytest.mark.parametrize(
    "mask",
    [
        Mask(QUERIES, KEYS, causal=True),
        Mask(QUERIES, KEYS, window=3),
        Mask(query_segments=SEGMENTS, key_segments=KEY_SEGMENTS),
        Mask(QUERIES, KEYS, SEGMENTS, KEY_SEGMENTS, causal=True, window=4),
    ],
    ids=["causal", "window", "segments", "all"],
)
def test_a_block_is_that_part_of_the_whole(mask):
    whole = mask.dense()
    assert whole.any() and not whole.all()
    block = jax.jit(lambda mask, t, s: mask.block((t, 3), (s, 5)))
    for t, s in ((0, 0), (4, 6), (2, 5)):
        np.testing.assert_array_equal(block(mask, t, s), whole[:, :, t : t + 3, s : s + 5])
    np.testing.assert_array_equal(mask.block(queries=(4, 3)), whole[:, :, 4:])
    np.testing.assert_array_equal(mask.block(keys=(6, 5)), whole[..., 6:])


def test_an_axis_no_rule_depends_on_stays_1_in_a_block():
    padding = Mask.cross_attention(KEY_SEGMENTS)
    assert padding.block((3, 2), (4, 5)).shape == (2, 1, 1, 5)


def test_causal_without_positions_is_an_error():
    with pytest.raises(ValueError, match="needs query_positions and key_positions"):
        Mask(key_segments=SEGMENTS, causal=True).dense()
    with pytest.raises(ValueError, match="needs query_positions and key_positions"):
        Mask(query_positions=QUERIES, window=2).dense()
