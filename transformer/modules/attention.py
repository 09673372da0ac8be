"""Multi-head attention: projections around `transformer.functional.attend`."""

from typing import Any, NamedTuple

import jax
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import attend, rotary
from transformer.functional.partition import constrain
from transformer.modules.initializers import Role, kernel_init
from transformer.modules.linear import Linear


class KeysValues(NamedTuple):
    """Projected keys ``[B, K, H, S]`` and values ``[B, K, S, H]``.

    Unlike in activations heads come first, and keys lie as columns: a cached step then
    multiplies them as they lie, where XLA on CPU would copy a whole ``[B, S, K, H]`` cache
    into this order at every step, and take three times as long for rows of keys.
    """

    key: Any
    value: Any

    def constrained(self) -> "KeysValues":
        """`self`, laid out over the mesh: rows and heads in parts."""
        axes = "batch", "kv_heads", None, None
        return KeysValues(constrain(self.key, *axes), constrain(self.value, *axes))

    def write(self, new: "KeysValues", index) -> "KeysValues":
        """`self` with `new` at positions ``index, index + 1, ...`` of axis S.

        The caller checks that they fit: the update clamps silently where they do not.
        """

        def put(at, old: "KeysValues") -> "KeysValues":
            return KeysValues(
                jax.lax.dynamic_update_slice_in_dim(old.key, new.key, at, axis=3),
                jax.lax.dynamic_update_slice_in_dim(old.value, new.value, at, axis=2),
            ).constrained()

        if len(self.key) > 1 or jax.default_backend() != "cpu":
            return put(index, self)
        # Attention drops the axis of a single row, XLA on CPU makes that a second update of its
        # own, and copies the whole cache three times in each turn of a decoding loop. A loop of
        # one turn keeps the update apart, and in place.
        return jax.lax.fori_loop(index, index + 1, put, self)


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

        def linear(features: int, role: Role, reads: str, writes: str) -> Linear:
            return Linear(features, (reads, writes), c.attention_bias, kernel_init(c, role))

        self.query = linear(c.num_heads * c.head_dim, "query", "embed", "heads")
        self.key = linear(c.kv_heads * c.head_dim, "key", "embed", "kv_heads")
        self.value = linear(c.kv_heads * c.head_dim, "value", "embed", "kv_heads")
        self.out = linear(c.model_dim, "out", "heads", "embed")

    def keys_values(self, x, positions: Any = None) -> KeysValues:
        """Projects ``[B, S, D]`` to keys and values; rotary where `positions` are given."""
        c = self.config
        shape = (*x.shape[:2], c.kv_heads, c.head_dim)
        key, value = self.key(x).reshape(shape), self.value(x).reshape(shape)
        if positions is not None:
            key = rotary(key, positions, c.rotary_theta)
        return KeysValues(key.transpose(0, 2, 3, 1), value.swapaxes(1, 2)).constrained()

    def __call__(
        self,
        x,
        keys_values: KeysValues,
        mask,
        *,
        positions: Any = None,
        bias: Any = None,
        dropout_key: Any = None,
    ):
        """``[B, T, D]`` attends to `keys_values` under `mask` and `bias` (as in `attend`).

        Where the "intermediates" collection is mutable the weights ``[B, N, T, S]`` are
        sown there as ``attention_weights``.

        Args:
            x: the residual stream.
            keys_values: from `keys_values`.
            mask: what each query may see.
            positions: int ``[B or 1, T]``, of rotary queries.
            bias: float ``[B or 1, N, T, S]``, added to the logits.
            dropout_key: random key; None: no dropout.
        """
        c = self.config
        query = self.query(x).reshape(*x.shape[:2], c.num_heads, c.head_dim)
        query = constrain(query, "batch", "length", "heads", None)
        if positions is not None:
            query = rotary(query, positions, c.rotary_theta)
        keep_weights = self.is_mutable_collection("intermediates")
        output = attend(
            query,
            keys_values.key.transpose(0, 3, 1, 2),
            keys_values.value.swapaxes(1, 2),
            mask=mask,
            bias=bias,
            scale=None if c.scale_attention else 1.0,
            dropout_rate=0.0 if dropout_key is None else c.attention_dropout,
            dropout_key=dropout_key,
            implementation=c.attention,
            return_weights=keep_weights,
        )
        if keep_weights:
            output, weights = output
            self.sow("intermediates", "attention_weights", weights)
        output = constrain(output, "batch", "length", "heads", None)
        return self.out(output.reshape(*x.shape[:2], -1))
