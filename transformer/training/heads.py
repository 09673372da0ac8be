"""What a network's head tells of a batch: for the loss in training, and for evaluation."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from transformer.data.batches import Batches, prefetch
from transformer.functional.partition import batch_shards
from transformer.models.build import Model
from transformer.models.encoder import Encoder
from transformer.parallel.sharding import copied, with_empty_rows

Batch = Mapping[str, Array | np.ndarray]
"""See `transformer.data.batches.Batch`."""

Predict = Callable[[Any, Batch], np.ndarray]
"""See `make_predict`."""

# What the networks read of a batch, by the names of their arguments.
_INPUTS = ("source", "inputs", "segments", "positions", "token_types")
_CLASSES = ("classification", "token_labels", "multiple_choice")
_EVALUATION: Mapping[str, Any] = {"train": False}


def read_hidden(model: Model, params: Any, arrays: Mapping[str, Any], mode: Any) -> Any:
    """The hidden vectors of a batch, ``[R, T, D]``; of multiple choice each choice is a row.

    Args:
        model: the network.
        params: its parameters.
        arrays: of the batch.
        mode: named arguments, `train` and `rngs`.
    """
    inputs = {name: arrays[name] for name in _INPUTS if name in arrays}
    if model.config.head == "multiple_choice":
        inputs = {name: array.reshape(-1, array.shape[-1]) for name, array in inputs.items()}
    return model.apply({"params": params}, **inputs, **mode, method="hidden")


def head_outputs(
    model: Model, params: Any, arrays: Mapping[str, Any], hidden: Any, mode: Any
) -> Any:
    """What a head other than language_model makes of the hidden vectors, float32.

    Logits of the classes ``[R, C]``, of the choices ``[R, C]``, of each token's labels
    ``[R, T, C]``; numbers ``[R, 1]``; of span the logits of beginning and ending at each token
    ``[R, T, 2]``, in which padding has no part.

    Args:
        model: the network.
        params: its parameters.
        arrays: of the batch.
        hidden: from `read_hidden`.
        mode: as there.
    """

    def call(method: str, *places: Any) -> Any:
        return model.apply({"params": params}, hidden, *places, **mode, method=method)

    match model.config.head:
        case "token_labels":
            return call("label_tokens")
        case "span":
            padding = arrays["inputs"][..., None] == model.config.pad_id
            return jnp.where(padding, -1e9, call("label_tokens"))
        case "multiple_choice":
            return call("classify").reshape(arrays["inputs"].shape[:2])
        case _:
            return call("classify", *(() if isinstance(model, Encoder) else (arrays["ends"],)))


def make_predict(model: Model) -> Predict:
    """Builds ``predict(params, batch)``: `head_outputs` without dropout, of classes, choices and
    labels of tokens as probabilities; on a mesh each device takes its share of the rows."""

    @jax.jit
    def predict(params: Any, arrays: dict[str, Any]) -> jax.Array:
        hidden = read_hidden(model, params, arrays, _EVALUATION)
        outputs = head_outputs(model, params, arrays, hidden, _EVALUATION)
        return jax.nn.softmax(outputs) if model.config.head in _CLASSES else outputs

    def call(params: Any, batch: Batch) -> np.ndarray:
        read = {name: batch[name] for name in (*_INPUTS, "ends") if name in batch}
        outputs = predict(params, with_empty_rows(read, batch_shards()))
        return np.asarray(copied(outputs))[: len(batch["inputs"])]

    return call


def predict_all(
    predict: Predict, params: Any, batches: Batches, examples: int, outputs: int
) -> np.ndarray:
    """The outputs for each example of a split, float32 ``[examples, outputs]``, in its order.

    Args:
        predict: from `make_predict`.
        params: of the network.
        batches: with every example in the first epoch.
        examples: how many there are.
        outputs: how many each has.
    """
    found = np.zeros((examples, outputs), np.float32)
    for _, batch in prefetch(batches, 0, batches.steps_per_epoch):
        rows = batch["ids"] >= 0
        found[batch["ids"][rows]] = predict(params, batch)[rows]
    return found
