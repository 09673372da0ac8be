"""Beam search over a small model whose outputs depend on the whole history."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import DecodeConfig
from transformer.decoding import beam
from transformer.decoding.beam import Vocabulary, beam_search

PAD, UNK, BOS, EOS = range(4)
VOCABULARY = Vocabulary(size=7, begin=BOS, end=EOS, banned=(PAD, UNK, BOS))
WORDS = (4, 5, 6)
PLACES, TABLE = 6, 11
FEATURES = 3 * jax.random.normal(jax.random.key(1), (TABLE, PLACES, 5))
OUTPUT = 2 * jax.random.normal(jax.random.key(2), (2, 5, TABLE))


def history_model(tokens, positions, cache, index, mask):
    """Logits from the sum of a feature of each (token, position) that the mask shows."""
    features = jax.lax.dynamic_update_slice_in_dim(
        cache["features"], FEATURES[tokens, positions], index, axis=1
    )
    seen = jnp.einsum("bts,bsf->btf", mask[:, 0].astype(jnp.float32), features)
    logits = jnp.einsum("btf,bfv->btv", jnp.tanh(seen), OUTPUT[cache["kind"]])
    return logits, cache | {"features": features}


def start(kinds, width, places=PLACES):
    return {
        "features": jnp.zeros((len(kinds), places * width, FEATURES.shape[-1])),
        "kind": jnp.array(kinds),
    }


def log_prob(kind, ids):
    """Of `ids` and the end symbol, one token after another."""
    total, seen = 0.0, np.zeros(FEATURES.shape[-1])
    for position, (token, following) in enumerate(itertools.pairwise([BOS, *ids, EOS])):
        seen = seen + np.array(FEATURES[token, position], np.float64)
        logits = (np.tanh(seen) @ np.array(OUTPUT[kind], np.float64))[: VOCABULARY.size]
        total += logits[following] - np.log(np.exp(logits).sum())
    return total


def all_outputs(kind, limit, alpha):
    """Every output of at most `limit` tokens with its score, best first."""
    outputs = [
        (list(ids), log_prob(kind, ids) / ((5 + length + 1) / 6) ** alpha)
        for length in range(limit)
        for ids in itertools.product(WORDS, repeat=length)
    ]
    return sorted(outputs, key=lambda output: -output[1])


def search(kinds, limits, config, n_best=1, places=PLACES):
    tokens, lengths, scores = jax.jit(
        functools.partial(
            beam_search,
            history_model,
            places=places,
            config=config,
            vocabulary=VOCABULARY,
            n_best=n_best,
        )
    )(start(kinds, config.beam_size, places), jnp.array(limits))
    return [
        [
            (tokens[b, r, : lengths[b, r] - 1].tolist(), float(scores[b, r]))
            for r in range(n_best)
            if lengths[b, r] > 0
        ]
        for b in range(len(kinds))
    ]


def assert_same(found, expected):
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.3])
def test_a_full_beam_finds_the_best_of_all_outputs_in_order(alpha):
    """Nothing is cut off by a beam of 3 ** 4, so the n best are those of brute force.

    The second sentence may be shorter; its search ends earlier and does not disturb the first.
    """
    config = DecodeConfig(beam_size=81, length_penalty=alpha)
    found = search([0, 1], [4, 3], config, n_best=13)
    assert_same(found[0], all_outputs(0, 4, alpha)[:13])
    assert_same(found[1], all_outputs(1, 3, alpha)[:13])


def test_a_beam_of_one_is_greedy_search():
    for kind, limit in itertools.product((0, 1), (1, 2, 6)):
        ids: list[int] = []
        while len(ids) < limit - 1:
            seen = sum(np.array(FEATURES[token, i]) for i, token in enumerate([BOS, *ids]))
            logits = np.tanh(seen) @ np.array(OUTPUT[kind])
            best = max((EOS, *WORDS), key=lambda token: logits[token])
            if best == EOS:
                break
            ids.append(best)
        ((found,),) = search([kind], [limit], DecodeConfig(beam_size=1))
        assert_same([found], [(ids, log_prob(kind, ids) / ((6 + len(ids)) / 6) ** 0.6)])


def chain_model(first_end, later):
    """A model of two outputs: 4, 4, ..., 4 of 9 words, and the same cut after 2."""

    def decode(tokens, positions, cache, index, mask):
        logits = jnp.full((*tokens.shape, VOCABULARY.size), -50.0)
        cut = positions == 2
        last = positions == 9
        logits = logits.at[..., EOS].set(jnp.where(cut, first_end, jnp.where(last, 0.0, -50.0)))
        going_on = jnp.where(cut, jnp.log1p(-jnp.exp(first_end)), jnp.where(last, -50.0, 0.0))
        logits = logits.at[..., 4].set(jnp.where(positions == 5, later, going_on))
        other = jnp.where(positions == 5, jnp.log1p(-jnp.exp(later)), -50.0)
        return logits.at[..., 0].set(other), cache

    return decode


def test_the_first_ending_does_not_end_the_search():
    """Searches used to stop at the first end symbol: at alpha 0.6 log p = -1.0 at length 3
    (score -0.841) loses to -1.4 at length 10 (-0.808), which comes to light 7 steps later."""
    # P(end after 2) = e^-1; the rest goes on and loses so much at position 5 that log p = -1.4.
    first_end = jnp.array(-1.0)
    later = -1.4 - jnp.log1p(-jnp.exp(first_end))
    _, lengths, scores = beam_search(
        chain_model(first_end, later),
        (),
        jnp.array([12]),
        12,
        DecodeConfig(beam_size=2),
        VOCABULARY,
        n_best=2,
    )
    assert lengths.tolist() == [[10, 3]]
    np.testing.assert_allclose(scores, [[-0.808, -0.841]], atol=1e-3)


def test_early_stopping_ends_with_as_many_endings_as_the_beam_is_wide():
    def eager(*inputs):
        logits, cache = history_model(*inputs)
        return logits.at[..., EOS].add(4.0), cache

    steps, best = {}, {}
    for early in (False, True):
        config = DecodeConfig(beam_size=3, early_stopping=early)
        beams = beam.idle(1, PLACES, config, 3, start([0], 3))
        beams = beam.insert(beams, jnp.array([0]), jnp.array([PLACES]), VOCABULARY)
        step = jax.jit(functools.partial(beam.step, eager, config=config, vocabulary=VOCABULARY))
        while bool(beam.live(beams, config).any()):
            assert not early or int(beams.ended[0]) < 3
            beams = step(beams)
        steps[early], best[early] = int(beams.clock), np.array(beams.scores[0])
    assert steps[True] < steps[False]
    assert (best[True] <= best[False]).all() and (best[True] > -np.inf).all()


def test_a_hypothesis_at_the_length_limit_is_ended():
    """With an end symbol that the model never wants, the outputs have the limit's length."""

    def endless(tokens, positions, cache, index, mask):
        logits, cache = history_model(tokens, positions, cache, index, mask)
        return logits.at[..., EOS].set(-100.0), cache

    for limit in (1, 3, 6):
        _, lengths, scores = beam_search(
            endless,
            start([0], 2),
            jnp.array([limit]),
            PLACES,
            DecodeConfig(beam_size=2),
            VOCABULARY,
        )
        assert lengths.tolist() == [[limit]]
        assert float(scores[0, 0]) > -jnp.inf


