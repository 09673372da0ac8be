"""Parameters of every published size, counted without allocating, against published numbers."""

import dataclasses

import pytest

from tests.models.test_parameter_counts import count, expected_count
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
