"""A config.json is read strictly: what is not implemented is one line."""

import pytest

from tests.interop.goldens import EVERY, published
from transformer.errors import UserError
from transformer.interop.families import FAMILIES, family_of
from transformer.interop.settings import Settings


def read(case: str, **changed):
    model = published(case)
    settings = Settings(model.settings | changed)
    return family_of(settings).read(settings, model.tensors)


@pytest.mark.parametrize(
    ("case", "changed", "message"),
    [
        (
            "gpt2",
            {"scale_attn_by_inverse_layer_idx": True},
            "config.json: scale_attn_by_inverse_layer_idx = True: expected False "
            "(nothing else is implemented)",
        ),
        (
            "gpt2",
            {"activation_function": "mish"},
            "activation_function = 'mish': expected gelu_new",
        ),
        ("gpt2", {"n_embd": None}, "n_embd missing: expected a whole number from 1 up"),
        ("gpt2", {"n_embd": "15"}, "n_embd = '15': expected a whole number from 1 up"),
        ("gpt2", {"embd_pdrop": 0.3}, "embd_pdrop = 0.3: expected 0.0"),
        ("gpt2", {"tie_word_embeddings": 1}, "tie_word_embeddings = 1: expected a value such as"),
        (
            "llama",
            {"rope_scaling": {"factor": 8.0, "rope_type": "llama3"}},
            "rope_scaling = {'factor': 8.0, 'rope_type': 'llama3'}: expected None",
        ),
        (
            "llama",
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
            "config.json: rope_parameters: rope_type = 'yarn': expected 'default'",
        ),
        ("llama", {"sliding_window": 4096}, "sliding_window = 4096: expected None"),
        ("llama", {"hidden_act": "relu"}, "hidden_act = 'relu': expected silu or"),
        ("t5_1.0", {"num_decoder_layers": 3}, "num_decoder_layers = 3: expected 2"),
        (
            "t5_1.0",
            {"relative_attention_num_buckets": 64},
            "relative_attention_num_buckets = 64: expected 32",
        ),
        ("marian", {"decoder_layers": 1}, "decoder_layers = 1: expected 2"),
        ("marian", {"normalize_before": True}, "normalize_before = True: expected False"),
        ("marian", {"share_encoder_decoder_embeddings": False}, "= False: expected True"),
        ("bert", {"architectures": ["BertLMHeadModel"]}, "= ['BertLMHeadModel']: expected BertFor"),
        (
            "bert",
            {"position_embedding_type": "relative_key"},
            "'relative_key': expected 'absolute'",
        ),
        ("bert", {"is_decoder": True}, "is_decoder = True: expected False"),
        ("bert", {"type_vocab_size": 0}, "type_vocab_size = 0: expected a whole number from 1 up"),
        (
            "bert_classes",
            {"problem_type": "multi_label_classification"},
            "= 'multi_label_classification': expected single_label_classification or regression",
        ),
        (
            "bert_classes",
            {"id2label": {"0": "a", "7": "b"}},
            "id2label = {'0': 'a', '7': 'b'}: exp",
        ),
        ("bert_classes", {"id2label": ["a", "b"]}, "id2label = ['a', 'b']: expected names of"),
        ("roberta", {"type_vocab_size": 2}, "type_vocab_size = 2: expected 1"),
        ("roberta", {"hidden_act": "relu"}, "hidden_act = 'relu': expected 'gelu'"),
        ("roberta", {"max_position_embeddings": 2}, "expected more than pad_token_id + 1 = 2"),
        ("roformer", {"rotary_value": True}, "rotary_value = True: expected False"),
        ("roformer", {"embedding_size": 9}, "embedding_size = 9: expected 18"),
        (
            "roformer",
            {"architectures": ["RoFormerForSequenceClassification"]},
            "expected RoFormerForMaskedLM or RoFormerForTokenClassification or",
        ),
        (
            "gpt1",
            {"model_type": "vit"},
            "model_type = 'vit': expected openai-gpt or gpt2 or llama",
        ),
        ("gpt1", {"model_type": None}, "model_type missing: expected openai-gpt or gpt2"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 9 else "",
)
def test_what_is_not_implemented_is_one_line(case, changed, message):
    with pytest.raises(UserError) as caught:
        read(case, **changed)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("case", EVERY)
def test_settings_round_trip(case):
    model = published(case)
    written = Settings(model.family.settings(model.config))
    assert model.family.read(written, model.tensors) == model.config


def test_the_classes_are_counted_by_their_names():
    names = {"1": "no", "0": "yes", "2": "perhaps"}
    assert Settings({"id2label": names}).labels() == ["yes", "no", "perhaps"]
    assert Settings({"num_labels": 3}).labels() == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert read("bert_classes", id2label=names).num_classes == 3
    one = read("bert_classes", id2label={"0": "score"})
    assert (one.head, one.num_classes) == ("regression", None)


def test_whole_numbers_are_numbers():
    theta = read("llama", rope_parameters=None, rope_theta=500000).rotary_theta
    assert isinstance(theta, float) and theta == 500_000.0


def test_mistral_without_a_window_is_llama():
    assert read("llama", model_type="mistral") == published("llama").config


def test_t5_says_in_two_ways_whether_it_is_tied():
    """Recent files of version 1.1 say "tied" whatever they hold."""
    untied, tied = published("t5_1.1").config, published("t5_1.0").config
    assert (untied.tie_embeddings, untied.embedding_scaling) == (False, "none")
    assert (tied.tie_embeddings, tied.embedding_scaling) == (True, "output")
    old = {"scale_decoder_outputs": None, "tie_word_embeddings": False}
    assert read("t5_1.1", **old) == untied
    recent = {"scale_decoder_outputs": False, "tie_word_embeddings": True}
    assert read("t5_1.1", **recent) == untied
    assert read("t5_1.0", **recent).tie_embeddings, "no lm_head.weight in the file"


def test_every_family_has_a_name_of_its_own():
    names = [name for family in FAMILIES for name in (family.name, *family.also)]
    assert len(set(names)) == len(names)
