"""Parameters of every published size, counted without allocating, against published numbers."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax.traverse_util import flatten_dict

from tests.models.test_parameter_counts import count, expected_count
from transformer.models.build import build_model
from transformer.models.presets import PRESETS

# As Hugging Face's library counts them (5.24; parameters on the meta device), tied ones once.
COUNTS = {
    "gpt1": 116_534_784,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-1.1-small": 76_961_152,
    "t5-1.1-base": 247_577_856,
    "t5-1.1-large": 783_150_080,
    "t5-1.1-xl": 2_849_757_184,
    "t5-1.1-xxl": 11_135_332_352,
    "tinyllama-1.1b": 1_100_048_384,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    # With both heads of pre-training.
    "bert-tiny": 4_433_468,
    "bert-mini": 11_267_900,
    "bert-small": 29_058_876,
    "bert-medium": 41_668_412,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    # Without the two rows of the table of positions that no token reads.
    "roberta-base": 124_697_433 - 2 * 768,
    "roberta-large": 355_412_057 - 2 * 1024,
    # Without the table of sinusoids.
    "roformer-base": 124_197_968 - 1536 * 64,
    # By the paper's formulas: with 37,000 pieces it says 65 and 213 million.
    "transformer-base": 63_045_632,
    "transformer-big": 214_171_648,
    # (V + 2048) D + L (4 D A + 3 A + 8 D^2 + 10 D) + 2 D with A = heads x head dimensions.
    "gpt3-small": 125_226_240,
    "gpt3-medium": 355_871_744,
    "gpt3-large": 760_300_032,
    "gpt3-xl": 1_517_123_584,
    "gpt3-2.7b": 2_651_553_280,
    "gpt3-6.7b": 6_658_404_352,
    "gpt3-13b": 12_936_488_380,
    "gpt3-175b": 174_604_259_328,
}

# Brown et al. 2020, table 2.1. Of XL the table's count fits 16 heads, not its 24.
PUBLISHED_GPT3 = {
    "gpt3-small": 125e6,
    "gpt3-medium": 350e6,
    "gpt3-large": 760e6,
    "gpt3-2.7b": 2.7e9,
    "gpt3-6.7b": 6.7e9,
    "gpt3-13b": 13.0e9,
    "gpt3-175b": 175.0e9,
}


# To the last parameter; the papers say 110 and 340 million (Devlin et al. 2019, section 3).
BERT = {
    "bert-base": {
        "tokens": 30_522 * 768,
        "positions": 512 * 768,
        "segments": 2 * 768,
        "embedding norm": 2 * 768,
        "attention": 12 * 4 * (768 * 768 + 768),
        "feed forward": 12 * (768 * 3072 + 3072 + 3072 * 768 + 768),
        "norms": 12 * 2 * 2 * 768,
        "pooler": 768 * 768 + 768,
        "transform": 768 * 768 + 768 + 2 * 768,
        "output bias": 30_522,
        "next sentence": 768 * 2 + 2,
    },
    "bert-large": {
        "tokens": 30_522 * 1024,
        "positions": 512 * 1024,
        "segments": 2 * 1024,
        "embedding norm": 2 * 1024,
        "attention": 24 * 4 * (1024 * 1024 + 1024),
        "feed forward": 24 * (1024 * 4096 + 4096 + 4096 * 1024 + 1024),
        "norms": 24 * 2 * 2 * 1024,
        "pooler": 1024 * 1024 + 1024,
        "transform": 1024 * 1024 + 1024 + 2 * 1024,
        "output bias": 30_522,
        "next sentence": 1024 * 2 + 2,
    },
}
PARTS = {
    "embedding/embedding": "tokens",
    "embedding/positions": "positions",
    "embedding/segments": "segments",
    "embedding/norm": "embedding norm",
    "embedding/output_bias": "output bias",
    "pooler": "pooler",
    "transform": "transform",
    "next_sentence": "next sentence",
}


@pytest.mark.parametrize(("name", "millions"), [("bert-base", 110), ("bert-large", 336)])
def test_berts_parameters_one_by_one(name, millions):
    """340 million is 336 rounded to two digits; base without its two heads has 109.5."""
    inputs = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    config = dataclasses.replace(PRESETS[name], num_layers=1)
    shapes = jax.eval_shape(build_model(config).init, jax.random.key(0), inputs)["params"]
    found = dict.fromkeys(BERT[name], 0)
    leaves: dict[str, Any] = dict(flatten_dict(shapes, sep="/"))
    for path, leaf in leaves.items():
        if path.startswith("encoder/"):
            part = "norms" if "norm/" in path else "attention"
            part = "feed forward" if "feed_forward/" in path else part
            found[part] += PRESETS[name].num_layers * math.prod(leaf.shape)
        else:
            part = next(PARTS[key] for key in sorted(PARTS, key=len)[::-1] if path.startswith(key))
            found[part] += math.prod(leaf.shape)
    assert found == BERT[name]
    assert sum(found.values()) == COUNTS[name]
    assert round(COUNTS[name] / 1e6) == millions


def test_the_bare_encoder_of_base():
    """As Hugging Face counts its BertModel: the pooler, and no head."""
    bare = dataclasses.replace(
        PRESETS["bert-base"], head="none", next_sentence=False, output_bias=False
    )
    assert expected_count(bare) == 109_482_240


def test_every_preset_is_counted():
    assert set(COUNTS) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_count(name):
    """From one layer and the difference that the second makes: tracing 96 takes a while."""
    config = PRESETS[name]
    one, two = (count(dataclasses.replace(config, num_layers=n)) for n in (1, 2))
    assert one + (config.num_layers - 1) * (two - one) == COUNTS[name]


@pytest.mark.parametrize("name", ["gpt1", "t5-small"])
def test_all_layers_are_alike(name):
    assert count(PRESETS[name]) == COUNTS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_the_formula_holds(name):
    assert expected_count(PRESETS[name]) == COUNTS[name]


@pytest.mark.parametrize("name", PUBLISHED_GPT3)
def test_gpt3_is_as_large_as_its_name(name):
    assert COUNTS[name] == pytest.approx(PUBLISHED_GPT3[name], rel=0.02)


def test_every_other_layer_of_gpt3_is_local():
    assert all((PRESETS[name].local_window is None) != name.startswith("gpt3") for name in PRESETS)
