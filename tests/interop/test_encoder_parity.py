"""BERT, RoBERTa and RoFormer against Hugging Face's library: every output and every gradient.

The models are tiny, random and of odd shapes, rows are padded, tokens are of two types
(tests/golden/make_hf_encoders.py).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.golden import assert_trees_close
from tests.interop.goldens import ENCODERS, Published, published
from transformer.models.build import build_model

OUTPUT, GRADIENT = 1e-5, 5e-5
"""Differences allowed in float32; gradients, of up to thirty, sum more terms."""


def outputs(model: Published, params: Any, attention: str = "plain") -> dict[str, Any]:
    """By their names, in their shapes."""
    config = dataclasses.replace(model.config, attention=attention)
    network = build_model(config)
    inputs, types = (jnp.asarray(model.arrays["input"][n]) for n in ("inputs", "token_types"))
    rows = inputs.reshape(-1, inputs.shape[-1])

    def call(method: str, *arguments: Any, **named: Any) -> Any:
        return network.apply({"params": params}, *arguments, method=method, **named)

    hidden = call("hidden", rows, token_types=types.reshape(rows.shape))
    match config.head:
        case "none":
            return {"last_hidden_state": hidden, "pooler_output": call("pooled", hidden)}
        case "language_model":
            places = jnp.broadcast_to(jnp.arange(rows.shape[1]), rows.shape)
            logits = call("logits", call("masked", hidden, places))
            if not config.next_sentence:
                return {"logits": logits}
            return {"prediction_logits": logits, "seq_relationship_logits": call("follows", hidden)}
        case "span":
            starts, ends = jnp.moveaxis(call("label_tokens", hidden), -1, 0)
            return {"start_logits": starts, "end_logits": ends}
        case "token_labels":
            return {"logits": call("label_tokens", hidden)}
        case "multiple_choice":
            return {"logits": call("classify", hidden).reshape(inputs.shape[:2])}
        case _:
            return {"logits": call("classify", hidden)}


@pytest.mark.parametrize(
    ("case", "attention"),
    [*((case, "plain") for case in ENCODERS), ("bert_pretraining", "chunked")],
)
def test_outputs_and_gradients(case, attention):
    model = published(case)
    cotangents, expected = model.arrays["cotangent"], model.arrays["output"]

    def loss(params):
        found = outputs(model, params, attention)
        return sum(jnp.vdot(found[name], cotangents[name]) for name in found), found

    gradients, found = jax.jit(jax.grad(loss, has_aux=True))(model.ours(model.tensors))
    assert found.keys() == expected.keys()
    real = model.arrays["input"]["inputs"] != model.config.pad_id
    for name, output in found.items():
        counts = np.ones((), bool)
        if output.shape[:2] == real.shape and model.config.head != "multiple_choice":
            counts = real.reshape(*real.shape, *[1] * (output.ndim - 2))
        assert_trees_close(output * counts, expected[name] * counts, OUTPUT)
    assert_trees_close(gradients, model.ours(model.gradients), GRADIENT)


@pytest.mark.parametrize(
    ("case", "head", "outputs"),
    [
        ("bert", "none", None),
        ("bert_classes", "classification", 5),
        ("bert_value", "regression", None),
        ("bert_tokens", "token_labels", 5),
        ("bert_choice", "multiple_choice", None),
        ("bert_spans", "span", None),
        ("roberta_classes", "classification", 3),
        ("roformer", "language_model", None),
    ],
)
def test_the_class_says_what_the_head_is(case, head, outputs):
    config = published(case).config
    assert (config.head, config.num_classes, config.next_sentence) == (head, outputs, False)


def test_pretraining_has_both_heads():
    assert published("bert_pretraining").config.next_sentence


def test_roberta_counts_positions_from_behind_its_padding():
    model = published("roberta")
    theirs = model.tensors["roberta.embeddings.position_embeddings.weight"]
    assert (len(theirs), model.config.max_positions, model.config.pad_id) == (11, 9, 1)
    ours = model.ours(model.tensors)["embedding"]["positions"]
    np.testing.assert_array_equal(ours, theirs[2:])


def test_only_pairs_of_queries_and_keys_change_places_in_roformer():
    """The values' dimensions are the residual projection's rows, which stay."""
    model = published("roformer")
    layer = model.ours(model.tensors)["encoder"]["layer_0"]["self_attention"]
    theirs = {
        name: model.tensors[f"roformer.encoder.layer.0.attention.self.{name}.bias"]
        for name in ("query", "key", "value")
    }
    for name in ("query", "key"):  # 3 heads of 6: pairs (0, 1), (2, 3), (4, 5)
        heads = theirs[name].reshape(3, 3, 2)
        expected = np.concatenate([heads[..., 0], heads[..., 1]], axis=1).reshape(-1)
        np.testing.assert_array_equal(layer[name]["bias"], expected)
    np.testing.assert_array_equal(layer["value"]["bias"], theirs["value"])
