"""Whole runs, at a tiny size: reversing words of three letters."""

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from rich.console import Console

import transformer.training.loop as loop
import transformer.training.step as step_module
from tests.training.full_disk import full_disk
from transformer.config import (
    Config,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
    to_dict,
)
from transformer.errors import UserError
from transformer.models.build import build_model
from transformer.training.checkpoint import load_for_inference
from transformer.training.logging import read_metrics
from transformer.training.loop import NonFiniteLoss, train
from transformer.training.saving import Checkpoints, SaveFailed
from transformer.training.state import init_state

PAIRS = [("".join(w), " ".join(reversed(w))) for w in itertools.product("abc", repeat=3)]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """4 steps an epoch, dropout on, a checkpoint every 3 steps."""
    directory = tmp_path_factory.mktemp("data")
    for name, pairs in (("train", PAIRS), ("validation", PAIRS[::5])):
        lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (directory / f"{name}.tsv").write_text(lines)
    return Config(
        model=ModelConfig(num_layers=1, model_dim=14, ff_dim=19, num_heads=7, dropout=0.1),
        data=DataConfig(
            dataset="files",
            train=(str(directory / "train.tsv"),),
            validation=(str(directory / "validation.tsv"),),
            data_dir=str(directory),
            batch_tokens=32,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.01, warmup_steps=0),
        train=TrainConfig(
            steps=10, eval_every=6, save_every=3, log_every=2, eval_examples=3, keep=2
        ),
    )


def quiet(output=None):
    return Console(file=output or io.StringIO(), width=200)


def settings(config, **changes):
    return replace(config, train=replace(config.train, **changes))


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    """An uninterrupted run of 10 steps: 2.5 epochs."""
    workdir = tmp_path_factory.mktemp("finished")
    output = io.StringIO()
    result = train(config, workdir, quiet(output))
    return workdir, result, output.getvalue()


def assert_same_end(workdir, finished):
    """The same parameters, bit for bit, and the same metrics but for the speed."""
    jax.tree.map(
        np.testing.assert_array_equal,
        load_for_inference(workdir, "last").params,
        load_for_inference(finished, "last").params,
    )
    logged = [
        [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in read_metrics(path)]
        for path in (workdir, finished)
    ]
    assert logged[0] == logged[1]


def test_a_run_leaves_checkpoints_metrics_and_lines(config, finished):
    workdir, result, shown = finished
    assert (result.step, result.exit_code) == (10, 0)
    steps = [(line["step"], line["split"]) for line in result.history]
    assert steps == [
        (2, "train"),
        (4, "train"),
        (6, "train"),
        (6, "validation"),
        (8, "train"),
        (10, "train"),
        (10, "validation"),
    ]
    first, last = result.history[0], result.history[-1]
    assert first["loss"] > last["loss"] and {"bleu", "chrf", "perplexity"} <= last.keys()
    assert first["learning_rate"] == pytest.approx(0.01) and first["grad_norm"] > 0
    assert {"loss", "nll", "bleu"} <= result.validation.keys()
    assert "27 pairs in 4 steps an epoch" in shown
    assert "step 10/10" in shown and "validation after step 10: loss" in shown

    loaded = load_for_inference(workdir, "last")
    vocabulary = loaded.params["embedding"]["embedding"].shape[0]
    assert loaded.step == 10
    expected = replace(config, model=replace(config.model, vocab_size=vocabulary))
    assert loaded.config == expected
    kept = {p.name for p in (workdir / "checkpoints").iterdir()}
    assert {"9", "10"} <= kept and "3" not in kept


def test_validation_loss_covers_the_split_once(config, finished):
    """Independent of how the split is cut into batches."""
    _, result, _ = finished
    evaluated = [line for line in result.history if line["split"] == "validation"]
    assert all(np.isfinite(line["loss"]) for line in evaluated)
    assert evaluated[0]["perplexity"] == pytest.approx(np.exp(evaluated[0]["nll"]))


