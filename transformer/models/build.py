"""From settings to a network."""

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
