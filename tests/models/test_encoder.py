import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.models.encoder import Encoder

B, T, V, D, C = 3, 7, 23, 15, 5
BERT = {
    "num_layers": 2,
    "model_dim": D,
    "ff_dim": 17,
    "num_heads": 3,
    "vocab_size": V,
    "positions": "learned",
    "max_positions": 11,
    "segment_types": 2,
    "embedding_norm": True,
    "embedding_scaling": "none",
    "activation": "gelu",
    "attention_bias": True,
    "output_bias": True,
    "initializer": "normal",
    "norm_epsilon": 1e-12,
}


@pytest.fixture(scope="module")
def made():
    model = Encoder(ModelConfig("encoder", next_sentence=True, **BERT))
    tokens = jax.random.randint(jax.random.key(0), (B, T), 1, V).at[1, 5:].set(0)
    return model, jax.jit(model.init)(jax.random.key(1), tokens), tokens


def test_padding_changes_nothing(made):
    model, variables, tokens = made
    alone = model.apply(variables, tokens[1:2, :5])
    np.testing.assert_allclose(model.apply(variables, tokens)[1, :5], alone[0], atol=1e-5)


def test_every_token_sees_later_ones(made):
    model, variables, tokens = made
    before = model.apply(variables, tokens)
    after = model.apply(variables, tokens.at[0, 6].set(1 + tokens[0, 6] % (V - 1)))
    assert np.abs(before - after)[0, 0].max() > 1e-5
    np.testing.assert_array_equal(before[2], after[2])


def test_segments_keep_packed_texts_apart(made):
    model, variables, tokens = made
    one, two = tokens[0, :4], tokens[2, :3]
    packed = jnp.concatenate([one, two])[None]
    found = model.apply(
        variables, packed, jnp.array([[1, 1, 1, 1, 2, 2, 2]]), jnp.array([[0, 1, 2, 3, 0, 1, 2]])
    )
    np.testing.assert_allclose(found[0, 4:], model.apply(variables, two[None])[0], atol=1e-5)


def test_token_types_are_looked_at_and_are_0_by_default(made):
    model, variables, tokens = made
    zeros = model.apply(variables, tokens, token_types=jnp.zeros_like(tokens))
    np.testing.assert_array_equal(zeros, model.apply(variables, tokens))
    ones = model.apply(variables, tokens, token_types=jnp.ones_like(tokens))
    assert np.abs(ones - zeros).max() > 1e-3


def test_logits_are_of_the_places_asked_for(made):
    model, variables, tokens = made
    hidden = model.apply(variables, tokens)
    places = jnp.array([[6, 0], [2, 2], [5, 1]])
    few = model.apply(variables, hidden, places, method="masked")
    every = jnp.broadcast_to(jnp.arange(T), (B, T))
    all_of_them = model.apply(variables, hidden, every, method="masked")
    rows = np.arange(B)[:, None]
    np.testing.assert_allclose(few, all_of_them[rows, places], atol=1e-6)
    assert model.apply(variables, few, method="logits").shape == (B, 2, V)
    assert model.apply(variables, hidden, method="follows").shape == (B, 2)


@pytest.mark.parametrize(
    ("head", "parts", "outputs"),
    [
        ("none", {"pooler"}, None),
        ("classification", {"pooler", "classifier"}, C),
        ("regression", {"pooler", "classifier"}, 1),
        ("multiple_choice", {"pooler", "classifier"}, 1),
        ("token_labels", {"classifier"}, C),
        ("span", {"classifier"}, 2),
        ("language_model", {"transform", "transform_norm"}, None),
    ],
)
def test_a_head_has_the_parameters_it_needs(head, parts, outputs):
    classes = C if head in ("classification", "token_labels") else None
    model = Encoder(ModelConfig("encoder", head=head, num_classes=classes, **BERT))
    tokens = jax.ShapeDtypeStruct((B, T), jnp.int32)
    params = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
    assert params.keys() == {"embedding", "encoder"} | parts
    if outputs:
        assert params["classifier"]["kernel"].shape == (D, outputs)


def test_the_number_of_classes_is_needed():
    model = Encoder(ModelConfig("encoder", head="token_labels", **BERT))
    with pytest.raises(UserError, match=r"model.num_classes = None"):
        model.init(jax.random.key(0), jnp.ones((1, 2), int))
