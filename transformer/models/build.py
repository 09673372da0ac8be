"""From settings to a network."""

from transformer.config import ModelConfig
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq


def build_model(config: ModelConfig) -> Seq2Seq | Decoder:
    """The network of ``config.architecture``."""
    return Decoder(config) if config.architecture == "decoder" else Seq2Seq(config)
