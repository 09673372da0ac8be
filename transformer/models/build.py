"""From settings to a network."""

from transformer.config import ModelConfig
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq

Model = Seq2Seq | Decoder
"""Any of the networks."""


def build_model(config: ModelConfig) -> Model:
    """The network of ``config.architecture``."""
    return Decoder(config) if config.architecture == "decoder" else Seq2Seq(config)
