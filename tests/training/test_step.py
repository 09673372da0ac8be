import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer.config import ModelConfig, OptimizerConfig
from transformer.functional.losses import cross_entropy
from transformer.models.classifier import Classifier
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq
from transformer.training.losses import loss_sums
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.state import init_state
from transformer.training.step import make_eval_step, make_train_step

V, SMOOTHING = 23, 0.1
CONFIG = ModelConfig(num_layers=1, model_dim=14, ff_dim=19, num_heads=7, vocab_size=V, dropout=0.0)
BOS, EOS = 2, 3


def make_batch(lengths, source=5, target=13, seed=0):
    """Rows whose targets have the given numbers of tokens, EOS included."""
    rng = np.random.default_rng(seed)
    batch = {
        "source": rng.integers(4, V, (len(lengths), source)).astype(np.int32),
        "inputs": np.zeros((len(lengths), target), np.int32),
        "targets": np.zeros((len(lengths), target), np.int32),
        "ids": np.arange(len(lengths), dtype=np.int32),
    }
    for row, length in enumerate(lengths):
        words = rng.integers(4, V, max(length - 1, 0))
        batch["targets"][row, :length] = [*words, EOS][:length]
        batch["inputs"][row, :length] = [BOS, *words][:length]
        batch["source"][row] *= length > 0
    batch["weights"] = (batch["targets"] > 0).astype(np.float32)
    return batch


def rows(batch, part):
    return {name: array[part] for name, array in batch.items()}


def make_step(model, optimizer_config, seed=3, accumulate=1):
    schedule = make_schedule(optimizer_config, CONFIG.model_dim, 100)
    optimizer = make_optimizer(optimizer_config, schedule)
    return make_train_step(model, optimizer, schedule, SMOOTHING, seed, accumulate)


ADAM = OptimizerConfig(schedule="constant", learning_rate=0.01, warmup_steps=0)


@pytest.fixture(scope="module")
def setup():
    model = Seq2Seq(CONFIG)
    optimizer = make_optimizer(ADAM, make_schedule(ADAM, CONFIG.model_dim, 100))
    return model, jax.jit(lambda: init_state(model, optimizer, 3)), make_step(model, ADAM)


def test_micro_batches_equal_the_whole_batch(setup):
    """Losses averaged per micro-batch once gave 4 tokens the weight of 60."""
    model, init, step = setup
    batch = make_batch([2, 2, 13, 13, 12, 13, 13, 0])
    one, whole = step(init(), batch)
    few, parts = make_step(model, ADAM, accumulate=4)(init(), batch)
    assert float(whole.sums.weight) == 4 + 64
    for got, expected in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-6)
    # Adam's first moment after one step is a tenth of the gradient.
    moments = [optax.tree.get(state.opt_state, "mu") for state in (few, one)]
    jax.tree.map(
        lambda got, expected: np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-8),
        *moments,
    )
    assert int(few.step) == int(one.step) == 1


def plain_loss(model, params, batch):
    source, inputs, targets = (jnp.asarray(batch[k]) for k in ("source", "inputs", "targets"))
    logits = model.apply({"params": params}, source, inputs)
    return cross_entropy(logits, targets, (targets > 0).astype(jnp.float32), SMOOTHING)


def test_loss_is_the_mean_over_target_tokens(setup):
    model, init, step = setup
    batch = make_batch([4, 13])
    params = init().params
    expected = jax.jit(partial(plain_loss, model))(params, batch)
    _, metrics = step(init(), batch)
    np.testing.assert_allclose(metrics.sums, expected, rtol=1e-5)
    assert float(metrics.sums.weight) == 17
    np.testing.assert_allclose(metrics.learning_rate, 0.01, rtol=1e-6)


def test_gradient_is_of_the_mean(setup):
    model, init, step = setup
    batch = make_batch([4, 13])

    def objective(params):
        sums = plain_loss(model, params, batch)
        return sums.loss / sums.weight

    grads = jax.jit(jax.grad(objective))(init().params)
    state, metrics = step(init(), batch)
    np.testing.assert_allclose(metrics.grad_norm, optax.tree.norm(grads), rtol=1e-5)
    jax.tree.map(
        lambda mu, g: np.testing.assert_allclose(mu, 0.1 * g, rtol=1e-3, atol=1e-7),
        optax.tree.get(state.opt_state, "mu"),
        grads,
    )


