"""One layer of a Transformer, and a stack of them."""

import dataclasses
from typing import Any

import jax
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import Mask, gelu, gelu_tanh, relative_buckets
from transformer.functional.partition import constrain
from transformer.modules.attention import Attention, KeysValues
from transformer.modules.initializers import kernel_init
from transformer.modules.linear import Dropout, Linear, Norm
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
        self.dropout = Dropout(c.ff_dropout)

    def __call__(self, x, *, train: bool = False):
        activation = ACTIVATIONS[self.config.activation]
        if self.config.activation in ("geglu", "swiglu"):
            hidden = activation(self.gate(x)) * self.up(x)
        else:
            hidden = activation(self.up(x))
        hidden = constrain(hidden, "batch", "length", "mlp")
        return self.down(self.dropout(hidden, train=train))


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
        self.dropout = Dropout(c.dropout)

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
        train: bool = False,
    ):
        """Transforms ``x`` ``[B, T, D]``.

        Args:
            x: the residual stream.
            mask: of self-attention.
            positions: int ``[B or 1, T]``; needed where they are rotary.
            bias: on the logits of self-attention, ``[B or 1, N, T, S]``.
            memory: keys and values of the encoded source, see `project_memory`.
            memory_mask: of cross-attention.
            cache: earlier keys and values, S = capacity; those of ``x`` are
                written at ``index`` and attention reads them all.
            index: where in the cache, an int scalar.
            train: apply dropout.

        Returns:
            ``[B, T, D]``, and the cache as written (None without one).
        """
        rotary_positions = positions if self.config.positions == "rotary" else None

        def self_attend(h):
            nonlocal cache
            keys_values = self.self_attention.keys_values(h, rotary_positions)
            if cache is not None:
                keys_values = cache = cache.write(keys_values, index)
            return self.self_attention(
                h, keys_values, mask, positions=rotary_positions, bias=bias, train=train
            )

        x = self._residual(x, self.self_attention_norm, self_attend, train)
        if self.cross:
            x = self._residual(
                x,
                self.cross_attention_norm,
                lambda h: self.cross_attention(h, memory, memory_mask, train=train),
                train,
            )
        x = self._residual(
            x, self.feed_forward_norm, lambda h: self.feed_forward(h, train=train), train
        )
        return x, cache

    def project_memory(self, encoded) -> KeysValues:
        """Keys and values of cross-attention, from the encoded source ``[B, S, D]``."""
        return self.cross_attention.keys_values(encoded)

    def _residual(self, x, norm, sublayer, train):
        post = self.config.norm_placement == "post"
        x = x + self.dropout(sublayer(x if post else norm(x)), train=train)
        return constrain(norm(x) if post else x, "batch", "length", "activation")


class Stack(nn.Module):
    """The layers of an encoder or a decoder; pre-norm ends in a norm of its own.

    Attributes:
        config: the settings.
        cross: layers attend to a memory too.
        causal: relative positions look back only.
    """

    config: ModelConfig
    cross: bool = False
    causal: bool = False

    def setup(self):
        c = self.config
        self.layers = [Block(c, self.cross, name=f"layer_{i}") for i in range(c.num_layers)]
        if c.positions == "relative":
            self.relative_bias = RelativeBias(c, self.causal)
        if c.norm_placement == "pre":
            self.final_norm = Norm(c)

    def __call__(
        self,
        x,
        mask,
        *,
        positions: Any = None,
        key_positions: Any = None,
        memories: tuple[KeysValues, ...] | None = None,
        memory_mask: Any = None,
        caches: tuple[KeysValues, ...] | None = None,
        index: Any = None,
        train: bool = False,
    ):
        """As `Block`, with a memory and a cache for each layer.

        Where the "hidden" collection is mutable, ``x`` and the output of each layer are sown
        there as ``layers``.

        Args:
            x: the residual stream ``[B, T, D]``.
            mask: of self-attention.
            positions: int ``[B or 1, T]``, of the tokens of ``x``; needed where they are rotary
                or relative, and by a local window.
            key_positions: int ``[B or 1, S]``, of the keys in the caches; None: `positions`.
            memories: of each layer.
            memory_mask: of cross-attention.
            caches: of each layer.
            index: where in the caches.
            train: apply dropout.
        """
        c = self.config
        if key_positions is None:
            key_positions = positions
        bias = None
        if c.positions == "relative":
            bias = self.relative_bias(positions, key_positions)
        local = mask
        if c.local_window is not None:
            local = _within(mask, positions, key_positions, c.local_window)
        written = []
        self._keep(x)
        for i, layer in enumerate(self.layers):
            x, cache = layer(
                x,
                local if i % 2 else mask,
                positions=positions,
                bias=bias,
                memory=memories[i] if memories else None,
                memory_mask=memory_mask,
                cache=caches[i] if caches else None,
                index=index,
                train=train,
            )
            self._keep(x)
            written.append(cache)
        if c.norm_placement == "pre":
            x = self.final_norm(x)
        return x, tuple(written)

    def _keep(self, x) -> None:
        if not self.is_initializing():  # or the parameters would come with a sample
            self.sow("hidden", "layers", x)

    def project_memory(self, encoded) -> tuple[KeysValues, ...]:
        """Each layer's keys and values of the encoded source."""
        return tuple(layer.project_memory(encoded) for layer in self.layers)


def _within(mask, positions, key_positions, window: int):
    """`mask`, a rule or an array, with keys `window` or more positions away hidden."""
    if isinstance(mask, Mask):
        return dataclasses.replace(mask, window=window)
    return mask & Mask(positions, key_positions, window=window).dense()
