"""How many parameters a configuration has, from a formula written without looking at the model."""

import dataclasses
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from transformer.config import ModelConfig, load
from transformer.models.seq2seq import Seq2Seq

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))

TINY = ModelConfig(num_layers=4, model_dim=128, ff_dim=256, num_heads=4, vocab_size=10_000)
BASE = ModelConfig(vocab_size=37_000)
BIG = ModelConfig(model_dim=1024, ff_dim=4096, num_heads=16, vocab_size=37_000)


def expected_count(c: ModelConfig) -> int:
    """Matrices, biases and norms of the paper's figure 1, section 3."""
    assert c.vocab_size is not None
    d, f, layers = c.model_dim, c.ff_dim, c.num_layers
    kv_dim = d // c.num_heads * (c.num_kv_heads or c.num_heads)
    attention = 2 * d * d + 2 * d * kv_dim
    if c.attention_bias:
        attention += 2 * d + 2 * kv_dim
    feed_forward = 2 * d * f + d + f
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    final_norms = 2 * norm if c.norm_placement == "pre" else 0
    return c.vocab_size * d + layers * (encoder_layer + decoder_layer) + final_norms


def count(config: ModelConfig) -> int:
    """Of the model itself; shapes only, nothing is allocated."""
    tokens = jax.ShapeDtypeStruct((2, 3), jnp.int32)
    variables = jax.eval_shape(Seq2Seq(config).init, jax.random.key(0), tokens, tokens)
    assert set(variables) == {"params"}
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(variables))


@pytest.mark.parametrize(
    ("config", "millions"), [(TINY, 2.598912), (BASE, 63.045632), (BIG, 214.171648)]
)
def test_published_sizes(config, millions):
    """Base and big are the paper's table 3 (65 M and 213 M with 37,000 pieces)."""
    assert count(config) == expected_count(config) == round(millions * 1e6)


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kv_heads", [None, 1, 2])
def test_settings_that_change_the_count(placement, bias, kv_heads):
    config = dataclasses.replace(
        TINY, norm_placement=placement, attention_bias=bias, num_kv_heads=kv_heads
    )
    assert count(config) == expected_count(config)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configurations(path):
    """The formula holds, and a count that a configuration's header states is the right one."""
    config = load(path)
    model = dataclasses.replace(config.model, vocab_size=config.data.vocab_size)
    assert count(model) == expected_count(model)
    stated = re.search(r"([\d,]+) parameters", path.read_text())
    if stated:
        assert stated[1] == f"{count(model):,}"
    else:
        assert not path.stem.startswith("transformer_"), "a published size states its count"