def test_ids_outside_the_vocabulary_and_banned_ids_are_never_emitted():
    """Padded rows of an embedding table have been generated where their logits were large."""

    def tempting(tokens, positions, cache, index, mask):
        logits, cache = history_model(tokens, positions, cache, index, mask)
        return logits.at[..., VOCABULARY.size :].set(1e6).at[..., jnp.array([0, 1, 2])].add(
            20
        ), cache

    tokens, lengths, scores = beam_search(
        tempting, start([0, 1], 4), jnp.array([6, 6]), PLACES, DecodeConfig(), VOCABULARY, n_best=4
    )
    assert np.isfinite(scores).all()
    emitted = {
        int(i)
        for row, n in zip(tokens.reshape(8, -1), lengths.ravel(), strict=True)
        for i in row[: n - 1]
    }
    assert emitted and emitted <= set(WORDS)


def test_sentences_that_begin_later_in_a_full_round_of_places_end_the_same():
    """Places are used in turn, so a sentence may lie across the end of the cache."""
    config = DecodeConfig(beam_size=3)
    alone = search([0, 1], [5, 4], config, n_best=2)
    beams = beam.idle(3, PLACES, config, 2, start([0, 1, 0], 3))
    step = jax.jit(lambda beams: beam.step(history_model, beams, config, VOCABULARY))
    beams = beam.insert(beams, jnp.array([0]), jnp.array([6]), VOCABULARY)
    for _ in range(4):
        beams = step(beams)
    # Row 3 does not exist and is ignored.
    beams = beam.insert(beams, jnp.array([2, 1, 3]), jnp.array([5, 4, 4]), VOCABULARY)
    beams = beam.release(beams, jnp.array([True, False, False]))
    while bool(beam.live(beams, config).any()):
        assert not bool(beam.full(beams).any())
        beams = step(beams)
    tokens = beam.results(beams)
    for row, expected in ((2, alone[0]), (1, alone[1])):
        found = [
            (tokens[row, r, : beams.lengths[row, r] - 1].tolist(), float(beams.scores[row, r]))
            for r in range(2)
        ]
        assert_same(found, expected)
