"""Trainings of several processes, which talk over TCP (gloo) as they would on several machines."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.helpers import train_quietly
from tests.parallel.cases import GPT2, SIZES, text_data
from transformer.commands.launch import free_port
from transformer.config import (
    Config,
    HostsConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
    to_dict,
)
from transformer.errors import UserError
from transformer.parallel import hosts
from transformer.training.checkpoint import load_for_inference, steps_in
from transformer.training.logging import read_metrics

ROOT = Path(__file__).parents[2]
STEPS = 40
TIMEOUT = 10
"""Seconds, of ``hosts.timeout``."""
START = [sys.executable, "-W", "ignore", "-c",
         "import sys; from transformer.cli import main; sys.exit(main(sys.argv[1:]))"]  # fmt: skip


def make_config(folder: Path) -> Config:
    return Config(
        model=ModelConfig("decoder", **SIZES, **GPT2),
        data=text_data(folder),
        optimizer=OptimizerConfig("constant", learning_rate=1e-3, warmup_steps=2),
        train=TrainConfig(
            steps=STEPS, log_every=1, save_every=4, eval_every=20, accumulate=2,
            label_smoothing=0.0, keep_every=20,
        ),
    )  # fmt: skip


class Runs:
    """Trainings on one configuration, each in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, make_config(folder)
        self.file = folder / "config.py"
        self.file.write_text(
            "import json\nfrom transformer.config import from_dict\n"
            f"config = from_dict(json.loads({json.dumps(to_dict(self.config))!r}))\n"
        )

    def start(self, name: str, count: int, devices: int, *options: str) -> subprocess.Popen:
        workdir = ["--config", str(self.file), "--workdir", str(self.folder / name)]
        command = [*START, "launch", f"--processes={count}", f"--devices={devices}", "--", "train"]
        timeout = [f"--hosts.timeout={TIMEOUT}"]
        return subprocess.Popen(
            [*command, *workdir, *timeout, *options],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, name: str, count: int, devices: int, *options: str) -> str:
        """Its output."""
        process = self.start(name, count, devices, *options)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        return output

    def losses(self, name: str, split: str = "train") -> list[float]:
        lines = read_metrics(self.folder / name)
        return [line["loss"] for line in lines if line["split"] == split]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    return Runs(tmp_path_factory.mktemp("hosts"))


@pytest.fixture(scope="module")
def alone(runs) -> list[float]:
    """The losses of one process with one device."""
    train_quietly(runs.config, runs.folder / "alone")
    return runs.losses("alone")


@pytest.fixture(scope="module")
def four(runs) -> tuple[str, list[float]]:
    """20 steps of four processes with two devices each: the output and the losses."""
    sides = ["--mesh.data=2", "--mesh.fsdp=2", "--mesh.tensor=2"]
    output = runs.run("four", 4, 2, "--train.steps=20", *sides)
    return output, runs.losses("four")


