"""The original Transformer: an encoder and a decoder (paper section 3)."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.functional import Mask
from transformer.modules.attention import KeysValues
from transformer.modules.block import Stack
from transformer.modules.embed import Embedding

PAD = 0


class Cache(NamedTuple):
    """What decoding remembers. Every leaf leads with the batch axis.

    Attributes:
        layers: of each decoder layer, `KeysValues` of S = capacity.
        memories: of each decoder layer, `KeysValues` of the source.
        source: the source's tokens ``[B, S]``, 0 where padded.
    """

    layers: tuple[KeysValues, ...]
    memories: tuple[KeysValues, ...]
    source: Any


class Seq2Seq(nn.Module):
    """Encoder-decoder Transformer over one shared vocabulary; id 0 is padding.

    >>> config = ModelConfig(num_layers=1, model_dim=8, ff_dim=16, num_heads=2, vocab_size=11)
    >>> model, tokens = Seq2Seq(config), jnp.ones((2, 3), int)
    >>> variables = model.init(jax.random.key(0), tokens, tokens)
    >>> model.apply(variables, tokens, tokens).shape
    (2, 3, 11)
    """

    config: ModelConfig

    def setup(self):
        if self.config.vocab_size is None:
            raise UserError("model.vocab_size = None: expected the size of the vocabulary")
        self.embedding = Embedding(self.config)
        self.encoder = Stack(self.config)
        self.decoder = Stack(self.config, cross=True)

    def __call__(self, source, inputs, *, train: bool = False):
        """Logits for each next token, teacher-forced.

        Args:
            source: int ``[B, S]``, padded with 0 at the end.
            inputs: int ``[B, T]``, the target shifted right.
            train: apply dropout; needs the "dropout" random stream.

        Returns:
            float32 ``[B, T, V]``.
        """
        return self.embedding.logits(self.hidden(source, inputs, train=train))

    def hidden(self, source, inputs, *, train: bool = False):
        """As `__call__`, but the decoder's output ``[B, T, D]`` before the logits."""
        memories = self.decoder.project_memory(self.encode(source, train=train))
        positions = jnp.arange(inputs.shape[1])[None]
        hidden, _ = self.decoder(
            self.embedding(inputs, positions, train=train),
            Mask.self_attention(inputs != PAD, positions, causal=True),
            memories=memories,
            memory_mask=Mask.cross_attention(source != PAD),
            train=train,
        )
        return hidden

    def encode(self, source, *, train: bool = False):
        """The encoder's output ``[B, S, D]``."""
        positions = jnp.arange(source.shape[1])[None]
        encoded, _ = self.encoder(
            self.embedding(source, positions, train=train),
            Mask.self_attention(source != PAD),
            train=train,
        )
        return encoded

    def start(self, source, capacity: int) -> Cache:
        """Encodes the source and makes room for `capacity` keys in each decoder layer."""
        c = self.config
        memories = self.decoder.project_memory(self.encode(source))
        room = jnp.zeros((len(source), c.kv_heads, capacity, c.head_dim), c.dtype)
        layers = tuple(KeysValues(room.swapaxes(2, 3), room) for _ in range(c.num_layers))
        return Cache(layers, memories, source)

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
        hidden, layers = self.decoder(
            self.embedding(tokens, positions),
            mask,
            memories=cache.memories,
            memory_mask=Mask.cross_attention(cache.source != PAD),
            caches=cache.layers,
            index=index,
        )
        return self.embedding.logits(hidden), cache._replace(layers=layers)
