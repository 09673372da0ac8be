"""Which models can be exported, and why others cannot."""

import dataclasses

import pytest

from tests.interop.goldens import EVERY, published
from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.interop.families import describing
from transformer.models.presets import PRESETS

GPT1_CLASSES = dataclasses.replace(PRESETS["gpt1"], head="classification", num_classes=3)


@pytest.mark.parametrize("case", EVERY)
def test_every_published_model_is_described_by_its_own_family(case):
    model = published(case)
    assert describing(model.config) is model.family


@pytest.mark.parametrize(
    ("name", "family"),
    [
        *(("gpt1", "openai-gpt"), ("t5-11b", "t5"), ("llama2-70b", "llama")),
        *(("bert-large", "bert"), ("roberta-base", "roberta"), ("roformer-base", "roformer")),
    ],
)
def test_presets_can_be_exported(name, family):
    assert describing(PRESETS[name]).name == family


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (PRESETS["gpt3-small"], "model.local_window = 128: expected None, .*gpt2"),
        (
            dataclasses.replace(PRESETS["gpt2"], attention_dim=1536),
            "model.attention_dim = 1536: expected 768, .*gpt2",
        ),
        (dataclasses.replace(PRESETS["gpt2"], num_kv_heads=3), "model.num_kv_heads = 3: .*12"),
        (dataclasses.replace(PRESETS["llama2-7b"], ff_bias=True, norm="layer"), "model.norm = 'la"),
        (GPT1_CLASSES, "model.head = 'classification': expected 'language_model', .*openai-gpt"),
        (
            dataclasses.replace(published("roformer").config, next_sentence=True),
            "model.next_sentence = True: expected False, .*roformer, RoFormerForMaskedLM",
        ),
        (
            dataclasses.replace(published("bert_classes").config, segment_types=0),
            "model.segment_types = 0: expected [12], .*ForSequenceClassification",
        ),
        (ModelConfig(vocab_size=7), "model.norm_epsilon = 1e-06: expected 1e-05, .*marian"),
    ],
    ids=lambda value: "",
)
def test_a_setting_without_a_name_there_is_refused(config, message):
    with pytest.raises(UserError, match=message):
        describing(config)


def test_dropout_and_the_like_stand_in_no_models_way():
    config = dataclasses.replace(PRESETS["llama2-7b"], dropout=0.1, attention="plain")
    assert describing(config).name == "llama"
