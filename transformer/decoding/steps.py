"""What generation runs on the device: the first token of each row, then some more at a time."""

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from transformer.config import SamplingConfig
from transformer.decoding.beam import Vocabulary
from transformer.decoding.sampling import NO_TOKEN, sample
from transformer.functional import Mask
from transformer.models.build import Model
from transformer.models.cache import DecoderCache, spread
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq

MOST_STEPS = 64
"""Steps that one call of the device may take."""


class Streams(NamedTuple):
    """Where the random numbers of R rows come from, and a row depends on no other.

    Attributes:
        seed: uint32 scalar.
        texts: uint32 ``[R]``, a hash of each prompt.
        samples: int32 ``[R]``, which of the prompt's samples.
    """

    seed: Any
    texts: Any
    samples: Any


class Rows(NamedTuple):
    """R texts under way.

    Attributes:
        cache: the model's; every token but the last is in it.
        tokens: int ``[R]``, the last of each.
        keys: random keys ``[R]``.
    """

    cache: Any
    tokens: Any
    keys: Any


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def begin(
    model: Decoder,
    sampling: SamplingConfig,
    vocabulary: Vocabulary,
    capacity: int,
    params,
    hidden,
    cache: DecoderCache,
    parents,
    streams: Streams,
    count,
) -> Rows:
    """Draws the first token after what has been read, for each row of `parents`.

    Args:
        model: the decoder.
        sampling: how to draw.
        vocabulary: the ids there are.
        capacity: places of the new cache.
        params: the parameters.
        hidden: ``[r, D]``, of the last token that was read in each row.
        cache: of r rows; stays as it is.
        parents: int ``[R]``, which of them each new row goes on from.
        streams: of R rows.
        count: tokens of each stream that were drawn before.
    """
    logits: Any = model.apply({"params": params}, hidden[parents][:, None], method="logits")
    keys = _keys(streams)
    tokens = _sample(keys, count, logits[:, 0], sampling, vocabulary)
    return Rows(cache.fork(parents, capacity), tokens, keys)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def begin_target(
    model: Seq2Seq, sampling, vocabulary, capacity: int, params, source, parents, streams
) -> Rows:
    """As `begin`, of an encoder-decoder: encodes ``source`` ``[B, S]``."""
    encoded: Any = model.apply({"params": params}, source, capacity, method="start")
    cache = spread(jax.tree.map(lambda leaf: leaf[parents], encoded))
    tokens = jnp.full(parents.shape, vocabulary.begin, jnp.int32)
    logits, cache = _decode(model, params, tokens, jnp.zeros_like(tokens), cache, 0)
    keys = _keys(streams)
    return Rows(cache, _sample(keys, 0, logits, sampling, vocabulary), keys)


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnames="rows")
def advance(
    model: Model, sampling, vocabulary, params, *, rows: Rows, done, positions, index, count, steps
):
    """Draws at most `steps` tokens more for every row, until all have ended.

    Args:
        model: the network.
        sampling: how to draw.
        vocabulary: the ids there are.
        params: the parameters.
        rows: used up.
        done: bool ``[R]``, rows that have ended.
        positions: int ``[R]``, of the last token of each.
        index: int, where its key is written; the caller checks the capacity.
        count: tokens of each stream that were drawn before.
        steps: at most `MOST_STEPS`.

    Returns:
        The rows, the tokens ``[R, MOST_STEPS]`` (of a row that has ended without meaning), and
        how many were drawn.
    """

    def proceed(state):
        step, done, *_ = state
        return (step < steps) & ~done.all()

    def draw(state):
        step, done, rows, drawn = state
        logits, cache = _decode(
            model, params, rows.tokens, positions + step, rows.cache, index + step
        )
        tokens = _sample(rows.keys, count + step, logits, sampling, vocabulary)
        tokens = jnp.where(done, 0, tokens)
        drawn = jax.lax.dynamic_update_index_in_dim(drawn, tokens, step, axis=1)
        done |= (tokens == vocabulary.end) | (tokens == NO_TOKEN)
        return step + 1, done, Rows(cache, tokens, rows.keys), drawn

    drawn = jnp.zeros((len(done), MOST_STEPS), jnp.int32)
    step, _, rows, drawn = jax.lax.while_loop(proceed, draw, (jnp.int32(0), done, rows, drawn))
    return rows, drawn, step


def _decode(model: Model, params, tokens, positions, cache, index):
    """One token ``[R]`` of each row: the logits ``[R, V]`` of the next, and the new cache."""
    tokens, positions, variables = tokens[:, None], positions[:, None], {"params": params}
    if isinstance(model, Seq2Seq):
        places = jnp.arange(cache.decoder.positions.shape[1])[None]
        mask = Mask(positions, places, causal=True)  # every target begins at place 0
        known = tokens, positions, cache, index, mask
        logits, cache = cast(Any, model.apply(variables, *known, method="decode"))
    else:
        known = tokens, positions, cache, index
        hidden, cache = cast(Any, model.apply(variables, *known, method="decode"))
        logits: Any = model.apply(variables, hidden, method="logits")
    return logits[:, 0], cache


def _keys(streams: Streams):
    fold = jax.vmap(lambda text, sample: jax.random.fold_in(jax.random.fold_in(key, text), sample))
    key = jax.random.key(streams.seed)
    return fold(streams.texts, streams.samples)


def _sample(keys, count, logits, sampling, vocabulary):
    keys = jax.vmap(jax.random.fold_in, (0, None))(keys, count)
    return sample(keys, logits, sampling, vocabulary).astype(jnp.int32)
