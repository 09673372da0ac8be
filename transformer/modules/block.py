"""One layer of a Transformer, and a stack of them."""

from typing import Any

from flax import linen as nn

from transformer.config import ModelConfig
from transformer.modules.attention import Attention, KeysValues
from transformer.modules.linear import Dropout, LayerNorm, Linear


class FeedForward(nn.Module):
    """``FFN(x) = max(0, x W1 + b1) W2 + b2`` (paper, equation 2)."""

    config: ModelConfig

    def setup(self):
        self.up = Linear(self.config.ff_dim)
        self.down = Linear(self.config.model_dim)
        self.dropout = Dropout(self.config.ff_dropout)

    def __call__(self, x, *, train: bool = False):
        return self.down(self.dropout(nn.relu(self.up(x)), train=train))


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
        self.self_attention_norm = LayerNorm(c.norm_epsilon)
        if self.cross:
            self.cross_attention = Attention(c)
            self.cross_attention_norm = LayerNorm(c.norm_epsilon)
        self.feed_forward = FeedForward(c)
        self.feed_forward_norm = LayerNorm(c.norm_epsilon)
        self.dropout = Dropout(c.dropout)

    def __call__(
        self,
        x,
        mask,
        *,
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
            memory: keys and values of the encoded source, see `project_memory`.
            memory_mask: of cross-attention.
            cache: earlier keys and values, S = capacity; those of ``x`` are
                written at ``index`` and attention reads them all.
            index: where in the cache, an int scalar.
            train: apply dropout.

        Returns:
            ``[B, T, D]``, and the cache as written (None without one).
        """

        def self_attend(h):
            nonlocal cache
            keys_values = self.self_attention.keys_values(h)
            if cache is not None:
                keys_values = cache = cache.write(keys_values, index)
            return self.self_attention(h, keys_values, mask, train=train)

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
        if self.config.norm_placement == "post":
            return norm(x + self.dropout(sublayer(x), train=train))
        return x + self.dropout(sublayer(norm(x)), train=train)


class Stack(nn.Module):
    """The layers of an encoder or a decoder; pre-norm ends in a norm of its own."""

    config: ModelConfig
    cross: bool = False

    def setup(self):
        self.layers = [
            Block(self.config, self.cross, name=f"layer_{i}") for i in range(self.config.num_layers)
        ]
        if self.config.norm_placement == "pre":
            self.final_norm = LayerNorm(self.config.norm_epsilon)

    def __call__(
        self,
        x,
        mask,
        *,
        memories: tuple[KeysValues, ...] | None = None,
        memory_mask: Any = None,
        caches: tuple[KeysValues, ...] | None = None,
        index: Any = None,
        train: bool = False,
    ):
        """As `Block`, with a memory and a cache for each layer."""
        written = []
        for i, layer in enumerate(self.layers):
            x, cache = layer(
                x,
                mask,
                memory=memories[i] if memories else None,
                memory_mask=memory_mask,
                cache=caches[i] if caches else None,
                index=index,
                train=train,
            )
            written.append(cache)
        if self.config.norm_placement == "pre":
            x = self.final_norm(x)
        return x, tuple(written)

    def project_memory(self, encoded) -> tuple[KeysValues, ...]:
        """Each layer's keys and values of the encoded source."""
        return tuple(layer.project_memory(encoded) for layer in self.layers)
