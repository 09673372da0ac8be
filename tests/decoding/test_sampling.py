"""Tokens drawn from known probabilities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal
from transformer.config import SamplingConfig
from transformer.decoding.beam import Vocabulary
from transformer.decoding.sampling import NO_TOKEN, draw, sample, top_p_mask

V = 523
PLAIN = Vocabulary(V, 0, 1)


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def drawn(logits, draws, vocabulary=None, **settings) -> np.ndarray:
    """Tokens drawn from one row of logits."""
    logits = jnp.broadcast_to(jnp.asarray(logits, jnp.float32), (draws, len(logits)))
    vocabulary = vocabulary or Vocabulary(logits.shape[1], 0, 1)
    function = jax.jit(
        functools.partial(sample, config=SamplingConfig(**settings), vocabulary=vocabulary)
    )
    return np.asarray(function(keys(draws), logits))


def assert_drawn_with(tokens, probabilities) -> None:
    """Pearson's test; the seed is fixed, so it passes always or never."""
    probabilities = np.asarray(probabilities, np.float64)
    counts = np.bincount(tokens, minlength=len(probabilities))
    assert not counts[probabilities == 0].any()
    expected = len(tokens) * probabilities[probabilities > 0]
    statistic = ((counts[probabilities > 0] - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5 + 4


# The nucleus


def nucleus_by_sorting(weights: np.ndarray, p: float) -> np.ndarray:
    order = np.argsort(-weights, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    kept = np.zeros(len(weights), bool)
    kept[order[before < p * weights.sum()]] = True
    return kept


@pytest.mark.parametrize(("p", "kept"), [(0.9, 2), (0.49, 1), (1e-9, 1), (0.92, 3), (0.99999, 3)])
def test_the_token_that_crosses_p_belongs_to_the_nucleus(p, kept):
    """Programs dropped it, or, for a small p, everything."""
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        weights = jnp.array([0.5, 0.41, 0.09])[jnp.array(order)]
        mask = top_p_mask(weights[None], p)[0]
        assert [order[i] for i in np.flatnonzero(mask)] == sorted(range(kept), key=order.index)


def test_p_of_1_keeps_all():
    assert set(drawn(jnp.log(jnp.array([0.5, 0.41, 0.09])), 500, top_p=1.0)) == {0, 1, 2}
    assert set(drawn(jnp.log(jnp.array([0.5, 0.41, 0.09])), 500, top_p=0.9)) == {0, 1}


@pytest.mark.parametrize("p", [0.03, 0.5, 0.77, 0.999])
def test_the_nucleus_is_what_sorting_finds(p):
    weights = jnp.exp(2 * normal(1, 5, V))
    mask = np.asarray(jax.jit(top_p_mask, static_argnums=1)(weights, p))
    for row, found in zip(np.asarray(weights, np.float64), mask, strict=True):
        np.testing.assert_array_equal(found, nucleus_by_sorting(row, p))


def test_of_equal_weights_the_first_belong_to_the_nucleus():
    weights = jnp.array([[1, 2, 1, 1, 2, 1.0], [1, 1, 1, 1, 1, 1], [0, 0, 3, 0, 0, 0]])
    mask = top_p_mask(weights, 0.7)
    assert mask[1].tolist() == [True] * 5 + [False]
    assert drawn(jnp.log(weights[2]), 50, top_p=0.7).tolist() == [2] * 50
    # 5.6 of 8 are reached by the two of weight 2 and the first two of weight 1.
    assert mask[0].tolist() == [True, True, True, False, True, False]


# The draw


def test_draws_follow_the_probabilities():
    logits = 2 * normal(2, 31)
    for temperature in (0.7, 1.0, 1.9):
        tokens = drawn(logits, 20_000, temperature=temperature)
        assert_drawn_with(tokens, jax.nn.softmax(logits / temperature))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"top_k": 3}, [0.4, 0.3, 0.15, 0, 0]),
        ({"top_k": 9}, [0.4, 0.3, 0.15, 0.1, 0.05]),
        ({"top_p": 0.8}, [0.4, 0.3, 0.15, 0, 0]),
        ({"min_p": 0.3}, [0.4, 0.3, 0.15, 0, 0]),
        ({"min_p": 1.0}, [0.4, 0, 0, 0, 0]),
        # Of what the top 3 leave (0.47, 0.35, 0.18) two reach 0.8; of all, three would.
        ({"top_k": 3, "top_p": 0.8}, [0.4, 0.3, 0, 0, 0]),
        # Temperature comes first: at 0.5 the probabilities are 0.56, 0.32, 0.08, 0.04, 0.01.
        ({"temperature": 0.5, "top_p": 0.85}, [0.16, 0.09, 0, 0, 0]),
        ({"temperature": 0.5, "min_p": 0.2}, [0.16, 0.09, 0, 0, 0]),
        ({"top_p": 0.8, "min_p": 0.5}, [0.4, 0.3, 0, 0, 0]),
    ],
    ids=str,
)
def test_filters_keep_the_right_tokens_in_proportion(settings, kept):
    order = np.array([3, 0, 4, 1, 2])  # where each probability stands
    logits, expected = np.zeros(5), np.zeros(5)
    logits[order] = np.log([0.4, 0.3, 0.15, 0.1, 0.05])
    expected[order] = kept
    assert_drawn_with(drawn(logits, 5_000, **settings), expected / expected.sum())