@pytest.mark.parametrize("stop_after", [1, 4, 6, 7, 10])
def test_resumed_equals_uninterrupted(config, finished, tmp_path, monkeypatch, stop_after):
    """Stopped before, at and after the end of an epoch (4 steps), with and without an interval
    of logging (2 steps) under way, and where an evaluation is due (6 and 10): it was lost with
    the signal, and so the step could never be the best."""
    monkeypatch.setattr(loop, "prefetch", interrupting(stop_after, signal.SIGINT))
    result = train(config, tmp_path, quiet())
    assert (result.step, result.signal, result.exit_code) == (stop_after, signal.SIGINT, 130)
    monkeypatch.undo()
    resumed = train(config, tmp_path, quiet())
    assert (resumed.step, resumed.validation) == (10, finished[1].validation)
    assert_same_end(tmp_path, finished[0])
    best, expected = (load_for_inference(path).step for path in (tmp_path, finished[0]))
    assert best == expected


def interrupting(step, number):
    """`prefetch`, with a signal while ``step`` is under way."""
    prefetch = loop.prefetch

    def wrapped(*args, **options):
        for index, batch in prefetch(*args, **options):
            if index + 1 == step:
                os.kill(os.getpid(), number)
            yield index, batch

    return wrapped


def test_steps_may_grow(config, finished, tmp_path):
    assert train(settings(config, steps=5, keep_every=100), tmp_path, quiet()).step == 5
    untrained = load_for_inference(tmp_path, 0)
    model = build_model(untrained.config.model)
    first = jax.jit(init_state, static_argnums=(0, 1, 2))(model, optax.identity(), 0).params
    jax.tree.map(np.testing.assert_array_equal, untrained.params, first)
    assert train(config, tmp_path, quiet()).step == 10
    jax.tree.map(
        np.testing.assert_array_equal,
        load_for_inference(tmp_path, "last").params,
        load_for_inference(finished[0], "last").params,
    )


def test_a_damaged_last_checkpoint_is_passed_over(config, finished, tmp_path):
    """The run was complete, and is again, though its last checkpoint has a byte flipped."""
    workdir = tmp_path / "run"
    shutil.copytree(finished[0], workdir)
    arrays = [p for p in (workdir / "checkpoints" / "10" / "state").rglob("*") if p.is_file()]
    file = max(arrays, key=lambda p: p.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 64
    file.write_bytes(content)
    output = io.StringIO()
    assert train(config, workdir, Console(file=output, width=1000)).step == 10
    assert_same_end(workdir, finished[0])
    (line,) = [line for line in output.getvalue().splitlines() if line.startswith("warning")]
    assert line.startswith(f"warning: {workdir}/checkpoints/10: damaged or incomplete checkpoint")
    assert line.endswith("not the bytes that were saved); taking step 9 instead")
    assert "going on from step 9" in output.getvalue()
    assert (workdir / "checkpoints" / "10.damaged").is_dir()


class FullAtTheEnd(Checkpoints):
    """The disk is full from step 7 on."""

    def save(self, state, meta):
        self.wait()
        with full_disk(size=1) if meta.step > 6 else nullcontext():
            super().save(state, meta)
            self.wait()


def test_a_full_disk_does_not_end_the_run_but_tells(config, finished, tmp_path, monkeypatch):
    """Neither the checkpoint of step 9 nor that of step 10, the last, can be saved."""
    monkeypatch.setattr(loop, "Checkpoints", FullAtTheEnd)
    output = io.StringIO()
    with pytest.raises(SaveFailed, match=r"cannot save step 10 in .*: File too large") as error:
        train(config, tmp_path, Console(file=output, width=1000))
    assert error.value.exit_code == 1
    warnings = [line for line in output.getvalue().splitlines() if line.startswith("warning")]
    assert warnings == [
        f"warning: cannot save step {step} in {tmp_path}/checkpoints: File too large; "
        "training goes on, and the next save tries again"
        for step in (9, 10)
    ]
    assert load_for_inference(tmp_path, "last").step == 6
    monkeypatch.undo()
    assert train(config, tmp_path, quiet()).step == 10
    assert_same_end(tmp_path, finished[0])


def test_a_complete_run_says_so(config, finished):
    output = io.StringIO()
    result = train(config, finished[0], quiet(output))
    assert result.step == 10 and result.validation == finished[1].validation
    assert "already complete at step 10" in output.getvalue()


def test_a_changed_setting_is_refused(config, finished):
    changed = replace(config, model=replace(config.model, ff_dim=23))
    with pytest.raises(UserError, match=r"model\.ff_dim = 23: expected 19"):
        train(settings(changed, steps=20), finished[0], quiet())


def test_changed_data_is_refused(config, finished, tmp_path):
    other = tmp_path / "other.tsv"
    other.write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS[:-1]))
    changed = replace(config, data=replace(config.data, train=(str(other),)))
    with pytest.raises(UserError, match=r"data\.train: its tokens differ"):
        train(settings(changed, steps=20), finished[0], quiet())


