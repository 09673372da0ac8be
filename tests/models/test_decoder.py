"""Decoder-only models: cached decoding equals the whole forward, under every kind of position."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.golden import assert_trees_close
from transformer.config import ModelConfig
from transformer.models.cache import DecoderCache, cache_bytes
from transformer.models.decoder import Decoder

B, T, V = 3, 11, 23

KINDS = {
    "gpt1": {"positions": "learned", "max_positions": 13, "activation": "gelu_tanh"},
    "gpt3": {
        "positions": "learned",
        "max_positions": 13,
        "norm_placement": "pre",
        "local_window": 3,
        "attention_bias": True,
    },
    "llama": {
        "positions": "rotary",
        "norm": "rms",
        "norm_placement": "pre",
        "activation": "swiglu",
        "ff_bias": False,
        "num_kv_heads": 1,
        "tie_embeddings": False,
        "embedding_scaling": "none",
    },
    "relative": {"positions": "relative", "norm": "rms", "scale_attention": False},
    "none": {"positions": "none"},
}


def make(kind: str) -> tuple[Any, Any, jax.Array]:
    config = ModelConfig(
        "decoder",
        num_layers=3,
        model_dim=10,
        attention_dim=12,
        ff_dim=17,
        num_heads=3,
        vocab_size=V,
        **KINDS[kind],
    )
    model: Any = Decoder(config)
    tokens = jax.random.randint(jax.random.key(1), (B, T), 0, V)
    params = model.init(jax.random.key(2), jnp.ones((1, 2), jnp.int32))
    # The zeros and ones of fresh parameters would hide what uses them.
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(3), len(leaves))
    leaves = [x + 0.3 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return model, jax.tree.unflatten(tree, leaves), tokens


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_by_steps_equals_the_whole_forward(kind):
    """A prompt of 5 at once, then single tokens, in a cache with room to spare."""
    model, params, tokens = make(kind)
    expected = model.apply(params, tokens)
    cache = DecoderCache.empty(model.config, B, T + 2)
    found = []
    for start, stop in [(0, 5), *((i, i + 1) for i in range(5, T))]:
        positions = jnp.arange(start, stop)[None]
        hidden, cache = model.apply(
            params, tokens[:, start:stop], positions, cache, start, method="decode"
        )
        found.append(model.apply(params, hidden, method="logits"))
    assert_trees_close(jnp.concatenate(found, axis=1), expected, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_changes_nothing(kind, side):
    model, params, tokens = make(kind)
    lengths, width = (4, 7, 1), 7
    for row, length in enumerate(lengths):
        pad = width - length
        order = (pad, 0) if side == "left" else (0, pad)
        row_tokens = jnp.pad(tokens[row, :length], order, constant_values=5)[None]
        segments = jnp.pad(jnp.ones(length, int), order)[None]
        positions = jnp.pad(jnp.arange(length), order)[None]
        cache = DecoderCache.empty(model.config, 1, width + 2)
        hidden, cache = model.apply(
            params, row_tokens, positions, cache, 0, segments, method="decode"
        )
        then, _ = model.apply(
            params, tokens[row : row + 1, length : length + 1], jnp.array([[length]]), cache, width,
            method="decode",
        )  # fmt: skip
        expected = model.apply(params, tokens[row : row + 1, : length + 1])
        real = hidden[:, pad:] if side == "left" else hidden[:, :length]
        both = jnp.concatenate([real, then], axis=1)
        assert_trees_close(model.apply(params, both, method="logits"), expected, 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_documents_do_not_see_each_other(kind):
    model, params, tokens = make(kind)
    segments = jnp.array([[1] * 4 + [2] * 5 + [0] * 2])
    positions = jnp.array([[*range(4), *range(5), 0, 0]])
    packed = model.apply(params, tokens[:1], segments, positions)
    alone = [model.apply(params, tokens[:1, :4]), model.apply(params, tokens[:1, 4:9])]
    assert_trees_close(packed[:, :9], jnp.concatenate(alone, axis=1), 1e-5)


def test_a_local_window_narrows_every_other_layer():
    """With three layers of windows 3 in the middle, token 0 still reaches the last by the others;
    if all were narrow, it could not."""
    model, params, tokens = make("gpt3")
    changed = tokens.at[:, 0].set((tokens[:, 0] + 1) % V)
    difference = model.apply(params, tokens) - model.apply(params, changed)
    assert jnp.abs(difference[:, -1]).max() > 1e-4
    dense: Any = Decoder(ModelConfig(**{**vars(model.config), "local_window": None}))
    assert jnp.abs(model.apply(params, tokens) - dense.apply(params, tokens)).max() > 1e-4


def test_the_cache_takes_what_the_formula_says():
    for kind in KINDS:
        config = make(kind)[0].config
        cache = jax.eval_shape(lambda config=config: DecoderCache.empty(config, 7, 13))
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
        assert size == cache_bytes(config, 7, 13)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_loop_copies_no_cache(batch):
    """Of one row XLA on CPU copied every layer's cache in every step, see `KeysValues.write`."""
    model, params, tokens = make("gpt3")
    room = 29

    def decode(params, tokens, cache):
        def step(i, state):
            tokens, cache = state
            hidden, cache = model.apply(params, tokens, i[None, None], cache, i, method="decode")
            return model.apply(params, hidden, method="logits").argmax(-1), cache

        return jax.lax.fori_loop(0, 7, step, (tokens, cache))[0]

    cache = DecoderCache.empty(model.config, batch, room)
    program: Any = jax.jit(decode).lower(params, tokens[:batch, :1], cache).compile().as_text()
    # Before the loop each is copied once, because the argument is not given up.
    loop, _, before = program.partition("ENTRY ")
    shapes = {",".join(map(str, leaf.shape[1:])) for leaf in jax.tree.leaves(cache.layers)}
    copies = re.compile(r"= f32\[(?:\d+,)?(" + "|".join(shapes) + r")\]\S* copy\(")
    assert copies.search(before) and not copies.search(loop)
