"""Beam search over any model that decodes with a cache (Wu et al. 2016, section 7).

The W hypotheses of a sentence are W queries at one position. Their keys are written side
by side in the model's cache and never move: `lineage` says which key of each position
belongs to a hypothesis's own past, and a mask drawn from it is all that attention needs.
So no cache is reordered or copied for a beam, and all hypotheses share the source's keys.

Positions take turns in a cache of C places (``clock % C``), so that sentences may begin
at different times: one that is done makes room for the next, see `insert`.

Axis letters here: B sentences, W beam width, C places in the cache, V vocabulary,
R kept results (n-best).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from transformer.config import DecodeConfig, ModelConfig
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.topk import grouped_top_k
from transformer.errors import UserError

STEPS = 32
"""Steps in one call of the device, after which an interrupt is heeded."""

Decode = Callable[..., tuple[Array, Any]]
"""``(tokens [B, W], positions [B, W], cache, index, mask [B, 1, W, C * W]) -> logits, cache``:
writes the tokens' keys at ``index`` and returns the logits ``[B, W, V]`` of what follows."""


class Beams(NamedTuple):
    """A search under way. Every array but `clock` leads with the batch axis.

    Attributes:
        clock: int ``[]``, steps taken since the beginning.
        born: int ``[B]``, the clock when the sentence came in.
        limits: int ``[B]``, most tokens of its output, the end symbol included; 0: no sentence.
        tokens: int ``[B, W]``, the last token of each live hypothesis.
        log_probs: float32 ``[B, W]``, of each live hypothesis; -inf: none.
        written: int ``[B, C, W]``, the tokens whose keys are in the cache.
        lineage: int ``[B, W, C]``, which of the W keys at each place is the hypothesis's own
            or an ancestor's; -1: none.
        ended: int ``[B]``, how many hypotheses have ended.
        scores: float32 ``[B, R]``, of the best hypotheses that ended; -inf: none.
        lengths: int ``[B, R]``, their tokens, the end symbol included.
        lineages: int ``[B, R, C]``, their lineage.
        cache: the model's.
    """

    clock: Array
    born: Array
    limits: Array
    tokens: Array
    log_probs: Array
    written: Array
    lineage: Array
    ended: Array
    scores: Array
    lengths: Array
    lineages: Array
    cache: Any


class Vocabulary(NamedTuple):
    """The ids that matter to a search. Hashable, so that it can be static under jit.

    Attributes:
        size: ids from here on do not exist (a table may be padded).
        begin: what every output is preceded by.
        end: what ends an output.
        banned: ids that are never emitted.
        also_ends: other ids that end an output, of language models.
    """

    size: int
    begin: int
    end: int
    banned: tuple[int, ...] = ()
    also_ends: tuple[int, ...] = ()

    @classmethod
    def of(cls, config: ModelConfig, tokenizer: Tokenizer) -> "Vocabulary":
        """The tokenizer's; the model's table may have more rows than it has ids.

        Raises:
            UserError: the table has fewer.
        """
        rows, special = config.vocab_size or 0, tokenizer.special
        if rows < tokenizer.vocab_size:
            raise UserError(
                f"model.vocab_size = {rows}: expected at least {tokenizer.vocab_size}, "
                "the tokenizer's"
            )
        ids = special.begin, special.end, special.never, special.also_ends
        return cls(tokenizer.vocab_size, *ids)


def length_penalty(length: Int[Array, "..."], alpha: float) -> Float[Array, "..."]:
    """``((5 + length) / 6) ** alpha`` (Wu et al. 2016, equation 14), the end symbol counted."""
    return ((5.0 + length) / 6.0) ** alpha


