"""One layer of a Transformer (`transformer.modules.stack` has many)."""

from typing import Any

import jax
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import dropout, gelu, gelu_tanh, relative_buckets
from transformer.functional.partition import constrain
from transformer.modules.attention import Attention, KeysValues
from transformer.modules.initializers import kernel_init
from transformer.modules.linear import Linear, Norm
from transformer.modules.parameters import parameter

ACTIVATIONS = {
    "relu": jax.nn.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": jax.nn.silu,
    "geglu": gelu_tanh,
    "swiglu": jax.nn.silu,
}

_BUCKETS, _MAX_DISTANCE = 32, 128
"""Of relative positions, in every published T5."""


class FeedForward(nn.Module):
    """``FFN(x) = f(x W_up + b) W_down + b`` (paper, equation 2: f = max(0, .)).

    Gated (Shazeer 2020): ``(f(x W_gate + b) * (x W_up + b)) W_down + b``.
    """

    config: ModelConfig

    def setup(self):
        c = self.config
        wide, narrow = ("embed", "mlp"), ("mlp", "embed")
        self.up = Linear(c.ff_dim, wide, c.ff_bias, kernel_init(c, "up"))
        if c.activation in ("geglu", "swiglu"):
            self.gate = Linear(c.ff_dim, wide, c.ff_bias, kernel_init(c, "up"))
        self.down = Linear(c.model_dim, narrow, c.ff_bias, kernel_init(c, "down"))

    def __call__(self, x, *, dropout_key: Any = None):
        activation = ACTIVATIONS[self.config.activation]
        if self.config.activation in ("geglu", "swiglu"):
            hidden = activation(self.gate(x)) * self.up(x)
        else:
            hidden = activation(self.up(x))
        hidden = constrain(hidden, "batch", "length", "mlp")
        return self.down(dropout(hidden, self.config.ff_dropout, dropout_key))


class RelativeBias(nn.Module):
    """T5's bias on the logits, by head and bucket of distance, shared by a stack's layers."""

    config: ModelConfig
    causal: bool

    @nn.compact
    def __call__(self, positions, key_positions):
        """Query and key positions ``[b, T]`` and ``[b, S]`` to ``[b, N, T, S]``."""
        c = self.config
        init = nn.initializers.normal(c.model_dim**-0.5)
        table = parameter(self, "embedding", init, (_BUCKETS, c.num_heads), (None, "heads"))
        buckets = relative_buckets(
            positions,
            key_positions,
            bidirectional=not self.causal,
            buckets=_BUCKETS,
            max_distance=_MAX_DISTANCE,
        )
        return table[buckets].transpose(0, 3, 1, 2)


class Block(nn.Module):
    """Self-attention, cross-attention if `cross`, and feed-forward, each in a residual.

    Post-norm, as published (paper section 5.4):  ``norm(x + dropout(sublayer(x)))``.
    Pre-norm (Xiong et al. 2020):                 ``x + dropout(sublayer(norm(x)))``.
    """

    config: ModelConfig
    cross: bool = False

    def setup(self):
        c = self.config
        self.self_attention = Attention(c)
        self.self_attention_norm = Norm(c)
        if self.cross:
            self.cross_attention = Attention(c)
            self.cross_attention_norm = Norm(c)
        self.feed_forward = FeedForward(c)
        self.feed_forward_norm = Norm(c)

    def __call__(
        self,
        x,
        mask,
        *,
        positions: Any = None,
        bias: Any = None,
        memory: Any = None,
        memory_mask: Any = None,
        cache: KeysValues | None = None,
        index: Any = None,
        dropout_key: Any = None,
    ):
        """Transforms ``x`` ``[B, T, D]``.

        Args:
            x: the residual stream.
            mask: of self-attention.
            positions: int ``[B or 1, T]``; needed where they are rotary.
            bias: on the logits of self-attention, ``[B or 1, N, T, S]``.
            memory: the encoded source ``[B, S, D]``, or its keys and values from
                `project_memory`.
            memory_mask: of cross-attention.
            cache: earlier keys and values, S = capacity; those of ``x`` are
                written at ``index`` and attention reads them all.
            index: where in the cache, an int scalar.
            dropout_key: random key; None: no dropout.

        Returns:
            ``[B, T, D]``, and the cache as written (None without one).
        """
        rotary_positions = positions if self.config.positions == "rotary" else None
        keys = iter(jax.random.split(dropout_key, 6) if dropout_key is not None else [None] * 6)

        def self_attend(h, key):
            nonlocal cache
            keys_values = self.self_attention.keys_values(h, rotary_positions)
            if cache is not None:
                keys_values = cache = cache.write(keys_values, index)
            return self.self_attention(
                h, keys_values, mask, positions=rotary_positions, bias=bias, dropout_key=key
            )

        def cross_attend(h, key):
            known = memory if isinstance(memory, KeysValues) else self.project_memory(memory)
            return self.cross_attention(h, known, memory_mask, dropout_key=key)

        def feed_forward(h, key):
            return self.feed_forward(h, dropout_key=key)

        x = self._residual(x, self.self_attention_norm, self_attend, keys)
        if self.cross:
            x = self._residual(x, self.cross_attention_norm, cross_attend, keys)
        return self._residual(x, self.feed_forward_norm, feed_forward, keys), cache

    def project_memory(self, encoded) -> KeysValues:
        """Keys and values of cross-attention, from the encoded source ``[B, S, D]``."""
        return self.cross_attention.keys_values(encoded)

    def _residual(self, x, norm, sublayer, keys):
        post = self.config.norm_placement == "post"
        added = sublayer(x if post else norm(x), next(keys))
        x = x + dropout(added, self.config.dropout, next(keys))
        return constrain(norm(x) if post else x, "batch", "length", "activation")
