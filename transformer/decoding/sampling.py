"""Drawing tokens from logits: temperature, top-k, top-p and min-p.

Pure functions of ``[B, V]`` logits, without a sort of the vocabulary, which takes longer on a
CPU than all else in a step. Of B rows each is drawn with a key of its own and by itself, so that
it does not depend on the others.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from transformer.config import SamplingConfig
from transformer.decoding.beam import Vocabulary
from transformer.decoding.topk import grouped_top_k

_GROUP = 128
NO_TOKEN = -1
"""Drawn where the logits are NaN."""


def sample(
    keys: PRNGKeyArray, logits: Float[Array, "B V"], config: SamplingConfig, vocabulary: Vocabulary
) -> Int[Array, " B"]:
    """Draws a token for each row; `NO_TOKEN` where a logit is NaN, the end for any that ends.

    Ids outside the vocabulary and those it bans do not exist, whatever their logits. The filters
    apply in the order temperature, top-k, top-p, min-p, each to the probabilities of what the
    one before has left.

    Args:
        keys: random keys ``[B]``.
        logits: ``[B, V]``.
        config: temperature (0: the most probable token), top_k, top_p, min_p.
        vocabulary: its size, at most V, and the ids that are banned.
    """
    logits = logits[:, : vocabulary.size]
    banned = tuple(sorted(i for i in set(vocabulary.banned) if i < vocabulary.size))
    count = vocabulary.size - len(banned)
    if config.temperature == 0 or config.top_k == 1:
        best, token = _largest(logits, 1, banned)
        return _told(token[:, 0], best, vocabulary)
    candidates = None
    if config.top_k is not None and config.top_k < count:
        logits, candidates = _largest(logits, config.top_k, banned)
    elif banned:
        logits = logits.at[:, jnp.array(banned)].set(-jnp.inf)
    best = logits.max(axis=-1, keepdims=True)
    # Relative to the most probable: what the filters and the draw need is ratios and sums.
    weights = jnp.exp((logits - best) / config.temperature)
    if config.top_p < 1:
        weights = jnp.where(top_p_mask(weights, config.top_p), weights, 0.0)
    if config.min_p > 0:
        weights = jnp.where(weights >= config.min_p, weights, 0.0)
    token = draw(jax.vmap(jax.random.uniform)(keys), weights)
    if candidates is not None:
        token = jnp.take_along_axis(candidates, token[:, None], axis=1)[:, 0]
    return _told(token, best, vocabulary)


def _told(token, best, vocabulary: Vocabulary):
    """`token` ``[B]``, or what stands for it; ``best`` ``[B, 1]`` tells of NaN."""
    if vocabulary.also_ends:
        ended = jnp.isin(token, jnp.array(vocabulary.also_ends))
        token = jnp.where(ended, vocabulary.end, token)
    return jnp.where(jnp.isnan(best[:, 0]), NO_TOKEN, token)


def _largest(logits, k: int, banned: tuple[int, ...]):
    """The k largest logits of each row and their ids, the first of equal ones first."""
    zero = jnp.zeros((len(logits), 1), logits.dtype)
    return grouped_top_k(logits[:, None], zero, k, banned)


def top_p_mask(weights: Float[Array, "B V"], p: float) -> Bool[Array, "B V"]:
    """The nucleus (Holtzman et al. 2020, section 3.1): the fewest largest weights that reach `p`.

    Of the weights in falling order (of equal ones the first comes first) one belongs to the
    nucleus if those before it do not reach ``p`` times the sum of all: so the one that crosses
    `p` does, and there is always one. Of [.5, .41, .09] p = 0.9 keeps two.

    The smallest weight that belongs is found by bisecting the bits of a float32, whose order is
    that of the numbers: 31 sums of a row, where a sort of 50,000 takes ten times as long.

    Args:
        weights: 0 or more, not all 0; float32.
        p: above 0, below 1.
    """
    wanted = p * weights.sum(axis=-1, keepdims=True)

    def reaches(bits: Array) -> Array:
        at_least = jax.lax.bitcast_convert_type(bits, jnp.float32)
        return jnp.where(weights >= at_least, weights, 0.0).sum(axis=-1, keepdims=True) >= wanted

    lowest = _bisect(reaches, jnp.zeros(wanted.shape, jnp.int32), 31)
    border = jax.lax.bitcast_convert_type(lowest, jnp.float32)
    above = weights > border
    missing = wanted - jnp.where(above, weights, 0.0).sum(axis=-1, keepdims=True)
    ties = weights == border
    room = jnp.ceil(missing / border)  # Infinite or NaN where the border is 0: all are kept.
    cut = (room < ties.sum(axis=-1, keepdims=True)).any()

    def first_ties() -> Array:
        return ties & ~(jnp.cumsum(ties, axis=-1) > room)

    return above | jax.lax.cond(cut, first_ties, lambda: ties)


def _bisect(holds: Callable[[Array], Array], low: Array, bits: int) -> Array:
    """The largest number of so many bits for which a condition that 0 meets still holds."""

    def try_bit(i, found):
        tried = found | (1 << (bits - 1 - i))
        return jnp.where(holds(tried), tried, found)

    return jax.lax.fori_loop(0, bits, try_bit, low)


def draw(uniform: Float[Array, " B"], weights: Float[Array, "B V"]) -> Int[Array, " B"]:
    """An index of each row with probability in proportion to its weight; never one of weight 0.

    The inverse of the cumulative distribution, first by groups of neighbours and then in the
    group: one random number a row, and no cumulative sum of the whole vocabulary.

    Args:
        uniform: random numbers in [0, 1).
        weights: 0 or more, not all 0.
    """
    batch, size = weights.shape
    grouped = jnp.pad(weights, ((0, 0), (0, -size % _GROUP))).reshape(batch, -1, _GROUP)
    sums = grouped.sum(axis=-1)
    group, rest = _invert(sums, uniform * sums.sum(axis=-1))
    member, _ = _invert(jnp.take_along_axis(grouped, group[:, None, None], axis=1)[:, 0], rest)
    return group * _GROUP + member


def _invert(weights, target):
    """The first index whose cumulative sum exceeds `target`, and `target` less the sum before it.

    Only indices of weight above 0 count, whatever rounding does to the sums; the last of them
    stands for all that lies beyond.
    """
    cumulative, possible = jnp.cumsum(weights, axis=-1), weights > 0
    hits = possible & (cumulative > target[:, None])
    last = weights.shape[1] - 1 - possible[:, ::-1].argmax(axis=-1)
    index = jnp.where(hits.any(axis=-1), hits.argmax(axis=-1), last)
    before = jnp.pad(cumulative, ((0, 0), (1, 0)))
    return index, target - jnp.take_along_axis(before, index[:, None], axis=1)[:, 0]