def test_padding_changes_nothing(setup):
    """A smoothed loss once grew with 20 columns of padding."""
    _, init, step = setup
    batch = make_batch([4, 13])
    padded = {k: np.pad(v, [(0, 1), (0, 20)][: v.ndim]) for k, v in batch.items()}
    _, whole = step(init(), batch)
    _, more = step(init(), padded)
    np.testing.assert_allclose(more.sums, whole.sums, rtol=1e-6)
    np.testing.assert_allclose(more.grad_norm, whole.grad_norm, rtol=1e-5)


def test_the_state_is_donated(setup):
    """Without donation a step holds two copies of parameters and moments."""
    _, init, step = setup
    state = init()
    step(state, make_batch([4, 13]))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_dropout_follows_from_seed_step_and_part(setup):
    _, init, _ = setup
    model = Seq2Seq(dataclasses.replace(CONFIG, dropout=0.5))
    still = dataclasses.replace(ADAM, learning_rate=1e-30)
    half = make_batch([4, 13])
    batch = {name: np.concatenate([array, array]) for name, array in half.items()}

    def losses(step, rows):
        state, found = init(), []
        for _ in range(3):
            state, metrics = step(state, rows)
            found.append(float(metrics.sums.loss))
        return found

    step = make_step(model, still, accumulate=2)
    first = losses(step, batch)
    assert len(set(first)) == 3
    assert losses(step, batch) == first
    assert losses(make_step(model, still, seed=5, accumulate=2), batch)[0] != first[0]
    # The second half would repeat the first, were the key not the part's own.
    assert abs(first[0] - 2 * losses(make_step(model, still), half)[0]) > 1e-3


def test_eval_sums_do_not_depend_on_the_batches(setup):
    """Batches of 4, 4 and 1 rows once counted as three equal means."""
    model, init, _ = setup
    evaluate = make_eval_step(model, SMOOTHING)
    params = init().params
    batch = make_batch([4, 13, 6, 7, 2, 3, 9, 5, 8])
    parts = [slice(0, 4), slice(4, 8), slice(8, 9)]
    whole = evaluate(params, batch)
    sums = np.sum([evaluate(params, rows(batch, part)) for part in parts], axis=0)
    np.testing.assert_allclose(sums, whole, rtol=1e-6)
    assert float(whole.weight) == 57


@pytest.mark.parametrize("tied", [True, False])
def test_packed_rows_of_a_language_model(tied):
    """Weights, segments and positions count, and so does a bias on the logits."""
    config = dataclasses.replace(
        CONFIG,
        architecture="decoder",
        positions="learned",
        max_positions=13,
        tie_embeddings=tied,
        output_bias=True,
        embedding_scaling="output" if tied else "none",
    )
    model = Decoder(config)
    optimizer = make_optimizer(ADAM, make_schedule(ADAM, CONFIG.model_dim, 100))
    params = init_state(model, optimizer, 3).params
    bias = jax.random.normal(jax.random.key(5), (V,))
    params["embedding"]["output_bias"] = bias
    batch = {**make_batch([13, 13, 9]), "segments": np.ones((3, 13), np.int32)}
    del batch["source"]
    batch["positions"] = np.tile(np.arange(13, dtype=np.int32), (3, 1))
    batch["segments"][0, 6:] = 2
    batch["positions"][0, 6:] -= 6
    batch["weights"][0, 5] = 0  # its target begins the next document
    arguments = (jnp.asarray(batch[k]) for k in ("inputs", "segments", "positions"))
    logits: Any = model.apply({"params": params}, *arguments)
    targets, weights = jnp.asarray(batch["targets"]), jnp.asarray(batch["weights"])
    expected = cross_entropy(logits, targets, weights, SMOOTHING)
    found = make_eval_step(model, SMOOTHING)(params, batch)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert float(found.weight) == 34
    table = "embedding" if tied else "output"

    def objective(embedding):
        merged = {**params, "embedding": {**params["embedding"], **embedding}}
        return loss_sums(model, merged, batch, SMOOTHING).loss

    grads = jax.grad(objective)({"output_bias": bias, table: params["embedding"][table]})
    probabilities = jax.nn.softmax(logits)
    smooth = (1 - SMOOTHING) * jax.nn.one_hot(targets, V) + SMOOTHING / V
    by_hand = ((probabilities - smooth) * weights[..., None]).sum((0, 1))
    np.testing.assert_allclose(grads["output_bias"], by_hand, rtol=1e-4, atol=1e-5)
    moved = {**batch, "positions": np.tile(np.arange(13, dtype=np.int32), (3, 1))}
    assert abs(float(make_eval_step(model, SMOOTHING)(params, moved).nll - found.nll)) > 1e-4