def idle(batch: int, places: int, config: DecodeConfig, n_best: int, cache: Any) -> Beams:
    """A search of `batch` rows without a sentence."""
    width = config.beam_size
    return Beams(
        clock=jnp.zeros((), jnp.int32),
        born=jnp.zeros(batch, jnp.int32),
        limits=jnp.zeros(batch, jnp.int32),
        tokens=jnp.zeros((batch, width), jnp.int32),
        log_probs=jnp.full((batch, width), -jnp.inf),
        written=jnp.zeros((batch, places, width), jnp.int32),
        lineage=jnp.full((batch, width, places), -1),
        ended=jnp.zeros(batch, jnp.int32),
        scores=jnp.full((batch, n_best), -jnp.inf),
        lengths=jnp.zeros((batch, n_best), jnp.int32),
        lineages=jnp.full((batch, n_best, places), -1),
        cache=cache,
    )


def insert(
    beams: Beams, rows: Int[Array, " r"], limits: Int[Array, " r"], vocabulary: Vocabulary
) -> Beams:
    """Begins sentences in `rows`; a row of B or more is ignored. The cache is the caller's."""

    def put(old, new):
        return old.at[rows].set(new, mode="drop")

    return beams._replace(
        born=put(beams.born, beams.clock),
        limits=put(beams.limits, limits),
        tokens=put(beams.tokens, vocabulary.begin),
        log_probs=put(beams.log_probs, jnp.full(beams.tokens.shape[1], -jnp.inf).at[0].set(0.0)),
        lineage=put(beams.lineage, -1),
        ended=put(beams.ended, 0),
        scores=put(beams.scores, -jnp.inf),
        lengths=put(beams.lengths, 0),
        lineages=put(beams.lineages, -1),
    )


def live(beams: Beams, config: DecodeConfig) -> Bool[Array, " B"]:
    """Which sentences are not decided yet.

    The rule is exact: a sentence is decided when none of its live hypotheses can still beat
    the worst of the results kept, even if it ran to the length limit at no further cost.
    With ``early_stopping``, and for a beam of 1 (greedy search), it is decided as soon as
    `beam_size` hypotheses have ended.
    """
    best = beams.log_probs.max(axis=1)
    bound = best / length_penalty(beams.limits, config.length_penalty)
    undecided = bound > beams.scores[:, -1]
    if config.early_stopping or config.beam_size == 1:
        undecided = (best > -jnp.inf) & (beams.ended < config.beam_size)
    return undecided & (beams.limits > 0)


def step(decode: Decode, beams: Beams, config: DecodeConfig, vocabulary: Vocabulary) -> Beams:
    """Every live hypothesis grows by a token, or ends.

    Of all continuations of a sentence the best `beam_size` count. Those that are the end
    symbol (it wins ties) leave the beam and are scored ``log p / length_penalty``; the beam
    is filled up with the best that are not. At the length limit only the end symbol is left.

    The probabilities are the model's own over the whole vocabulary; ids outside it do not
    exist, whatever their logits.
    """
    batch, places, width = beams.written.shape
    place, age = beams.clock % places, beams.clock - beams.born
    undecided = live(beams, config)[:, None]
    lineage = jnp.where(jnp.arange(places) == place, jnp.arange(width)[:, None], beams.lineage)
    own = lineage[..., None] == jnp.arange(width)
    logits, cache = decode(
        beams.tokens,
        jnp.broadcast_to(age[:, None], (batch, width)),
        beams.cache,
        place * width,
        own.reshape(batch, 1, width, places * width),
    )

    logits = logits[..., : vocabulary.size]
    offsets = beams.log_probs - jax.nn.logsumexp(logits, axis=-1)
    excluded = (vocabulary.end, *vocabulary.banned)
    grown, index = grouped_top_k(logits, offsets, width, excluded)
    grown = jnp.where(age[:, None] + 1 < beams.limits[:, None], grown, -jnp.inf)
    parent, token = index // vocabulary.size, index % vocabulary.size

    ends = jnp.where(undecided, offsets + logits[..., vocabulary.end], -jnp.inf)
    better = (jnp.concatenate([ends, grown], 1)[:, None] > ends[..., None]).sum(axis=-1)
    counts = (better < width) & (ends > -jnp.inf)
    length = age[:, None] + 1
    scores = jnp.where(counts, ends / length_penalty(length, config.length_penalty), -jnp.inf)
    kept_scores, kept = jax.lax.top_k(
        jnp.concatenate([beams.scores, scores], axis=1), beams.scores.shape[1]
    )

    def keep(old, new):
        pool = jnp.concatenate([old, new], axis=1)
        return jnp.take_along_axis(pool, kept.reshape(*kept.shape, *[1] * (pool.ndim - 2)), axis=1)

    return beams._replace(
        clock=beams.clock + 1,
        tokens=token,
        log_probs=jnp.where(undecided, grown, -jnp.inf),
        written=jax.lax.dynamic_update_index_in_dim(beams.written, beams.tokens, place, axis=1),
        lineage=jnp.take_along_axis(lineage, parent[..., None], axis=1),
        ended=beams.ended + counts.sum(axis=1),
        scores=kept_scores,
        lengths=keep(beams.lengths, jnp.broadcast_to(length, (batch, width))),
        lineages=keep(beams.lineages, lineage),
        cache=cache,
    )


