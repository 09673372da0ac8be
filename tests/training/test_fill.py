"""What a run's settings leave to its data."""

import dataclasses

import numpy as np
import pytest

from transformer.config import Config, DataConfig, ModelConfig, TrainConfig
from transformer.data.classification import tokenise_labelled
from transformer.data.labelled import Labelled
from transformer.data.symbols import Symbols
from transformer.errors import UserError
from transformer.training.fill import with_data, with_steps


def test_epochs_become_steps_unless_steps_are_fewer():
    config = Config(train=TrainConfig(steps=100, epochs=2.5))
    assert with_steps(config, 7).train.steps == 18
    assert with_steps(config, 70).train.steps == 100
    assert with_steps(Config(train=TrainConfig(steps=100)), 7).train.steps == 100


@pytest.fixture
def config(tmp_path) -> Config:
    return Config(
        ModelConfig("encoder"),
        DataConfig(objective="classification", train=("a",), data_dir=str(tmp_path)),
    )


def split_of(config, objective="classification"):
    labels = ["0", "1", "2"]
    examples = Labelled(["ab", "b", "a"], [""] * 3, labels, ["p"] * 3)
    names = ("0", "1", "2") if objective == "classification" else ()
    tokenizer = Symbols("ab", "characters", "characters")
    split = tokenise_labelled(examples, names, config.data, tokenizer, "", lambda _: None)
    return tokenizer, split


def test_sizes_classes_and_the_head_come_from_the_data(config):
    tokenizer, split = split_of(config)
    filled = with_data(config, tokenizer, split)
    assert filled.model.vocab_size == 6 and filled.model.head == "classification"
    assert filled.model.num_classes == 3 and filled.data.labels == ("0", "1", "2")


def test_numbers_have_no_classes(config):
    data = dataclasses.replace(config.data, objective="regression")
    config = dataclasses.replace(config, data=data)
    tokenizer, split = split_of(config, "regression")
    assert np.array_equal(split.labels, [0, 1, 2]) and split.labels.dtype == np.float32
    filled = with_data(config, tokenizer, split)
    assert filled.model.head == "regression" and filled.model.num_classes is None


def test_what_does_not_fit_the_data_is_refused(config):
    tokenizer, split = split_of(config)
    for changes, message in [
        ({"vocab_size": 5}, "model.vocab_size = 5: expected at least the tokenizer's 6"),
        ({"pad_id": 3}, "model.pad_id = 3: expected the tokenizer's 0"),
        ({"head": "classification", "num_classes": 2}, "num_classes = 2: expected 3, as there"),
    ]:
        model = dataclasses.replace(config.model, **changes)
        with pytest.raises(UserError, match=message):
            with_data(dataclasses.replace(config, model=model), tokenizer, split)
