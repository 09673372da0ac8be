from transformer.config import ModelConfig
from transformer.models.build import build_model
from transformer.models.classifier import Classifier
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq


def test_the_architecture_decides_the_network():
    assert isinstance(build_model(ModelConfig()), Seq2Seq)
    assert isinstance(build_model(ModelConfig("decoder")), Decoder)
    assert not isinstance(build_model(ModelConfig("decoder")), Classifier)
    assert isinstance(build_model(ModelConfig("decoder", num_classes=2)), Classifier)