def full(beams: Beams) -> Bool[Array, " B"]:
    """Which sentences have taken all the places there are."""
    return (beams.limits > 0) & (beams.clock - beams.born >= beams.written.shape[1])


def advance(
    decode: Decode,
    beams: Beams,
    config: DecodeConfig,
    vocabulary: Vocabulary,
    wanted: Int[Array, ""] | int,
    steps: int,
) -> Beams:
    """At most `steps` steps, until `wanted` sentences are decided, or all, or one is `full`."""
    end = beams.clock + steps

    def proceed(beams):
        undecided = live(beams, config)
        decided = ((beams.limits > 0) & ~undecided).sum()
        unfinished = undecided.any() & (decided < wanted) & ~full(beams).any()
        return unfinished & (beams.clock < end)

    return jax.lax.while_loop(proceed, lambda beams: step(decode, beams, config, vocabulary), beams)


def results(beams: Beams) -> Int[Array, "B R C"]:
    """The tokens of the kept hypotheses: ``lengths - 1`` of them count, without the end symbol."""
    places = beams.written.shape[1]
    # A hypothesis begins where its sentence was born; its first token there is `begin`.
    order = (beams.born[:, None] + 1 + jnp.arange(places)) % places
    lineages = jnp.take_along_axis(beams.lineages, order[:, None], axis=2)
    written = jnp.take_along_axis(beams.written, order[..., None], axis=1)
    return jnp.take_along_axis(written.swapaxes(1, 2), jnp.maximum(lineages, 0), axis=1)


def release(beams: Beams, rows: Bool[Array, " B"]) -> Beams:
    """Takes sentences out."""
    return beams._replace(limits=jnp.where(rows, 0, beams.limits))


def beam_search(
    decode: Decode,
    cache: Any,
    limits: Int[Array, " B"],
    places: int,
    config: DecodeConfig,
    vocabulary: Vocabulary,
    n_best: int = 1,
) -> tuple[Int[Array, "B R C"], Int[Array, "B R"], Float[Array, "B R"]]:
    """Searches a whole batch in one loop.

    Args:
        decode: the model, see `Decode`.
        cache: the model's, for B sentences and ``places * beam_size`` keys.
        limits: most tokens of each output, the end symbol included, at most `places`.
        places: C.
        config: beam size, length penalty, stopping rule.
        vocabulary: special ids.
        n_best: R, hypotheses returned for each sentence, at most `beam_size`.

    Returns:
        Tokens ``[B, R, C]`` (from ``lengths - 1`` on without meaning), their lengths with the
        end symbol, and scores in falling order; -inf and length 0 where fewer than R ended.
    """
    beams = idle(len(limits), places, config, n_best, cache)
    beams = insert(beams, jnp.arange(len(limits)), limits, vocabulary)
    beams = advance(decode, beams, config, vocabulary, len(limits) + 1, steps=places)
    return results(beams), beams.lengths, beams.scores
