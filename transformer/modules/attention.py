"""Multi-head attention: projections around `transformer.functional.attend`."""

from typing import Any, NamedTuple

import jax
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import attend
from transformer.modules.linear import Linear


class KeysValues(NamedTuple):
    """Projected keys ``[B, K, H, S]`` and values ``[B, K, S, H]``.

    Unlike in activations heads come first, and keys lie as columns: a cached step then
    multiplies them as they lie, where XLA on CPU would copy a whole ``[B, S, K, H]`` cache
    into this order at every step, and take three times as long for rows of keys.
    """

    key: Any
    value: Any

    def write(self, new: "KeysValues", index) -> "KeysValues":
        """`self` with `new` at positions ``index, index + 1, ...`` of axis S.

        The caller checks that they fit: the update clamps silently where they do not.
        """
        return KeysValues(
            jax.lax.dynamic_update_slice_in_dim(self.key, new.key, index, axis=3),
            jax.lax.dynamic_update_slice_in_dim(self.value, new.value, index, axis=2),
        )


class Attention(nn.Module):
    """Multi-head attention (paper section 3.2.2).

        MultiHead(Q, K, V) = Concat(head_1, ..., head_N) W_out
        head_n = Attention(Q W_query,n, K W_key,n, V W_value,n)

    The keys and values are projected by a method of their own, so that self-attention,
    cross-attention and cached decoding are the same call on different keys.
    """

    config: ModelConfig

    def setup(self):
        c = self.config
        self.query = Linear(c.num_heads * c.head_dim, c.attention_bias)
        self.key = Linear(c.kv_heads * c.head_dim, c.attention_bias)
        self.value = Linear(c.kv_heads * c.head_dim, c.attention_bias)
        self.out = Linear(c.model_dim, c.attention_bias)

    def keys_values(self, x) -> KeysValues:
        """Projects ``[B, S, D]`` to keys and values."""
        shape = (*x.shape[:2], self.config.kv_heads, self.config.head_dim)
        key, value = self.key(x).reshape(shape), self.value(x).reshape(shape)
        return KeysValues(key.transpose(0, 2, 3, 1), value.swapaxes(1, 2))

    def __call__(self, x, keys_values: KeysValues, mask, *, train: bool = False):
        """``[B, T, D]`` attends to `keys_values` under `mask` (as in `attend`).

        Where the "intermediates" collection is mutable the weights ``[B, N, T, S]`` are
        sown there as ``attention_weights``.
        """
        c = self.config
        query = self.query(x).reshape(*x.shape[:2], c.num_heads, c.head_dim)
        rate = c.attention_dropout if train else 0.0
        keep_weights = self.is_mutable_collection("intermediates")
        output = attend(
            query,
            keys_values.key.transpose(0, 3, 1, 2),
            keys_values.value.swapaxes(1, 2),
            mask=mask,
            dropout_rate=rate,
            dropout_key=self.make_rng("dropout") if rate else None,
            implementation=c.attention,
            return_weights=keep_weights,
        )
        if keep_weights:
            output, weights = output
            self.sow("intermediates", "attention_weights", weights)
        return self.out(output.reshape(*x.shape[:2], -1))
