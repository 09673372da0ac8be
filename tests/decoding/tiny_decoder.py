"""A small language model of random weights, shared by the tests of generation."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.config import ModelConfig
from transformer.data.symbols import Symbols
from transformer.models.decoder import Decoder

TOKENIZER = Symbols(list("abcdefg"), "characters", "characters")
END = TOKENIZER.special.end
CONFIG = ModelConfig(
    "decoder", num_layers=2, model_dim=6, ff_dim=10, num_heads=3, vocab_size=13,
    positions="learned", max_positions=67, norm_placement="pre",
)  # fmt: skip
MODEL: Any = Decoder(CONFIG)


@functools.cache
def parameters() -> Any:
    """Large weights, so that texts differ; the end is rare, and the logits of ids that do not
    exist are huge."""
    initial = jax.jit(MODEL.init)(jax.random.key(5), jnp.ones((2, 3), int))["params"]
    params = jax.tree.map(lambda x: 2.5 * x, initial)
    tables = params["embedding"]
    table = tables["embedding"].at[TOKENIZER.vocab_size :].multiply(30)
    table = table.at[END].multiply(0.2)
    return params | {"embedding": tables | {"embedding": table}}


@functools.cache
def _forward():
    return jax.jit(lambda params, ids: MODEL.apply({"params": params}, ids))


def log_probs(ids: list[int]) -> np.ndarray:
    """float64 ``[V]``, of what follows `ids` in the tokenizer's vocabulary, without a cache."""
    tokens = np.zeros((1, CONFIG.max_positions or 0), np.int32)
    tokens[0, : len(ids)] = ids
    logits = np.array(_forward()(parameters(), tokens), np.float64)[0, len(ids) - 1]
    logits = logits[: TOKENIZER.vocab_size] - logits.max()
    return logits - np.log(np.exp(logits).sum())


def allowed_log_probs(ids: list[int]) -> np.ndarray:
    """As `log_probs`, -inf for ids that are never to be emitted."""
    found = log_probs(ids)
    found[list(TOKENIZER.special.never)] = -np.inf
    return found
