"""Encoder-decoders: the original Transformer (paper section 3), Marian, T5."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import Mask
from transformer.models.cache import DecoderCache
from transformer.modules.attention import KeysValues
from transformer.modules.embed import Embedding
from transformer.modules.stack import Stack


class Cache(NamedTuple):
    """What decoding remembers. Every leaf leads with the batch axis.

    Attributes:
        decoder: of the target, S = capacity.
        memories: of each decoder layer, `KeysValues` of the source.
        source: the source's tokens ``[B, S]``.
    """

    decoder: DecoderCache
    memories: tuple[KeysValues, ...]
    source: Any


class Seq2Seq(nn.Module):
    """Encoder-decoder Transformer over one shared vocabulary.

    Of source and target, tokens equal to ``config.pad_id`` are not looked at.

    >>> config = ModelConfig(num_layers=1, model_dim=8, ff_dim=16, num_heads=2, vocab_size=11)
    >>> model, tokens = Seq2Seq(config), jnp.ones((2, 3), int)
    >>> variables = model.init(jax.random.key(0), tokens, tokens)
    >>> model.apply(variables, tokens, tokens).shape
    (2, 3, 11)
    """

    config: ModelConfig

    def setup(self):
        self.embedding = Embedding(self.config)
        self.encoder = Stack(self.config)
        self.decoder = Stack(self.config, cross=True, causal=True)

    def __call__(self, source, inputs, *, train: bool = False):
        """Logits for each next token, teacher-forced.

        Args:
            source: int ``[B, S]``, padded at the end.
            inputs: int ``[B, T]``, the target shifted right; its first token is no padding,
                whatever its id (T5 begins with `pad_id`).
            train: apply dropout; needs the "dropout" random stream.

        Returns:
            float32 ``[B, T, V]``.
        """
        return self.logits(self.hidden(source, inputs, train=train))

    def hidden(self, source, inputs, *, train: bool = False):
        """As `__call__`, but the vectors ``[B, T, D]`` that `logits` multiplies."""
        positions = jnp.arange(inputs.shape[1])[None]
        # Padding comes last, so the causal rule alone hides it from every token that counts.
        hidden, _ = self.decoder(
            self.embedding(inputs, positions, train=train),
            Mask.self_attention((inputs != self.config.pad_id) | (positions == 0), causal=True),
            positions=positions,
            memories=self.encode(source, train=train),
            memory_mask=self._memory_mask(source),
            train=train,
        )
        return self.embedding.scale_output(hidden)

    def logits(self, hidden):
        """Of what `hidden` returned: ``[B, T, D]`` to float32 ``[B, T, V]``."""
        return self.embedding.logits(hidden)

    def encode(self, source, *, train: bool = False):
        """The encoder's output ``[B, S, D]``."""
        positions = jnp.arange(source.shape[1])[None]
        encoded, _ = self.encoder(
            self.embedding(source, positions, train=train),
            Mask.self_attention(source != self.config.pad_id),
            positions=positions,
            train=train,
        )
        return encoded

    def start(self, source, capacity: int) -> Cache:
        """Encodes the source and makes room for `capacity` keys in each decoder layer."""
        memories = self.decoder.project_memory(self.encode(source))
        return Cache(DecoderCache.empty(self.config, len(source), capacity), memories, source)

    def decode(self, tokens, positions, cache: Cache, index, mask):
        """Some more tokens of every row, after those in the cache.

        Args:
            tokens: int ``[B, T]``: the next T tokens, or T hypotheses of one next token.
            positions: int ``[B, T]``, the position of each in its target.
            cache: from `start` or an earlier `decode`.
            index: int scalar; the tokens' keys are written at ``index ... index + T - 1``,
                which the caller keeps below the capacity.
            mask: `Mask`, or bool ``[B, 1, T, capacity]``: which keys each token may see,
                its own included.

        Returns:
            logits, float32 ``[B, T, V]``, and the new cache.
        """
        known = cache.decoder.note(positions, jnp.ones(tokens.shape, jnp.int32), index)
        hidden, layers = self.decoder(
            self.embedding(tokens, positions),
            mask,
            positions=positions,
            key_positions=known.positions,
            memories=cache.memories,
            memory_mask=self._memory_mask(cache.source),
            caches=known.layers,
            index=index,
        )
        logits = self.logits(self.embedding.scale_output(hidden))
        return logits, cache._replace(decoder=known._replace(layers=layers))

    def _memory_mask(self, source) -> Mask:
        return Mask.cross_attention(source != self.config.pad_id)
