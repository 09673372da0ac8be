"""The maps are the weights the model computes with, and their labels say what they are of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.analysis.attention_maps import cross_attention, label_pair
from transformer.config import DataConfig, ModelConfig
from transformer.data.tokenizer import BOS, EOS, train_tokenizer
from transformer.functional import Mask, attend, layer_norm, sinusoids
from transformer.models.seq2seq import Seq2Seq

L, N, S, T, D, V = 1, 3, 7, 5, 12, 19
SOURCE, INPUTS = [5, 11, 4, 17, 11, 8, EOS], [BOS, 9, 18, 7, 13]


@pytest.fixture(scope="module")
def trained():
    config = ModelConfig(num_layers=L, model_dim=D, ff_dim=17, num_heads=N, vocab_size=V)
    model = Seq2Seq(config)
    tokens = jnp.asarray([SOURCE])
    return model, jax.jit(model.init)(jax.random.key(0), tokens, tokens)["params"]


def test_weights_are_those_of_the_equations(trained):
    """Recomputed from the parameters: post-norm, one layer."""
    model, params = trained
    inputs = jnp.asarray([INPUTS])
    encoded = model.apply({"params": params}, jnp.asarray([SOURCE]), method="encode")
    layer = params["decoder"]["layer_0"]

    def heads(x, block, name):
        return (x @ block[name]["kernel"]).reshape(*x.shape[:2], N, D // N)

    x = D**0.5 * params["embedding"]["embedding"][inputs] + sinusoids(jnp.arange(T), D)
    block = layer["self_attention"]
    attended = attend(
        *(heads(x, block, name) for name in ("query", "key", "value")),
        mask=Mask.self_attention(jnp.ones((1, T), bool), causal=True),
    )
    x = layer_norm(
        x + attended.reshape(1, T, D) @ block["out"]["kernel"], **layer["self_attention_norm"]
    )
    block = layer["cross_attention"]
    query, key = heads(x, block, "query"), heads(encoded, block, "key")
    logits = jnp.einsum("btnh,bsnh->bnts", query, key) / (D // N) ** 0.5
    expected = jax.nn.softmax(logits, axis=-1)

    weights = cross_attention(model, params, SOURCE, INPUTS)
    assert weights.shape == (L, N, T, S) and weights.dtype == np.float32
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert weights.std(axis=-1).max() > 0.01


def test_a_row_does_not_know_what_is_written_later(trained):
    model, params = trained
    weights = cross_attention(model, params, SOURCE, INPUTS)
    other = cross_attention(model, params, SOURCE, [*INPUTS[:3], 4, 4])
    np.testing.assert_allclose(weights[:, :, :3], other[:, :, :3], atol=1e-6)
    assert np.abs(weights[:, :, 3:] - other[:, :, 3:]).max() > 1e-3


def test_rows_are_labelled_with_what_is_predicted_and_columns_with_what_is_seen():
    tokenizer = train_tokenizer(DataConfig(), ["cab", "ba"], ["K AE B", "B AA"])
    pair = label_pair(tokenizer, "bac", "B AE K")
    assert pair["columns"][:3] == ["b", "a", "c"] and len(pair["columns"]) == 4
    assert pair["rows"][:3] == ["B", "AE", "K"] and len(pair["rows"]) == 4
    assert pair["columns"][3] == pair["rows"][3]
    assert pair["source"] == [*tokenizer.encode_source("bac"), EOS]
    assert pair["inputs"] == [BOS, *tokenizer.encode_target("B AE K")]
