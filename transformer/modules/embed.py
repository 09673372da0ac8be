"""Tokens to vectors, and vectors to logits."""

import jax.numpy as jnp
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.functional import sinusoids, vocabulary_logits
from transformer.functional.partition import constrain
from transformer.modules.initializers import embedding_init
from transformer.modules.linear import Dropout, Norm
from transformer.modules.parameters import parameter


class Embedding(nn.Module):
    """One matrix for source, target and, unless untied, output (paper section 3.4)."""

    config: ModelConfig

    def setup(self):
        c = self.config
        if c.vocab_size is None:
            raise UserError("model.vocab_size = None: expected the size of the vocabulary")
        table, init = (c.vocab_size, c.model_dim), embedding_init(c)
        self.embedding = parameter(self, "embedding", init, table, ("vocab", "embed"))
        if c.positions == "learned":
            shape = (c.max_positions or 0, c.model_dim)
            self.positions = parameter(self, "positions", init, shape, (None, "embed"))
        if c.segment_types:
            shape = (c.segment_types, c.model_dim)
            self.segments = parameter(self, "segments", init, shape, (None, "embed"))
        if c.embedding_norm:
            self.norm = Norm(c)
        if not c.tie_embeddings:
            self.output = parameter(self, "output", init, table, ("vocab", "embed"))
        if c.output_bias:
            zeros = nn.initializers.zeros
            self.output_bias = parameter(self, "output_bias", zeros, table[:1], ("vocab",))
        self.dropout = Dropout(c.dropout)

    def __call__(self, tokens, positions, token_types=None, *, train: bool = False):
        """The residual stream's beginning: ``dropout(sqrt(D) E[token] + PE[position])``.

        Paper, sections 3.4, 3.5 and 5.4; the factor and the positions by setting. So are BERT's
        segments and norm: ``dropout(norm(E[token] + P[position] + S[type]))`` (Devlin et al.
        2019, figure 2).

        Args:
            tokens: int ``[B, T]``, ids below the vocabulary's size (the host checks).
            positions: int ``[B or 1, T]``, below ``max_positions`` (the host checks).
            token_types: int ``[B, T]``, below ``segment_types``; None: all 0.
            train: apply dropout.
        """
        c = self.config
        # Of vectors that lie in parts XLA would gather parts, and not know how to go on.
        x = constrain(self.embedding, "vocab", None)[tokens]
        if c.embedding_scaling == "input":
            x *= c.model_dim**0.5
        if c.positions == "sinusoidal":
            x += sinusoids(positions, c.model_dim)
        elif c.positions == "learned":
            x += constrain(self.positions, None, None)[positions]
        if c.segment_types:
            x += constrain(self.segments, None, None)[0 if token_types is None else token_types]
        if c.embedding_norm:
            x = self.norm(x)
        x = constrain(x.astype(c.dtype), "batch", "length", "activation")
        return self.dropout(x, train=train)

    def scale_output(self, hidden):
        """The last hidden vectors as the logits' matrix expects them."""
        if self.config.embedding_scaling == "output":
            return hidden * jnp.asarray(self.config.model_dim**-0.5, hidden.dtype)
        return hidden

    def logits(self, hidden):
        """``hidden E^T`` in float32: ``[B, T, D]``, scaled, to ``[B, T, V]``."""
        c = self.config
        flat = hidden.reshape(-1, hidden.shape[-1])
        table = self.embedding if c.tie_embeddings else self.output
        logits = vocabulary_logits(flat, table.astype(hidden.dtype))
        if c.output_bias:
            logits += self.output_bias
        return logits.reshape(*hidden.shape[:-1], -1)