def test_too_small_a_vocabulary_is_refused(config, tmp_path):
    changed = replace(config, model=replace(config.model, vocab_size=5))
    with pytest.raises(UserError, match=r"model\.vocab_size = 5: expected at least"):
        train(changed, tmp_path, quiet())


def test_a_loss_that_is_not_finite_stops_at_its_step(config, tmp_path, monkeypatch):
    """Names the step and its examples, and keeps the poisoned parameters off the disk."""
    make = step_module.make_train_step

    def make_bad(*args):
        step = make(*args)

        def bad(state, batch):
            if int(state.step) == 4:
                state = state.replace(params=jax.tree.map(lambda x: x * np.nan, state.params))
            return step(state, batch)

        return bad

    monkeypatch.setattr(step_module, "make_train_step", make_bad)
    with pytest.raises(NonFiniteLoss) as error:
        train(config, tmp_path, quiet())
    message = str(error.value)
    assert message.startswith("step 5: loss nan, gradient norm ")
    assert str(tmp_path / "checkpoints" / "3") in message
    named = message.split("training examples ")[1].split(" (the first: ")[0].split(", ")
    assert len(named) == 8 and all(0 <= int(name) < len(PAIRS) for name in named)
    assert load_for_inference(tmp_path, "last").step == 3


def test_accumulated_run(config, tmp_path):
    """9 rows a micro-batch, 3 micro-batches: one step an epoch."""
    accumulating = settings(config, accumulate=3, steps=2, eval_every=9, eval_examples=0)
    result = train(accumulating, tmp_path, quiet())
    assert result.step == 2
    assert result.validation is not None and "bleu" not in result.validation


def start(config, workdir):
    """The run in a process of its own."""
    code = (
        "import json, sys; from transformer.config import from_dict; "
        "from transformer.training.loop import train; "
        "sys.exit(train(from_dict(json.loads(sys.argv[1])), sys.argv[2]).exit_code)"
    )
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(to_dict(config)), str(workdir)],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_step(process, workdir, step):
    """Until metrics of ``step`` or a later one are logged."""
    deadline = time.monotonic() + 120
    while not any(line["step"] >= step for line in read_metrics(workdir)):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_goes_on(config, tmp_path, number):
    long = settings(config, steps=10**6, eval_every=10**6, log_every=1)
    process = start(long, tmp_path)
    wait_for_step(process, tmp_path, 20)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    logged = read_metrics(tmp_path)[-1]["step"]
    saved = load_for_inference(tmp_path, "last").step
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert saved == logged
        assert f"SIGTERM: stopped after step {saved} of 1000000 and saved in {tmp_path}" in output
    else:
        assert process.returncode == -signal.SIGKILL
        # A save may have been under way, so at most the steps since the one before.
        assert logged - 7 <= saved <= logged + 1
    result = train(settings(long, steps=saved + 3), tmp_path, quiet())
    assert result.step == saved + 3
    steps = [line["step"] for line in result.history if line["split"] == "train"]
    assert steps == list(range(1, saved + 4))


def test_a_mistake_in_the_data_leaves_nothing_behind(config, tmp_path):
    """The checkpoints' folder was made first, and its thread outlived the error in a traceback."""
    missing = replace(config.data, train=(str(tmp_path / "missing.tsv"),))
    with pytest.raises(UserError, match=r"missing\.tsv: no such file"):
        train(replace(config, data=missing), tmp_path / "run", quiet())
    assert not (tmp_path / "run").exists()


def test_a_held_out_pair_beyond_the_table_of_positions_is_named(config, tmp_path):
    (tmp_path / "long.tsv").write_text("abc\tc b a\nabcabc\tc b a\n")
    data = replace(config.data, max_length=3, validation=(str(tmp_path / "long.tsv"),))
    model = replace(config.model, positions="learned", max_positions=6)
    long = replace(config, model=model, data=data, decode=DecodeConfig(1, 0.0, 2, 4))
    expected = r"^held-out pair with the source 'abcabc': 7 tokens, .* model\.max_positions = 6$"
    with pytest.raises(UserError, match=expected):
        train(long, tmp_path / "run", quiet())
    assert not (tmp_path / "run").exists()
