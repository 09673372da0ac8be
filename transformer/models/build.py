"""From settings to a network."""

from typing import Any

import jax
import jax.numpy as jnp

from transformer.config import ModelConfig
from transformer.models.classifier import Classifier
from transformer.models.decoder import Decoder
from transformer.models.encoder import Encoder
from transformer.models.seq2seq import Seq2Seq

Model = Seq2Seq | Decoder | Encoder
"""Any of the networks (a `Classifier` is a `Decoder`)."""


def build_model(config: ModelConfig) -> Model:
    """The network of ``config.architecture``, with ``config.head``."""
    match config.architecture:
        case "encoder_decoder":
            return Seq2Seq(config)
        case "encoder":
            return Encoder(config)
        case "decoder":
            return Classifier(config) if config.head == "classification" else Decoder(config)


def init_params(model: Model, key: jax.Array) -> Any:
    """Fresh parameters of a network. Pure: ``jax.eval_shape`` gives their shapes."""
    # A parameter's first value follows from its path and shape, not from the tokens.
    arguments: dict[str, Any] = {"inputs": jnp.ones((1, 2), jnp.int32)}
    if model.config.architecture == "encoder_decoder":
        arguments["source"] = arguments["inputs"]
    return model.init(key, **arguments)["params"]
