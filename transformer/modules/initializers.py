"""How fresh parameters are drawn."""

from typing import Literal

from flax import linen as nn

from transformer.config import ModelConfig

Role = Literal["query", "key", "value", "out", "up", "down"]

_GPT_STDDEV = 0.02
"""Radford et al. 2018, section 4.1."""


def kernel_init(config: ModelConfig, role: Role) -> nn.initializers.Initializer:
    """For a projection by what it does in its layer."""
    c = config
    match c.initializer:
        case "xavier":
            return nn.initializers.xavier_uniform()
        case "normal":
            return nn.initializers.normal(_GPT_STDDEV)
        case "scaled_normal":
            # Each layer adds two terms to the residual stream (Radford et al. 2019, section 2.3).
            depth = (2 * c.num_layers) ** 0.5 if role in ("out", "down") else 1.0
            return nn.initializers.normal(_GPT_STDDEV / depth)
        case "t5":
            # As mesh-tensorflow draws them: the scale of attention is in the query's kernel.
            fan_in = {
                "query": c.model_dim * c.head_dim,
                "out": c.num_heads * c.head_dim,
                "down": c.ff_dim,
            }
            return nn.initializers.normal(fan_in.get(role, c.model_dim) ** -0.5)


def embedding_init(config: ModelConfig) -> nn.initializers.Initializer:
    """For the embedding matrix and that of the logits."""
    match config.initializer:
        case "xavier":
            return nn.initializers.normal(config.model_dim**-0.5)
        case "normal" | "scaled_normal":
            return nn.initializers.normal(_GPT_STDDEV)
        case "t5":
            return nn.initializers.normal(1.0)
