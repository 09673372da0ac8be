"""A training that is killed at random moments, inside a save too, ends as one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import jax
import numpy as np
import pytest

from tests.training.test_loop import PAIRS
from transformer.config import (
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
    to_dict,
)
from transformer.training.checkpoint import last_intact, load_for_inference, steps_in
from transformer.training.logging import read_metrics

MOST_STEPS = 4
"""Between the last checkpoint and the save that a kill waits for."""

# Loads the program once, then starts each run as a fork: a tenth of the time. Reads
# [configuration, workdir] as a line of JSON, writes the run's process id, then its status.
SERVER = """
import json, os, sys, warnings
from transformer.config import from_dict
from transformer.training.loop import train
import tensorboardX

for line in sys.stdin:
    config, workdir = json.loads(line)
    child = os.fork()
    if child == 0:
        output = os.open(workdir + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = 1
        try:
            code = train(from_dict(config), workdir).exit_code
        finally:
            sys.stdout.flush()
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass
class Server:
    orders: IO[str]
    answers: IO[str]

    def start(self, config: Config, workdir: Path) -> int:
        """Process id of the run."""
        self.orders.write(json.dumps([to_dict(config), str(workdir)]) + "\n")
        self.orders.flush()
        return int(self.answers.readline())

    def status(self) -> int:
        """Waits for the end of the run."""
        return int(self.answers.readline())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    # Compiled programs of this module's own: the first run, which nobody kills, writes them.
    cache = str(tmp_path_factory.mktemp("programs"))
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVER],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin and process.stdout
        yield Server(process.stdin, process.stdout)
        process.stdin.close()
        assert process.wait(60) == 0


def make_config(directory, steps):
    """2 MB of state, so that a save takes longer than a step; after every step one."""
    path = directory / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return Config(
        model=ModelConfig(num_layers=1, model_dim=62, ff_dim=509, num_heads=2, dropout=0.1),
        data=DataConfig(
            dataset="files",
            train=(str(path),),
            validation=(str(path),),
            data_dir=str(directory),
            batch_tokens=32,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=1e-3, warmup_steps=0),
        train=TrainConfig(
            steps=steps, eval_every=steps // 4, eval_examples=0, save_every=1, log_every=3, keep=1
        ),
    )


def being_saved(directory):
    """The step of the save under way; -1 where none is."""
    return max((int(p.name.split(".")[0]) for p in directory.glob("*tmp*")), default=-1)


def kill_many_times(server, workdir, config, count, chosen):
    """Half at random moments from the start on, half from the beginning of a random save on.

    Returns:
        How many kills came inside a save.
    """
    directory, inside, last = workdir / "checkpoints", 0, -1
    for number in range(count):
        child = server.start(config, workdir)
        target = last + chosen.randrange(1, MOST_STEPS)
        deadline = time.monotonic() + (60 if number % 2 else chosen.uniform(0, 3))
        while being_saved(directory) < target and time.monotonic() < deadline:
            time.sleep(0.001)
        if number % 2:
            time.sleep(chosen.uniform(0, 0.1))
        os.kill(child, signal.SIGKILL)
        assert server.status() == -signal.SIGKILL, workdir.with_suffix(".log").read_text()
        inside += being_saved(directory) >= 0
        if steps_in(directory):
            # What is there is whole, and no less than before.
            meta = last_intact(directory, pytest.fail)
            assert meta and meta.step >= last
            assert load_for_inference(workdir, "last").step == meta.step
            last = meta.step
        else:
            assert last == -1
    return inside


def check(server, directory, kills, seed):
    steps = 5 * kills
    config = make_config(directory, steps)
    for name in ("whole", "killed"):
        workdir = directory / name
        run = config
        if name == "whole":  # saves only when it evaluates
            run = replace(config, train=replace(config.train, save_every=steps))
        if name == "killed":
            inside = kill_many_times(server, workdir, config, kills, random.Random(seed))
            print(f"{inside} of {kills} kills inside a save")
            assert inside >= kills // 4  # half of them meant to, on a slow machine too
        server.start(run, workdir)
        assert server.status() == 0, workdir.with_suffix(".log").read_text()
    ends = [load_for_inference(directory / name, "last") for name in ("whole", "killed")]
    assert [end.step for end in ends] == [steps, steps]
    jax.tree.map(np.testing.assert_array_equal, ends[0].params, ends[1].params)
    logged = [
        [
            {k: v for k, v in line.items() if k != "tokens_per_second"}
            for line in read_metrics(directory / name)
        ]
        for name in ("whole", "killed")
    ]
    assert logged[0] == logged[1]
    assert not list((directory / "killed" / "checkpoints").glob("*damaged*"))


def test_killed_a_few_times(server, tmp_path):
    check(server, tmp_path, kills=4, seed=0)


@pytest.mark.slow
def test_killed_fifty_times(server, tmp_path):
    check(server, tmp_path, kills=50, seed=1)
