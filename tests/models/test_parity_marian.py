"""The whole model against Hugging Face's Marian, logits and every gradient."""

import jax
import jax.numpy as jnp
import pytest

from tests.golden import assert_trees_close, convert, load
from transformer.config import ModelConfig
from transformer.models.seq2seq import Seq2Seq


@pytest.mark.parametrize("attention", ["plain", "chunked"])
def test_marian_model_with_random_weights(attention):
    """Shared embeddings x sqrt(D), sinusoids, padding on both sides, tied logits; odd D."""
    golden = load("marian")["marian"]
    vocab_size, model_dim = golden["param"]["model.shared.weight"].shape
    config = ModelConfig(
        num_layers=2,
        model_dim=model_dim,
        ff_dim=golden["param"]["model.encoder.layers.0.fc1.bias"].size,
        num_heads=3,
        vocab_size=vocab_size,
        norm_epsilon=1e-5,
        attention_bias=True,
        attention=attention,
    )
    model = Seq2Seq(config)
    source, inputs = (jnp.asarray(golden["input"][name]) for name in ("source", "inputs"))
    cotangent = golden["cotangent"]["logits"]

    def loss(params):
        logits = jnp.asarray(model.apply({"params": params}, source, inputs))
        return jnp.vdot(logits, cotangent), logits

    params, expected = (
        convert.marian(golden[part], config.num_layers) for part in ("param", "grad_param")
    )
    gradients, logits = jax.jit(jax.grad(loss, has_aux=True))(params)
    counts = cotangent != 0
    assert_trees_close(logits * counts, golden["output"]["logits"] * counts)
    assert_trees_close(gradients, expected)