def test_a_large_vocabulary_is_drawn_from_like_a_small_one():
    """Groups of neighbours first: with many groups, the last of them not full."""
    logits = 3 * normal(3, 5_003)
    probabilities = np.asarray(jax.nn.softmax(logits), np.float64)
    tokens = drawn(logits, 4_000)
    large = np.argsort(-probabilities)[:40]
    slots = np.full(len(logits), 40)
    slots[large] = np.arange(40)
    expected = np.append(probabilities[large], 1 - probabilities[large].sum())
    assert_drawn_with(slots[tokens], expected)


def test_no_uniform_number_leads_to_a_weight_of_0():
    weights = jnp.zeros((7, 300)).at[:, jnp.array([5, 130, 131, 290])].set(0.1)
    uniform = jnp.array([0, 0.25, 0.499999, 0.5, 0.74999, 0.7501, 1 - 2.0**-24])
    assert draw(uniform, weights).tolist() == [5, 130, 130, 131, 131, 290, 290]


def test_temperature_0_is_the_most_probable_token():
    logits = normal(4, 3, V)
    for config in (SamplingConfig(temperature=0), SamplingConfig(top_k=1)):
        np.testing.assert_array_equal(
            sample(keys(3), logits, config, PLAIN), logits.argmax(axis=-1)
        )
    ties = jnp.zeros((1, V)).at[0, jnp.array([7, 400])].set(1.0)
    assert sample(keys(1), ties, SamplingConfig(temperature=0), PLAIN).tolist() == [7]


@pytest.mark.parametrize(
    "settings", [{"temperature": 0}, {}, {"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}], ids=str
)
def test_ids_that_do_not_exist_or_are_banned_are_never_drawn(settings):
    """V = 10 padded to 16, with huge logits on the padding."""
    logits = np.zeros(16, np.float32)
    logits[10:], logits[[0, 3]], logits[4] = 100.0, 50.0, 1.0
    tokens = drawn(logits, 500, Vocabulary(10, 3, 4, banned=(0, 3)), **settings)
    assert set(tokens) <= {1, 2, 4, 5, 6, 7, 8, 9} and 4 in tokens


def test_whatever_ends_an_output_is_told_as_the_end():
    logits = np.log([0.1, 0.2, 0.3, 0.4])
    vocabulary = Vocabulary(4, 0, 1, also_ends=(3,))
    assert set(drawn(logits, 5, vocabulary, temperature=0)) == {1}
    assert_drawn_with(drawn(logits, 3000, vocabulary), [0.1, 0.6, 0.3, 0.0])


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_k": 2}, {"top_p": 0.5}, {}])
def test_a_row_depends_on_its_own_key_and_logits_alone(settings):
    function = jax.jit(
        functools.partial(sample, config=SamplingConfig(**settings), vocabulary=PLAIN)
    )
    logits, each = normal(5, 5, V), keys(5)
    together = function(each, logits)
    alone = [int(function(each[i : i + 1], logits[i : i + 1])[0]) for i in range(5)]
    assert together.tolist() == alone
    broken = function(each, logits.at[2, 11].set(jnp.nan))
    assert broken.tolist() == [*alone[:2], NO_TOKEN, *alone[3:]]
