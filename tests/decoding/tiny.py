"""A small encoder-decoder of random weights, shared by the tests of decoding."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from transformer.config import DecodeConfig, ModelConfig
from transformer.data.symbols import Symbols
from transformer.models.seq2seq import Seq2Seq

TOKENIZER = Symbols(list("abcdefg"), "characters", "characters")
CONFIG = ModelConfig(num_layers=1, model_dim=6, ff_dim=10, num_heads=3, vocab_size=13)
MODEL = Seq2Seq(CONFIG)
SEARCH = DecodeConfig(beam_size=3, extra_length=5)
LINES = ["abc", "gfedcbaabcd", "e", "", "cabbage", "dad", "a bad bed " * 2, "faced", "bead", "g"]


@functools.cache
def parameters() -> Any:
    """Large weights, so that outputs differ; the logits of ids that do not exist are huge."""
    tokens = jnp.ones((2, 3), int)
    initial = jax.jit(MODEL.init)(jax.random.key(5), tokens, tokens)["params"]
    params = jax.tree.map(lambda x: 2.5 * x, initial)
    table = params["embedding"]["embedding"]
    return params | {"embedding": {"embedding": table.at[TOKENIZER.vocab_size :].multiply(30)}}
