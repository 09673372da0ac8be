"""From settings to a network."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.models.build import build_model
from transformer.models.classifier import Classifier
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq


def test_the_architecture_decides_the_network():
    assert isinstance(build_model(ModelConfig()), Seq2Seq)
    assert isinstance(build_model(ModelConfig("decoder")), Decoder)
    assert not isinstance(build_model(ModelConfig("decoder")), Classifier)
    assert isinstance(
        build_model(ModelConfig("decoder", head="classification", num_classes=2)), Classifier
    )


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder"])
def test_a_network_needs_the_size_of_its_vocabulary(architecture):
    arguments: Any = {"inputs": jnp.ones((1, 2), int)}
    if architecture == "encoder_decoder":
        arguments["source"] = arguments["inputs"]
    with pytest.raises(UserError, match=r"^model\.vocab_size = None: expected the size"):
        build_model(ModelConfig(architecture)).init(jax.random.key(0), **arguments)
