"""The classifier: a language model with a head on the last token of each text."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal
from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.models.classifier import Classifier
from transformer.models.decoder import Decoder

B, T, D, V, C = 2, 5, 12, 23, 3
CONFIG = ModelConfig(
    "decoder",
    num_layers=1,
    model_dim=D,
    ff_dim=17,
    num_heads=3,
    vocab_size=V,
    head="classification",
    num_classes=C,
)


@pytest.fixture(scope="module")
def made() -> tuple[Any, Any, jax.Array]:
    model = Classifier(CONFIG)
    tokens = jax.random.randint(jax.random.key(1), (B, T), 0, V)
    return model, model.init(jax.random.key(2), tokens), tokens


def test_it_is_the_language_model_and_a_head(made):
    model, variables, tokens = made
    params = dict(variables["params"])
    head = params.pop("classifier")
    assert head["kernel"].shape == (D, C) and not head["bias"].any()
    assert float(head["kernel"].std()) == pytest.approx(0.02, rel=0.4)
    expected = Decoder(CONFIG).apply({"params": params}, tokens)
    np.testing.assert_array_equal(model.apply(variables, tokens), expected)
    fresh = Decoder(CONFIG).init(jax.random.key(2), tokens)["params"]
    assert jax.tree.structure(fresh) == jax.tree.structure(params)


def test_classes_are_read_off_the_last_token(made):
    model, variables, _ = made
    hidden, ends = normal(4, B, T, D), jnp.array([4, 1])
    kernel, bias = normal(5, D, C), normal(6, C)
    params = {**variables["params"], "classifier": {"kernel": kernel, "bias": bias}}
    found = model.apply({"params": params}, hidden, ends, method="classify")
    expected = jnp.stack([hidden[0, 4], hidden[1, 1]]) @ kernel + bias
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.dtype == jnp.float32


def test_what_follows_the_last_token_does_not_count(made):
    """The prediction once depended on how far a batch was padded."""
    model, variables, tokens = made

    def classes(tokens):
        hidden = model.apply(variables, tokens, method="hidden")
        return model.apply(variables, hidden, jnp.array([2, 2]), method="classify")

    np.testing.assert_allclose(
        classes(tokens), classes(tokens.at[:, 3:].set(0)), rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(classes(tokens), classes(tokens[:, :3]), rtol=1e-5, atol=1e-7)


def test_dropout_is_on_the_heads_input_in_training_alone(made):
    model, variables, _ = made
    hidden, ends = jnp.ones((B, T, D)), jnp.zeros(B, int)

    def classes(key):
        rngs = {"dropout": jax.random.key(key)}
        return model.apply(variables, hidden, ends, train=True, method="classify", rngs=rngs)

    assert not np.allclose(classes(0), classes(1))
    np.testing.assert_array_equal(classes(0), classes(0))


def test_the_number_of_classes_is_needed():
    model = Classifier(ModelConfig("decoder", 1, D, 17, 3, vocab_size=V))
    with pytest.raises(UserError, match=r"model.num_classes = None"):
        model.init(jax.random.key(0), jnp.ones((1, 2), int))
