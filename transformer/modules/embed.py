"""Tokens to vectors, and vectors to logits."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import sinusoids
from transformer.modules.linear import Dropout


class Embedding(nn.Module):
    """One matrix for source, target and output (paper section 3.4)."""

    config: ModelConfig

    def setup(self):
        c = self.config
        self.embedding = self.param(
            "embedding", nn.initializers.normal(c.model_dim**-0.5), (c.vocab_size, c.model_dim)
        )
        self.dropout = Dropout(c.dropout)

    def __call__(self, tokens, positions, *, train: bool = False):
        """``dropout(sqrt(D) E[token] + PE[position])`` (sections 3.4, 3.5 and 5.4).

        Args:
            tokens: int ``[B, T]``, ids below the vocabulary's size (the host checks).
            positions: int ``[B or 1, T]``.
            train: apply dropout.
        """
        c = self.config
        x = self.embedding[tokens] * c.model_dim**0.5 + sinusoids(positions, c.model_dim)
        return self.dropout(x.astype(c.dtype), train=train)

    def logits(self, hidden):
        """``hidden E^T`` in float32: ``[B, T, D]`` to ``[B, T, V]``."""
        flat = hidden.reshape(-1, hidden.shape[-1])
        logits = jax.lax.dot_general(
            flat,
            self.embedding.astype(hidden.dtype),
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        return logits.reshape(*hidden.shape[:-1], -1)
