"""What each head learns from: the losses of a batch, as sums."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from transformer.functional.losses import LossSums, cross_entropy, linear_cross_entropy
from transformer.models.build import Model
from transformer.models.encoder import Encoder
from transformer.training.heads import Batch, head_outputs, read_hidden


def loss_sums(
    model: Model,
    params: Any,
    batch: Batch,
    label_smoothing: float,
    dropout_key: Array | None = None,
    lm_weight: float = 0.0,
) -> LossSums:
    """The loss that ``model.config.head`` is trained with, summed over a batch.

    The mean over a batch of any size is ``loss / weight``, also where the batch is taken in parts.

    * language_model: the label-smoothed cross-entropy (paper section 5.4) of the weighted
      targets; of an encoder those are the masked tokens, and ``loss / weight`` is their mean
      plus the mean of the next-sentence losses (Devlin et al. 2019, appendix A.2).
    * classification, multiple_choice: the cross-entropy of the classes, or choices; of a decoder
      plus ``lm_weight`` times the loss of its tokens (Radford et al. 2018, equation 5).
    * token_labels: the same of each labelled token.
    * regression: the squared error (``nll`` as well).
    * span: the mean of the cross-entropies of the beginning and of the end (Devlin et al. 2019,
      section 4.2, and the published program).

    With a ``dropout_key`` the model is in training mode.
    """
    mode: Any = {
        "train": dropout_key is not None,
        "rngs": None if dropout_key is None else {"dropout": dropout_key},
    }

    def call(method: str, *arguments: Any) -> Any:
        return model.apply({"params": params}, *arguments, method=method)

    arrays = {name: jnp.asarray(array) for name, array in batch.items()}
    hidden = read_hidden(model, params, arrays, mode)
    head, encoder = model.config.head, isinstance(model, Encoder)
    if head == "language_model":
        if not encoder:
            return _token_sums(model, params, hidden, arrays, label_smoothing)
        vectors = call("masked", hidden, arrays["places"])
        sums = _token_sums(model, params, vectors, arrays, label_smoothing)
        if not model.config.next_sentence:
            return sums
        # The weights of all pairs have the sum of those of all masked tokens, so that one
        # division makes both means; the host, which knows the whole batch, sees to it.
        follows, weights = arrays["follows"], arrays["follow_weights"]
        pairs = cross_entropy(call("follows", hidden), jnp.maximum(follows, 0), weights)
        return sums._replace(loss=sums.loss + pairs.loss)
    outputs = head_outputs(model, params, arrays, hidden, mode)
    if head == "regression":
        errors = outputs[:, 0] - arrays["values"]
        squares = jnp.sum(arrays["weights"] * errors**2)
        return LossSums(squares, squares, arrays["weights"].sum())
    if head == "span":
        first = _class_sums(outputs[..., 0], arrays["starts"])
        last = _class_sums(outputs[..., 1], arrays["ends"])
        return LossSums((first.loss + last.loss) / 2, (first.nll + last.nll) / 2, first.weight)
    sums = _class_sums(outputs, arrays["labels"])
    if encoder or not lm_weight:
        return sums
    tokens = _token_sums(model, params, hidden, arrays, label_smoothing)
    return sums._replace(loss=sums.loss + lm_weight * tokens.loss)


def _class_sums(logits: Any, labels: Any) -> LossSums:
    """Cross-entropy of classes ``[..., C]``; a label of -1 does not count."""
    return cross_entropy(logits, jnp.maximum(labels, 0), (labels >= 0).astype(jnp.float32))


def _token_sums(
    model: Model, params: Any, hidden: Any, arrays: Mapping[str, Any], label_smoothing: float
) -> LossSums:
    hidden = hidden.reshape(-1, hidden.shape[-1])
    embedding = params["embedding"]
    table = embedding["embedding" if model.config.tie_embeddings else "output"]
    if model.config.output_bias:
        # The bias of a logit is the weight of one more hidden dimension, which is always 1.
        hidden = jnp.concatenate([hidden, jnp.ones_like(hidden[:, :1])], axis=1)
        table = jnp.concatenate([table, embedding["output_bias"][:, None]], axis=1)
    targets, weights = (arrays[name].reshape(-1) for name in ("targets", "weights"))
    return linear_cross_entropy(hidden, table, targets, weights, label_smoothing)
