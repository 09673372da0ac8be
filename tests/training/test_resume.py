import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.golden import assert_trees_close
from tests.helpers import train_quietly
from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig
from transformer.errors import UserError
from transformer.training.checkpoint import load_config, load_for_inference
from transformer.training.logging import read_metrics
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


def test_a_scanned_run_is_the_plain_one(tmp_path):
    """From the same parameters; it is read like the other, evaluated, and may go on without."""
    words = ["".join(letters) for letters in itertools.product("abc", repeat=3)]
    for name, part in (("train", words), ("validation", words[::5])):
        text = "".join(f"{word}\t{' '.join(reversed(word))}\n" for word in part)
        (tmp_path / f"{name}.tsv").write_text(text)
    origin = Config(
        model=ModelConfig(num_layers=2, model_dim=14, ff_dim=19, num_heads=7, dropout=0.1),
        data=DataConfig(
            dataset="files",
            train=(str(tmp_path / "train.tsv"),),
            validation=(str(tmp_path / "validation.tsv"),),
            data_dir=str(tmp_path),
            batch_tokens=32,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.01, warmup_steps=0),
        train=TrainConfig(steps=1, log_every=1, eval_examples=3),
    )
    train_quietly(origin, tmp_path / "origin")

    def train_on(steps: int, workdir: str, scan: bool) -> str:
        start = str(tmp_path / "origin")
        config = replace(
            origin,
            model=replace(origin.model, scan_layers=scan, remat="full" if scan else "none"),
            train=replace(origin.train, steps=steps, init_from=start),
        )
        return train_quietly(config, tmp_path / workdir)[1]

    train_on(4, "plain", scan=False)
    train_on(2, "scanned", scan=True)
    assert load_config(tmp_path / "scanned").model.scan_layers
    assert "going on from step 2" in train_on(3, "scanned", scan=False)
    assert not load_config(tmp_path / "scanned", "last").model.scan_layers
    assert "going on from step 3" in train_on(4, "scanned", scan=True)
    plain, scanned = (read_metrics(tmp_path / name) for name in ("plain", "scanned"))
    losses = [
        [line["loss"] for line in lines if line["split"] == "train"] for lines in (plain, scanned)
    ]
    assert len(losses[0]) == 4
    np.testing.assert_allclose(*losses, rtol=1e-5)
    # While it trains a scanned network decodes as well.
    assert (ending := scanned[-1]).pop("split") == plain[-1].pop("split") == "validation"
    assert ending == pytest.approx(plain[-1], rel=1e-5)
    theirs, ours = (load_for_inference(tmp_path / name) for name in ("plain", "scanned"))
    assert ours.config.model == theirs.config.model
    assert_trees_close(ours.params, theirs.params, tolerance=1e-4)