def class_batch() -> dict[str, np.ndarray]:
    """Three texts of 4, 2 and 6 tokens, and an empty row, as `ClassBatches` makes them."""
    inputs, weights = np.zeros((4, 7), np.int32), np.zeros((4, 7), np.float32)
    lengths = [4, 2, 6]
    for row, length in enumerate(lengths):
        inputs[row, :length] = np.random.default_rng(row).integers(4, V, length)
        weights[row, : length - 1] = 1 / (length - 1)
    targets = np.concatenate([inputs[:, 1:], np.zeros((4, 1), np.int32)], axis=1)
    return {
        "inputs": inputs,
        "targets": targets,
        "weights": weights,
        "ends": np.array([3, 1, 5, 0], np.int32),
        "labels": np.array([2, 0, 1, -1], np.int32),
        "ids": np.array([0, 1, 2, -1], np.int32),
    }


def test_the_loss_of_classes_adds_that_of_the_tokens():
    """Radford et al. 2018, equation 5; each text's own loss is a mean over its tokens."""
    config = dataclasses.replace(
        CONFIG, architecture="decoder", head="classification", num_classes=3
    )
    model, batch = Classifier(config), class_batch()
    params = jax.jit(model.init)(jax.random.key(0), batch["inputs"])["params"]
    apply: Any = jax.jit(partial(model.apply, {"params": params}), static_argnames="method")
    hidden = apply(batch["inputs"], method="hidden")
    classes = jax.nn.log_softmax(apply(hidden, batch["ends"], method="classify"))
    tokens = np.asarray(jax.nn.log_softmax(apply(hidden, method="logits")))
    expected_classes, expected_tokens = 0.0, 0.0
    for row, (length, label) in enumerate([(4, 2), (2, 0), (6, 1)]):
        expected_classes -= float(classes[row, label])
        following = batch["inputs"][row, 1:length]
        expected_tokens -= np.mean([tokens[row, t, v] for t, v in enumerate(following)])
    sums = jax.jit(lambda p: loss_sums(model, p, batch, 0.0))(params)
    assert float(sums.loss) == pytest.approx(expected_classes, rel=1e-5)
    both = jax.jit(lambda p: loss_sums(model, p, batch, 0.0, lm_weight=0.5))(params)
    assert float(both.loss) == pytest.approx(expected_classes + 0.5 * expected_tokens, rel=1e-5)
    for found in (sums, both):
        assert float(found.nll) == pytest.approx(expected_classes, rel=1e-5)
        assert float(found.weight) == 3


def test_training_on_classes_learns_them_and_the_language():
    config = dataclasses.replace(
        CONFIG, architecture="decoder", head="classification", num_classes=3
    )
    model, batch = Classifier(config), class_batch()
    schedule = make_schedule(ADAM, CONFIG.model_dim, 100)
    optimizer = make_optimizer(ADAM, schedule)
    step = make_train_step(model, optimizer, schedule, 0.0, 3, lm_weight=0.5)
    state, losses = jax.jit(lambda: init_state(model, optimizer, 3))(), []
    for _ in range(30):
        state, metrics = step(state, batch)
        losses.append((float(metrics.sums.nll), float(metrics.sums.loss)))
    assert losses[-1][0] < 0.1 * losses[0][0]
    assert losses[-1][1] - losses[-1][0] < 0.6 * (losses[0][1] - losses[0][0])


def test_micro_batches_of_packed_rows_weigh_by_their_tokens():
    """1, 13 and 26 targets count in three micro-batches; a mean of their means is another loss."""
    config = dataclasses.replace(CONFIG, architecture="decoder")
    model = Decoder(config)
    optimizer = make_optimizer(ADAM, make_schedule(ADAM, CONFIG.model_dim, 100))
    init = jax.jit(lambda: init_state(model, optimizer, 3))
    batch = make_batch([13] * 6)
    del batch["source"]
    batch["segments"] = np.repeat([[1] * 5 + [2] * 8], 6, axis=0).astype(np.int32)
    batch["positions"] = np.repeat([[*range(5), *range(8)]], 6, axis=0).astype(np.int32)
    batch["weights"][0, 1:] = batch["weights"][1] = batch["weights"][3] = 0
    one, whole = make_step(model, ADAM)(init(), batch)
    few, parts = make_step(model, ADAM, accumulate=3)(init(), batch)
    assert float(whole.sums.weight) == float(parts.sums.weight) == 1 + 13 + 26
    np.testing.assert_allclose(parts.sums, whole.sums, rtol=1e-5)
    moments = [optax.tree.get(state.opt_state, "mu") for state in (few, one)]
    jax.tree.map(
        lambda got, expected: np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-8),
        *moments,
    )