def test_hosts_agree(tmp_path):
    command = [sys.executable, "-m", "tests.parallel.several_hosts", str(free_port()), "2"]
    processes = [
        subprocess.Popen([*command, str(index), str(tmp_path)], cwd=ROOT, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for index in range(2)
    ]  # fmt: skip
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0 and "agreed" in output, output


def test_four_hosts_learn_what_one_does(runs, alone, four):
    output, losses = four
    np.testing.assert_allclose(losses, alone[:20], rtol=1e-5)
    validation = runs.losses("four", "validation"), runs.losses("alone", "validation")[:1]
    np.testing.assert_allclose(*validation, rtol=1e-5)
    # One of them says things, and writes.
    assert output.count("step 7/20") == output.count("devices: data 2 x fsdp 2 x tensor 2") == 1
    assert len(list((runs.folder / "four" / "tensorboard").iterdir())) == 1


@pytest.mark.parametrize(("count", "devices"), [(1, 1), (2, 1), (1, 8)])
def test_what_four_hosts_saved_others_go_on_with(runs, alone, four, count, devices):
    continue_elsewhere(runs, alone, four, count, devices)


@pytest.mark.slow
def test_what_four_hosts_saved_eight_go_on_with(runs, alone, four):
    continue_elsewhere(runs, alone, four, 8, 1)


def continue_elsewhere(runs, alone, four, count, devices):
    """The loss of each step tells which batch it was of."""
    name = f"{count}x{devices}"
    subprocess.run(["cp", "-r", runs.folder / "four", runs.folder / name], check=True)
    if (count, devices) == (1, 1):
        train_quietly(replace(runs.config, train=replace(runs.config.train, steps=26)),
                      runs.folder / name)  # fmt: skip
    else:
        runs.run(name, count, devices, "--train.steps=26")
    losses = runs.losses(name)
    assert losses[:20] == four[1]
    np.testing.assert_allclose(losses[20:], alone[20:26], rtol=1e-5)


def lines_until(process: subprocess.Popen, pattern: str) -> Iterator[str]:
    assert process.stdout
    for line in process.stdout:
        yield line
        if re.search(pattern, line):
            return
    raise AssertionError(f"no {pattern!r} in the output")


def host(process: subprocess.Popen, index: int) -> int:
    """Process id."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    wanted = f"--hosts.index={index}"
    return next(int(c) for c in children if wanted in Path(f"/proc/{c}/cmdline").read_text())


def stopped_by(runs: Runs, number: int, index: int, after: int) -> tuple[int, str, float]:
    """Exit code, output and duration of the end of two hosts, one of which gets a signal."""
    process = runs.start("stopped", 2, 2)
    seen = list(lines_until(process, rf"step {after}/"))
    start = time.monotonic()
    os.kill(host(process, index), number)
    output, _ = process.communicate(timeout=120)
    return process.returncode, "".join(seen) + output, time.monotonic() - start


def test_stopped_and_killed_hosts_go_on_bit_by_bit(runs):
    runs.run("whole", 2, 2)
    # A signal that one host gets stops both, after the same step.
    code, output, _ = stopped_by(runs, signal.SIGTERM, 1, 3)
    assert code == 128 + signal.SIGTERM, output
    found = re.search(r"SIGTERM: stopped after step (\d+) of 40 and saved", output)
    assert found, output
    assert steps_in(runs.folder / "stopped" / "checkpoints")[-1] == int(found[1])
    # One that is gone, in the midst of a step, ends the other: with a message, and soon.
    for index, after in ((1, 21), (0, 31)):
        code, output, seconds = stopped_by(runs, signal.SIGKILL, index, after)
        assert code == 128 + signal.SIGKILL, output
        assert f"going on from step {int(found[1]) if index else 20}" in output or not index
        # Most often the connection breaks; else JAX ends the process when the other is silent.
        ours = f"error: host {1 - index}: another host is gone; the same command goes on" in output
        assert ours or "most likely indicates that another task died" in output, output
        assert f"error: process {index} of 2 was ended by SIGKILL" in output
        assert "Traceback" not in output
        assert seconds < TIMEOUT + 20
    runs.run("stopped", 2, 2)
    ends = [load_for_inference(runs.folder / name, "last") for name in ("whole", "stopped")]
    assert [end.step for end in ends] == [STEPS, STEPS]
    jax.tree.map(np.testing.assert_array_equal, ends[0].params, ends[1].params)
    assert runs.losses("whole") == runs.losses("stopped")


@pytest.mark.slow
def test_a_host_that_hangs_ends_the_others(runs):
    """No connection breaks: only the silence tells."""
    process = runs.start("hanging", 2, 2)
    list(lines_until(process, "step 3/"))
    frozen = host(process, 1)
    start = time.monotonic()
    os.kill(frozen, signal.SIGSTOP)
    output, _ = process.communicate(timeout=120)
    assert process.returncode not in (0, None)
    assert time.monotonic() - start < TIMEOUT + 60
    assert "most likely indicates that another task died" in output, output


def test_a_mistake_is_told_once(runs):
    process = runs.start("mistaken", 2, 1, "--mesh.fsdp=3")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    errors = [line for line in output.splitlines() if "rror" in line]
    assert errors == [
        "error: mesh.data x fsdp x tensor = -1 x 3 x 1: expected a product of 2, the number of "
        "devices"
    ]


@pytest.mark.parametrize(
    ("surroundings", "expected"),
    [
        ({}, False),
        ({"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "2"}, True),
        ({"SLURM_STEP_NODELIST": "n1", "SLURM_NTASKS": "1"}, False),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}, False),  # a batch script outside srun
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, True),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, False),
        ({"TPU_WORKER_HOSTNAMES": "localhost", "MEGASCALE_NUM_SLICES": "2"}, True),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, True),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
    ],
)
def test_what_a_cluster_says_of_itself(monkeypatch, surroundings, expected):
    for name in list(os.environ):
        if re.match("SLURM_|OMPI_|TPU_|MEGASCALE_|KUBERNETES_|JOB_COMPLETION", name):
            monkeypatch.delenv(name)
    monkeypatch.setattr("glob.glob", lambda _: [])
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    assert hosts.announced() is expected


def test_one_process_alone_needs_nobody(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    hosts.connect(HostsConfig(count=1))
    assert (hosts.several(), hosts.index(), hosts.first()) == (False, 0, True)
    assert hosts.gather(3) == [3] and hosts.from_first(3) == 3
    hosts.leave(5)


def test_processes_that_cannot_be_met_are_a_mistake(monkeypatch):
    def initialize(*_, **options):
        raise RuntimeError("DEADLINE_EXCEEDED: nobody came\nand more")

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    message = "hosts.coordinator = 'n1:80': cannot meet the other processes: DEADLINE_EXCEEDED"
    with pytest.raises(UserError, match=message):
        hosts.connect(HostsConfig("n1:80", 2, 1))
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(UserError, match=r"hosts.coordinator: .* nobody came \(--hosts.count 1 tra"):
        hosts.connect(HostsConfig())
