from dataclasses import replace

import pytest

from transformer.config import Config, DataConfig
from transformer.errors import UserError
from transformer.training.resume import require_same_run

FILES = DataConfig(dataset="files", train=("a.tsv",))
SAVED = Config(model=replace(Config().model, vocab_size=17), data=FILES)


def changed(section, **settings):
    return replace(SAVED, **{section: replace(getattr(SAVED, section), **settings)})


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("model", "ff_dim", 19),
        ("model", "dropout", 0.3),
        ("model", "vocab_size", 23),
        ("data", "batch_tokens", 99),
        ("data", "max_length", 13),
        ("train", "seed", 7),
        ("train", "accumulate", 3),
        ("train", "label_smoothing", 0.0),
    ],
)
def test_another_run_is_refused_by_name(section, name, value):
    given = changed(section, **{name: value})
    with pytest.raises(UserError, match=rf"{section}\.{name} = {value}: expected .* my/run"):
        require_same_run(SAVED, given, "my/run")


def test_what_may_change():
    assert require_same_run(SAVED, SAVED, "run") == []
    assert require_same_run(SAVED, changed("train", steps=10**6, keep=7, save_every=3), "run") == []
    assert require_same_run(SAVED, changed("data", train=("moved/a.tsv",)), "run") == []
    assert require_same_run(SAVED, changed("decode", beam_size=7), "run") == []
    assert require_same_run(SAVED, changed("model", vocab_size=None), "run") == []


def test_steps_that_follow_from_epochs_are_no_change():
    linear = replace(SAVED.optimizer, schedule="linear")
    saved = replace(SAVED, optimizer=linear, train=replace(SAVED.train, steps=60, epochs=3.0))
    given = replace(saved, train=replace(saved.train, steps=100_000))
    assert require_same_run(saved, given, "run") == []
    longer = replace(given, train=replace(given.train, epochs=4.0))
    notes = require_same_run(saved, longer, "run")
    assert notes == ["train.epochs = 4.0 from here on (was 3.0)"]


def test_a_changed_optimizer_is_said():
    notes = require_same_run(SAVED, changed("optimizer", learning_rate=0.5), "run")
    assert notes == ["optimizer.learning_rate = 0.5 from here on (was 1.0)"]
