"""``transformer train``."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import tyro

from transformer import config as configuration
from transformer.commands.base import Command
from transformer.config import Config
from transformer.errors import UserError
from transformer.parallel.topology import target_of
from transformer.training.loop import train
from transformer.training.planning import make_plan, search
from transformer.training.start import with_model


@dataclass(frozen=True)
class Train(Config, Command):
    """Train a model, or go on with a training that was stopped."""

    config: str = tyro.MISSING
    """A Python file that defines `config`, such as configs/quickstart.py."""
    workdir: str | None = None
    """Directory for checkpoints and metrics; a training found there is continued."""
    plan: str | None = None
    """Instead of training, compile the training step for a machine that need not be there, and
    print whether it fits: CHIP:SIDES, such as v5e:16x16, v5p:4x4x8, v5e:16x16:2 (two slices),
    h100:1x8x8 (8 hosts of 8); chips are v4, v5e, v5p, v6e, tpu7x, a100, h100, h200. Exit code 3
    where it does not fit. Neither data nor --workdir is needed (extra plan)."""
    plan_search: bool = False
    """With --plan: find the largest batch that fits, in rows of each device."""

    required: ClassVar = ("config", "workdir")
    instead: ClassVar = {"workdir": "plan"}
    located_by: ClassVar = ("config", "workdir", "train.init_from")

    @classmethod
    def defaults(
        cls,
        config: str | None = None,
        workdir: str | None = None,
        train_init_from: str | None = None,
    ) -> "Train":
        if config is None:
            return cls()
        loaded = configuration.load(config)
        if train_init_from is not None:
            section = dataclasses.replace(loaded.train, init_from=train_init_from)
            loaded = dataclasses.replace(loaded, train=section)
        if workdir is not None:
            # So that options change the model it starts from, not the default one.
            loaded = with_model(loaded, workdir)
        return cls(**{f.name: getattr(loaded, f.name) for f in dataclasses.fields(loaded)})

    def run(self) -> int:
        experiment = Config(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Config)})
        if self.plan is not None:
            return self._plan(experiment, self.plan)
        if self.plan_search:
            raise UserError("--plan-search: expected --plan CHIP:SIDES besides")
        return train(experiment, str(self.workdir)).exit_code

    def _plan(self, experiment: Config, machine: str) -> int:
        if experiment.leaves_model:
            raise UserError(
                "--plan: the model is that of train.init_from; expected its settings, or that "
                "directory and a --workdir"
            )
        target = target_of(machine)
        if not self.plan_search:
            print(make_plan(experiment, target))
            return 0
        plan, rows = search(experiment, target)
        size = len(target.devices) // experiment.mesh.tensor * rows
        print(plan)
        print(
            f"the largest batch: --data.batch-size {size}, which are {rows} rows of each group of "
            f"mesh.tensor = {experiment.mesh.tensor} devices"
        )
        return 0
