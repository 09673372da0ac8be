"""Pure functions on arrays: the mathematics of the Transformer, with no state and no flax.

One legend of axis letters holds everywhere, in docstrings, annotations and einsums:

    B batch             N heads               D model (residual stream)
    T query length      K key/value heads     F feed-forward
    S key length        G = N / K             V vocabulary
    L layers            H head dimension      M = B * T tokens

Activations are ``[B, T, D]``, heads ``[B, T, N, H]``. "The paper" is Vaswani et
al. 2017, "Attention Is All You Need".
"""

from transformer.functional.attention import attend
from transformer.functional.layers import (
    dropout,
    gelu,
    gelu_tanh,
    layer_norm,
    linear,
    rms_norm,
    vocabulary_logits,
)
from transformer.functional.losses import cross_entropy, linear_cross_entropy
from transformer.functional.masks import Mask
from transformer.functional.positions import relative_buckets, rotary, sinusoids
from transformer.functional.schedules import noam

__all__ = [
    "Mask",
    "attend",
    "cross_entropy",
    "dropout",
    "gelu",
    "gelu_tanh",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "noam",
    "relative_buckets",
    "rms_norm",
    "rotary",
    "sinusoids",
    "vocabulary_logits",
]
