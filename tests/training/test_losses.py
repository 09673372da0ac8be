from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from tests.models.test_encoder import BERT, C, T, V
from transformer.config import ModelConfig
from transformer.models.encoder import Encoder
from transformer.training.losses import loss_sums

R = 4


def made(head: Any, classes: int | None = None, **settings: Any):
    """A network and what its methods return, for a batch with padding and an empty row."""
    model = Encoder(ModelConfig("encoder", head=head, num_classes=classes, **BERT, **settings))
    generator = np.random.default_rng(1)
    inputs = generator.integers(1, V, (R, T), dtype=np.int32)
    inputs[1, 4:] = inputs[3] = 0
    types = (np.arange(T) >= 3).astype(np.int32)[None].repeat(R, 0)
    batch = {"inputs": inputs, "token_types": types}
    params = jax.jit(model.init)(jax.random.key(0), inputs)["params"]
    # Larger than at the start, so that no two losses are alike.
    params = jax.tree.map(lambda x: 4 * x, params)
    apply: Any = jax.jit(partial(model.apply, {"params": params}), static_argnames="method")
    hidden = apply(inputs, token_types=types, method="hidden")
    return model, params, batch, partial(apply, hidden)


def sums(model, params, batch, smoothing=0.0):
    return jax.jit(lambda p, b: loss_sums(model, p, b, smoothing))(params, batch)


def log_softmax(logits) -> np.ndarray:
    return np.asarray(jax.nn.log_softmax(logits), np.float64)


def masked_batch(batch):
    """2, 1 and 3 masked tokens in three pairs."""
    places = np.array([[1, 5, 0], [2, 0, 0], [1, 3, 6], [0, 0, 0]], np.int32)
    weights = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]], np.float32)
    targets = np.array([[4, 9, 0], [V - 1, 0, 0], [3, 3, 7], [0, 0, 0]], np.int32)
    follows = np.array([0, 1, 1, -1], np.int32)
    follow_weights = np.array([2, 2, 2, 0], np.float32)
    named = {"places": places, "weights": weights, "targets": targets}
    return batch | named | {"follows": follows, "follow_weights": follow_weights}


def test_masked_tokens_and_pairs_each_have_a_mean_of_their_own():
    """Devlin et al. 2019, appendix A.2: the sum of the mean losses."""
    model, params, batch, read = made("language_model", next_sentence=True)
    batch = masked_batch(batch)
    vectors = read(batch["places"], method="masked")
    tokens = log_softmax(model.apply({"params": params}, vectors, method="logits"))
    pairs = log_softmax(read(method="follows"))
    counted = batch["weights"] > 0
    rows, columns = np.nonzero(counted)
    nll = -tokens[rows, columns, batch["targets"][counted]].sum()
    pair_mean = -np.mean([pairs[0, 0], pairs[1, 1], pairs[2, 1]])
    found = sums(model, params, batch)
    assert float(found.weight) == 6
    assert float(found.nll) == pytest.approx(nll, rel=1e-5)
    assert float(found.loss / found.weight) == pytest.approx(nll / 6 + pair_mean, rel=1e-5)


def test_the_parts_of_a_batch_add_up_to_the_whole():
    """The parts hold 3 and 3 masked tokens, 2 and 1 pairs: no mean of means."""
    model, params, batch, _ = made("language_model", next_sentence=True)
    batch = masked_batch(batch)
    whole = sums(model, params, batch, 0.1)
    parts = [
        sums(model, params, {name: array[part] for name, array in batch.items()}, 0.1)
        for part in (slice(0, 2), slice(2, 4))
    ]
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, rtol=1e-5)


@pytest.mark.parametrize("head", ["classification", "token_labels"])
def test_classes(head):
    model, params, batch, read = made(head, C)
    if head == "classification":
        labels = np.array([4, 0, 2, -1], np.int32)
        logs = log_softmax(read(method="classify"))
    else:
        labels = np.random.default_rng(2).integers(-1, C, (R, T), dtype=np.int32)
        logs = log_softmax(read(method="label_tokens"))
    places = np.nonzero(labels >= 0)
    found = sums(model, params, batch | {"labels": labels})
    assert float(found.loss) == pytest.approx(-logs[(*places, labels[places])].sum(), rel=1e-5)
    assert float(found.weight) == len(places[0])


def test_values():
    model, params, batch, read = made("regression")
    values = np.array([3.5, -1, 0, 7], np.float32)
    weights = np.array([1, 1, 1, 0], np.float32)
    errors = np.asarray(read(method="classify"))[:3, 0] - values[:3]
    found = sums(model, params, batch | {"values": values, "weights": weights})
    assert float(found.loss) == pytest.approx((errors**2).sum(), rel=1e-5)
    assert float(found.weight) == 3


def test_choices_compete_within_their_example():
    model, params, batch, read = made("multiple_choice")
    logs = log_softmax(np.asarray(read(method="classify")).reshape(2, 2))
    rows = {name: array.reshape(2, 2, T) for name, array in batch.items()}
    found = sums(model, params, rows | {"labels": np.array([1, 0], np.int32)})
    assert float(found.loss) == pytest.approx(-(logs[0, 1] + logs[1, 0]), rel=1e-5)
    assert float(found.weight) == 2


def test_spans_begin_and_end_at_no_padding():
    model, params, batch, read = made("span")
    logits = np.asarray(read(method="label_tokens"))
    starts, ends = np.array([2, 0, 5, -1], np.int32), np.array([4, 0, 6, -1], np.int32)
    expected = 0.0
    for row, length in enumerate([T, 4, T]):
        logs = [log_softmax(logits[row, :length, side]) for side in (0, 1)]
        expected -= (logs[0][starts[row]] + logs[1][ends[row]]) / 2
    found = sums(model, params, batch | {"starts": starts, "ends": ends})
    assert float(found.loss) == pytest.approx(expected, rel=1e-5)
    assert float(found.weight) == 3


def test_dropout_in_every_part_in_training_alone():
    model, params, batch, _ = made("language_model", next_sentence=True)
    batch = masked_batch(batch)
    loss = jax.jit(lambda key: loss_sums(model, params, batch, 0.0, key).loss)
    plain = float(sums(model, params, batch).loss)
    assert len({plain, float(loss(jax.random.key(0))), float(loss(jax.random.key(1)))}) == 3
