"""The encoder-decoder: padding, dropout, types, grouped heads, cache."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import InvalidRngError
from flax.traverse_util import flatten_dict

from tests.golden import assert_trees_close
from transformer.config import ModelConfig
from transformer.data.tokenizer import PAD
from transformer.errors import UserError
from transformer.functional import Mask, cross_entropy, layers
from transformer.models.cache import cache_bytes
from transformer.models.seq2seq import Seq2Seq
from transformer.modules import block

V = 31
CONFIG = ModelConfig(
    num_layers=1, model_dim=21, ff_dim=29, num_heads=3, vocab_size=V, attention="plain"
)
SOURCE = jnp.array([[5, 7, 11, 13, 17, 19, 3], [30, 8, 3, 0, 0, 0, 0], [4, 4, 9, 23, 3, 0, 0]])
INPUTS = jnp.array([[2, 12, 26, 0, 0], [2, 27, 10, 22, 14], [2, 6, 6, 6, 0]])
TARGETS = jnp.array([[12, 26, 3, 0, 0], [27, 10, 22, 14, 3], [6, 6, 6, 3, 0]])


def initialise(config=CONFIG):
    """Random parameters, biases and norms too, drawn without compiling anything."""
    shapes = jax.eval_shape(Seq2Seq(config).init, jax.random.key(0), SOURCE, INPUTS)["params"]
    random = np.random.default_rng(0)

    def draw(path, leaf):
        name = path[-1].key
        scale = leaf.shape[-1] ** -0.5 if name in ("kernel", "embedding") else 0.1
        return jnp.asarray(random.normal(name == "scale", scale, leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def forward(config, params, source, inputs, **options):
    run = jax.jit(lambda p, s, i: Seq2Seq(config).apply({"params": p}, s, i, **options))
    return run(params, source, inputs)


def mean_loss_and_gradient(config, params, source, inputs, targets):
    def loss(params):
        logits = jnp.asarray(Seq2Seq(config).apply({"params": params}, source, inputs))
        sums = cross_entropy(logits, targets, (targets != PAD).astype(jnp.float32), 0.1)
        return sums.loss / sums.weight

    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.parametrize(("placement", "attention"), [("post", "plain"), ("pre", "chunked")])
def test_the_amount_of_padding_changes_neither_loss_nor_gradient(placement, attention):
    """A smoothed loss once varied with the padding of the batch; so did attention."""
    config = dataclasses.replace(CONFIG, norm_placement=placement, attention=attention)
    params = initialise(config)
    loss, gradient = mean_loss_and_gradient(config, params, SOURCE, INPUTS, TARGETS)
    # Twenty columns of padding, and a row that is nothing else (a partial batch has those).
    padded = [jnp.pad(tokens, ((0, 1), (0, 20))) for tokens in (SOURCE, INPUTS, TARGETS)]
    padded_loss, padded_gradient = mean_loss_and_gradient(config, params, *padded)
    np.testing.assert_allclose(padded_loss, loss, rtol=1e-6)
    assert_trees_close(padded_gradient, gradient, 2e-6)


def test_the_content_of_padding_does_not_matter():
    """Key lengths alone were once ignored: what the pad embedding holds reached the output."""
    params = initialise()
    table = params["embedding"]["embedding"]
    other = params | {"embedding": {"embedding": table.at[PAD].add(100.0)}}
    hidden, changed = (forward(CONFIG, p, SOURCE, INPUTS, method="hidden") for p in (params, other))
    real = INPUTS != PAD
    np.testing.assert_array_equal(hidden[real], changed[real])
    assert (hidden[~real] != changed[~real]).any()


def test_an_example_in_a_padded_batch_is_the_example_alone():
    params = initialise()
    batched = forward(CONFIG, params, SOURCE, INPUTS)
    alone = forward(CONFIG, params, SOURCE[2:, :5], INPUTS[2:, :4])
    assert (SOURCE[2, 5:] == PAD).all() and (INPUTS[2, 4:] == PAD).all()
    np.testing.assert_allclose(batched[2:, :4], alone, atol=1e-5)


@pytest.fixture
def dropped(monkeypatch):
    """What each dropout of a call set to 0, as it is done, also where a loop does it."""
    found: list[np.ndarray] = []
    dropout = layers.dropout

    def noted(x, rate, key):
        output = dropout(x, rate, key)
        if output is not x:
            jax.debug.callback(lambda y: found.append(np.asarray(y) == 0), output)
        return output

    monkeypatch.setattr(layers, "dropout", noted)
    monkeypatch.setattr(block, "dropout", noted)
    return found


@pytest.mark.parametrize("scan", [False, True])
def test_dropout_masks_differ_by_site_layer_step_and_example(dropped, scan):
    """A scan over layers once gave every layer the same mask."""
    config = dataclasses.replace(CONFIG, num_layers=2, dropout=0.5, scan_layers=scan)
    params = initialise(config)
    same = jnp.tile(jnp.array([[5, 7, 11, 13, 3]]), (2, 1))
    for step in (0, 1):
        rngs = {"dropout": jax.random.fold_in(jax.random.key(0), step)}
        Seq2Seq(config).apply({"params": params}, same, same, train=True, rngs=rngs)
    jax.effects_barrier()
    # Two embeddings; two sublayers in an encoder layer, three in a decoder layer.
    assert len(dropped) == 2 * (2 + 2 * 2 + 3 * 2)
    for mask in dropped:
        assert 0.35 < mask.mean() < 0.65
        assert (mask[0] != mask[1]).any()
    for i, first in enumerate(dropped):
        for second in dropped[:i]:
            assert 0.3 < (first != second).mean() < 0.7


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "ff_dropout"])
def test_each_rate_works_in_training_alone_and_follows_the_key(rate):
    off = dataclasses.replace(CONFIG, dropout=0.0)
    config = dataclasses.replace(off, **{rate: 0.3})
    params = initialise(config)
    exact = forward(off, params, SOURCE, INPUTS)
    np.testing.assert_array_equal(forward(config, params, SOURCE, INPUTS), exact)

    train = jax.jit(
        lambda key: Seq2Seq(config).apply(
            {"params": params}, SOURCE, INPUTS, train=True, rngs={"dropout": key}
        )
    )
    first, again, other = (train(jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9
    assert (first != exact).mean() > 0.9
    with pytest.raises(InvalidRngError, match="dropout"):
        Seq2Seq(config).apply({"params": params}, SOURCE, INPUTS, train=True)


def test_bfloat16_is_close_to_float32_and_its_logits_are_float32():
    """A loss was once quantised because the logits were bfloat16."""
    half = dataclasses.replace(CONFIG, dtype="bfloat16")
    params = initialise(half)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    assert forward(half, params, SOURCE, INPUTS, method="hidden").dtype == jnp.bfloat16
    logits = forward(half, params, SOURCE, INPUTS)
    assert logits.dtype == jnp.float32
    exact = forward(CONFIG, params, SOURCE, INPUTS)
    real = INPUTS != PAD
    error = jnp.abs(logits - exact)[real].max() / exact[real].std()
    assert 1e-4 < error < 0.05


@pytest.mark.parametrize(("kv_heads", "attention"), [(1, "plain"), (2, "chunked")])
def test_grouped_heads_equal_repeated_ones(kv_heads, attention):
    heads, head_dim = 6, 5
    full = dataclasses.replace(
        CONFIG, model_dim=30, num_heads=heads, attention_bias=True, attention=attention
    )
    grouped = dataclasses.replace(full, num_kv_heads=kv_heads)
    params = initialise(grouped)

    def repeat(path, array):
        if not {entry.key for entry in path} & {"key", "value"}:
            return array
        split = array.reshape(*array.shape[:-1], kv_heads, head_dim)
        return split.repeat(heads // kv_heads, axis=-2).reshape(*array.shape[:-1], -1)

    repeated = jax.tree_util.tree_map_with_path(repeat, params)
    np.testing.assert_allclose(
        forward(grouped, params, SOURCE, INPUTS),
        forward(full, repeated, SOURCE, INPUTS),
        atol=1e-5,
    )


def test_the_cache_takes_what_the_formula_says():
    config = dataclasses.replace(CONFIG, num_layers=2, num_kv_heads=1, dtype="bfloat16")
    params, model = initialise(config), Seq2Seq(config)
    cache = jax.eval_shape(
        lambda: model.apply({"params": params}, SOURCE.astype(jnp.int32), 13, method="start")
    )
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache))
    assert size == cache_bytes(config, len(SOURCE), 13, SOURCE.shape[1])


@pytest.mark.parametrize(("prompt", "placement"), [(1, "pre"), (4, "post")])
def test_cached_steps_equal_the_whole_forward(prompt, placement):
    """Caches have failed for prompts longer than 1, and seen key 0 only."""
    config = dataclasses.replace(CONFIG, num_layers=2, norm_placement=placement, num_kv_heads=1)
    params = initialise(config)
    model, capacity = Seq2Seq(config), 13
    inputs = jnp.array(
        [[2, 12, 26, 8, 9, 10, 11], [2, 27, 10, 22, 14, 3, 5], [2, 6, 6, 6, 7, 8, 9]]
    )
    expected = forward(config, params, SOURCE, inputs)
    cache = model.apply({"params": params}, SOURCE, capacity, method="start")
    keys = jnp.arange(capacity)[None]

    @jax.jit
    def step(tokens, cache, index):
        positions = jnp.broadcast_to(index + jnp.arange(tokens.shape[1]), tokens.shape)
        mask = Mask(query_positions=positions, key_positions=keys, causal=True)
        variables = {"params": params}
        return model.apply(variables, tokens, positions, cache, index, mask, method="decode")

    start, sizes = 0, [prompt] + [1] * (inputs.shape[1] - prompt)
    for size in sizes:
        logits, cache = step(inputs[:, start : start + size], cache, start)
        np.testing.assert_allclose(logits, expected[:, start : start + size], atol=1e-5)
        start += size


def test_attention_weights_can_be_kept():
    params = initialise()
    logits, state = Seq2Seq(CONFIG).apply(
        {"params": params}, SOURCE, INPUTS, mutable=["intermediates"]
    )
    np.testing.assert_allclose(logits, forward(CONFIG, params, SOURCE, INPUTS), atol=1e-5)
    kept: Any = flatten_dict(state["intermediates"], sep="/")
    (weights,) = kept["decoder/layer_0/cross_attention/attention_weights"]
    assert weights.shape == (3, 3, 5, 7)
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    np.testing.assert_array_equal(weights * (SOURCE == PAD)[:, None, None], 0)


def test_a_model_needs_a_vocabulary():
    config = dataclasses.replace(CONFIG, vocab_size=None)
    with pytest.raises(UserError, match=r"model\.vocab_size"):
        Seq2Seq(config).init(jax.random.key(0), SOURCE, INPUTS)
