"""Beam search for text that goes on from a prompt.

All of a prompt but its last token is read first; the search begins with that one and sees the
prompt's keys before its own.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import DecodeConfig, GenerateConfig
from transformer.decoding import beam
from transformer.decoding.beam import Beams, Vocabulary
from transformer.decoding.prefix import Ids, Prefix, bucket, read
from transformer.models.decoder import Decoder

_NEVER = -1e9


def search(
    model: Decoder,
    params: Any,
    prompts: Sequence[Ids],
    config: GenerateConfig,
    vocabulary: Vocabulary,
    prefix: Prefix | None = None,
    report: Callable[[int, int], None] = lambda rows, capacity: None,
) -> list[list[tuple[list[int], float]]]:
    """The best outputs of each prompt with their scores, best first.

    An output ends with the end symbol, or is cut after ``config.max_new_tokens`` tokens. Its
    score is ``log p / length_penalty(tokens + 1)``, the end symbol's probability included where
    it came.

    Args:
        model: the decoder.
        params: its parameters.
        prompts: ids, at least one each.
        config: max_new_tokens, beam_size, length_penalty, samples (outputs of each prompt).
        vocabulary: the ids there are.
        prefix: one row of text before every prompt.
        report: is told the rows and the capacity of the cache.
    """
    decode_config = DecodeConfig(config.beam_size, config.length_penalty)
    past = read(model, params, [ids[:-1] for ids in prompts], prefix)
    count, places = len(past.cache.positions), bucket(config.max_new_tokens + 1)
    report(count, past.places + places * config.beam_size)
    last, offsets, limits = np.zeros((3, count), np.int32)
    for row, ids in enumerate(prompts):
        last[row], offsets[row] = ids[-1], len(past.ids[row])
        limits[row] = config.max_new_tokens + 1
    statics = model, decode_config, vocabulary, places, config.samples
    beams = _begin(*statics, past.cache, last, limits)
    while True:
        beams, unfinished = _advance(*statics[:4], params, beams=beams, offsets=offsets)
        if not unfinished:
            break
    tokens, lengths, scores = jax.device_get((beam.results(beams), beams.lengths, beams.scores))
    return [
        [
            (tokens[row, r, : lengths[row, r] - 1].tolist(), float(scores[row, r]))
            for r in range(config.samples)
            if lengths[row, r] > 0
        ]
        for row in range(len(prompts))
    ]


@functools.partial(jax.jit, static_argnums=range(5))
def _begin(model, config: DecodeConfig, vocabulary, places, n_best, cache, last, limits) -> Beams:
    count, prompt = cache.positions.shape
    rows = jnp.arange(count)
    cache = cache.fork(rows, prompt + places * config.beam_size)
    beams = beam.idle(count, places, config, n_best, cache)
    beams = beam.insert(beams, rows, limits, vocabulary)
    return beams._replace(tokens=jnp.broadcast_to(last[:, None], beams.tokens.shape))


@functools.partial(jax.jit, static_argnums=range(4), donate_argnames="beams")
def _advance(model: Decoder, config: DecodeConfig, vocabulary, places, params, *, beams, offsets):
    variables, size = {"params": params}, vocabulary.size
    prompt = beams.cache.positions.shape[1] - places * config.beam_size

    def decode(tokens, positions, cache, index, mask):
        # Behind the prompt's own places nothing is written yet, so segments tell them apart.
        seen = jnp.broadcast_to(
            (cache.segments[:, :prompt] > 0)[:, None, None], (*mask.shape[:3], prompt)
        )
        mask = jnp.concatenate([seen, mask], axis=-1)
        known = tokens, offsets[:, None] + positions, cache, prompt + index, None, mask
        hidden, cache = cast(Any, model.apply(variables, *known, method="decode"))
        logits = cast(Any, model.apply(variables, hidden, method="logits"))[..., :size]
        if vocabulary.also_ends:  # The probability of an end is the sum of theirs.
            ends = jnp.array((vocabulary.end, *vocabulary.also_ends))
            ending = jax.nn.logsumexp(logits[..., ends], axis=-1)
            logits = logits.at[..., ends].set(_NEVER).at[..., vocabulary.end].set(ending)
        if vocabulary.end < 0:  # There is none: outputs end where they are cut.
            logits = jnp.pad(logits, ((0, 0), (0, 0), (0, 1)), constant_values=_NEVER)
        # At the limit the search lets every hypothesis end, at no cost.
        cut = (positions + 1 >= beams.limits[:, None])[..., None]
        is_end = jnp.arange(logits.shape[-1]) == vocabulary.end % logits.shape[-1]
        return jnp.where(cut, jnp.where(is_end, 0.0, _NEVER), logits), cache

    known = vocabulary
    if vocabulary.end < 0:
        known = vocabulary._replace(size=size + 1, end=size)
    beams = beam.advance(decode, beams, config, known, len(offsets) + 1, beam.STEPS)
    return beams, beam.live(beams, config).any()
