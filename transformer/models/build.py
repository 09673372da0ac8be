"""From settings to a network."""

from transformer.config import ModelConfig
from transformer.models.classifier import Classifier
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq

Model = Seq2Seq | Decoder
"""Any of the networks (a `Classifier` is a `Decoder`)."""


def build_model(config: ModelConfig) -> Model:
    """The network of ``config.architecture``, with a head for ``config.num_classes``."""
    if config.architecture == "encoder_decoder":
        return Seq2Seq(config)
    return Decoder(config) if config.num_classes is None else Classifier(config)
