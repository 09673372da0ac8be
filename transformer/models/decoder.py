"""Decoder-only language models: GPT-1, GPT-2, GPT-3 and rotary ones such as Llama."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import Mask
from transformer.models.cache import DecoderCache
from transformer.modules.embed import Embedding
from transformer.modules.stack import Stack


class Decoder(nn.Module):
    """Each token attends to itself and to those before it in its segment.

    >>> config = ModelConfig(
    ...     "decoder", num_layers=1, model_dim=8, ff_dim=16, num_heads=2, vocab_size=11
    ... )
    >>> model, tokens = Decoder(config), jnp.ones((2, 3), int)
    >>> variables = model.init(jax.random.key(0), tokens)
    >>> model.apply(variables, tokens).shape
    (2, 3, 11)
    """

    config: ModelConfig

    def setup(self):
        self.embedding = Embedding(self.config)
        self.decoder = Stack(self.config, causal=True)

    def __call__(self, inputs, segments=None, positions=None, *, train: bool = False):
        """Logits for each next token.

        Args:
            inputs: int ``[B, T]``.
            segments: int ``[B, T]``, the document each token belongs to; 0: padding;
                None: all one document.
            positions: int ``[B or 1, T]``, of each in its document, one apart from each token
                to the next; None: 0, 1, 2, ...
            train: apply dropout; needs the "dropout" random stream.

        Returns:
            float32 ``[B, T, V]``.
        """
        return self.logits(self.hidden(inputs, segments, positions, train=train))

    def hidden(self, inputs, segments=None, positions=None, *, train: bool = False):
        """As `__call__`, but the vectors ``[B, T, D]`` that `logits` multiplies."""
        if positions is None:
            positions = jnp.arange(inputs.shape[1])[None]
        hidden, _ = self.decoder(
            self.embedding(inputs, positions, train=train),
            Mask.self_attention(segments, positions, causal=True),
            positions=positions,
            train=train,
        )
        return self.embedding.scale_output(hidden)

    def logits(self, hidden):
        """Of what `hidden` or `decode` returned: ``[B, T, D]`` to float32 ``[B, T, V]``."""
        return self.embedding.logits(hidden)

    def decode(self, tokens, positions, cache: DecoderCache, index, segments=None, mask=None):
        """Some more tokens of every row, after those in the cache.

        Args:
            tokens: int ``[B, T]``.
            positions: int ``[B or 1, T]``, of each in its document.
            cache: from `DecoderCache.empty` or an earlier `decode`.
            index: int scalar; the tokens' keys are written at ``index ... index + T - 1``,
                which the caller keeps below the capacity.
            segments: int ``[B, T]``; 0: padding, which no token ever sees; None: all 1.
            mask: bool ``[B, 1, T, S]``: which keys each token may see, its own included;
                None: those of its segment at no later position.

        Returns:
            ``[B, T, D]``, which `logits` turns into logits, and the new cache.
        """
        if segments is None:
            segments = jnp.ones(tokens.shape, jnp.int32)
        cache = cache.note(positions, segments, index)
        rule: Any = mask
        if mask is None:
            rule = Mask(positions, cache.positions, segments, cache.segments, causal=True)
        hidden, layers = self.decoder(
            self.embedding(tokens, positions),
            rule,
            positions=positions,
            key_positions=cache.positions,
            caches=cache.layers,
            index=index,
        )
        return self.embedding.scale_output(hidden), cache._replace(layers=layers)
