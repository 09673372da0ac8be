"""Which source symbols the decoder attends to, and pictures of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.tokenizer import BOS, EOS, Tokenizer
from transformer.models.seq2seq import Seq2Seq


def cross_attention(
    model: Seq2Seq, params: Any, source: list[int], inputs: list[int]
) -> np.ndarray:
    """The weights of cross-attention for one pair, teacher-forced.

    Args:
        model: the network.
        params: its parameters.
        source: S ids, the end included.
        inputs: T ids, the target shifted right.

    Returns:
        float32 ``[L, N, T, S]``; each row over S sums to 1.
    """
    _, sown = model.apply(
        {"params": params},
        jnp.asarray([source], jnp.int32),
        jnp.asarray([inputs], jnp.int32),
        mutable=["intermediates"],
    )
    layers = [
        sown["intermediates"]["decoder"][f"layer_{i}"]["cross_attention"]["attention_weights"][0]
        for i in range(model.config.num_layers)
    ]
    return np.stack([jax.device_get(weights)[0] for weights in layers])


def label_pair(tokenizer: Tokenizer, source: str, target: str) -> dict[str, list]:
    """Ids and labels of a pair for `cross_attention`.

    Row t of the map is where the model looks while it predicts symbol t of the target.

    Returns:
        ``source`` and ``inputs`` (ids), ``columns`` and ``rows`` (what they stand for).
    """
    source_ids = [*tokenizer.encode_source(source), EOS]
    target_ids = tokenizer.encode_target(target)
    return {
        "source": source_ids,
        "inputs": [BOS, *target_ids],
        "columns": tokenizer.pieces(source_ids),
        "rows": tokenizer.pieces([*target_ids, EOS]),
    }
