"""How many parameters a configuration has, from a formula written without looking at the model."""

import dataclasses
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from transformer.config import ModelConfig, head_of, load
from transformer.models.build import build_model

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))

TINY = ModelConfig(num_layers=4, model_dim=128, ff_dim=256, num_heads=4, vocab_size=10_000)
BASE = ModelConfig(vocab_size=37_000)
BIG = ModelConfig(model_dim=1024, ff_dim=4096, num_heads=16, vocab_size=37_000)


def expected_count(c: ModelConfig) -> int:
    """Matrices, biases and norms of the paper's figure 1, section 3, and of what followed."""
    assert c.vocab_size is not None
    d, f = c.model_dim, c.ff_dim
    query_dim = c.attention_dim or d
    kv_dim = query_dim // c.num_heads * (c.num_kv_heads or c.num_heads)
    attention = 2 * d * query_dim + 2 * d * kv_dim
    if c.attention_bias:
        attention += d + query_dim + 2 * kv_dim
    inputs = 2 if c.activation in ("geglu", "swiglu") else 1
    feed_forward = (inputs + 1) * d * f + (d + inputs * f) * c.ff_bias
    norm = d if c.norm == "rms" else 2 * d
    layer = attention + feed_forward + 2 * norm
    stack = norm * (c.norm_placement == "pre") + 32 * c.num_heads * (c.positions == "relative")
    total = c.vocab_size * d * (1 if c.tie_embeddings else 2) + c.vocab_size * c.output_bias
    total += (c.max_positions or 0) * d * (c.positions == "learned")
    total += c.num_layers * layer + stack
    if c.architecture == "encoder_decoder":
        total += c.num_layers * (layer + attention + norm) + stack
    total += c.segment_types * d + norm * c.embedding_norm
    if c.architecture == "encoder":
        total += sum(head_parts(c).values())
    return total


def head_parts(c: ModelConfig) -> dict[str, int]:
    """What Devlin et al. 2019, sections 3 and 4, read the last hidden vectors with."""
    d, classes = c.model_dim, c.num_classes or 0
    dense, norm = d * d + d, 2 * d
    language_model = c.head == "language_model"
    outputs = {"classification": classes, "token_labels": classes}
    outputs |= {"regression": 1, "multiple_choice": 1, "span": 2}
    pooled = c.next_sentence or c.head in (
        "classification",
        "regression",
        "multiple_choice",
        "none",
    )
    return {
        "pooler": dense * pooled,
        "transform": (dense + norm) * language_model,
        "next sentence": 2 * (d + 1) * c.next_sentence,
        "classifier": outputs.get(c.head, 0) * (d + 1),
    }


def count(config: ModelConfig) -> int:
    """Of the model itself; shapes only, nothing is allocated."""
    arguments = {"inputs": jax.ShapeDtypeStruct((2, 3), jnp.int32)}
    if config.architecture == "encoder_decoder":
        arguments["source"] = arguments["inputs"]
    variables = jax.eval_shape(build_model(config).init, jax.random.key(0), **arguments)
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
    size = config.model.vocab_size or config.data.vocab_size
    model = dataclasses.replace(config.model, vocab_size=size)
    if model.architecture == "encoder":
        masked = config.data.objective == "masked_language_model"
        paired = masked and config.data.next_sentence
        head = head_of(config.data.objective)
        model = dataclasses.replace(model, head=head, next_sentence=paired)
    assert count(model) == expected_count(model)
    text = path.read_text()
    stated = re.search(r"([\d,]+) parameters", text)
    if stated:
        if padded := re.search(r"published vocabulary .*padded to\s+([\d,]+)", text):
            model = dataclasses.replace(model, vocab_size=int(padded[1].replace(",", "")))
        assert stated[1] == f"{count(model):,}"
    else:
        assert not path.stem.startswith("transformer_"), "a published size states its count"
