"""``transformer train``."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import tyro

from transformer import config as configuration
from transformer.commands.base import Command
from transformer.config import Config
from transformer.training.loop import train
from transformer.training.start import with_model


@dataclass(frozen=True)
class Train(Config, Command):
    """Train a model, or go on with a training that was stopped."""

    config: str = tyro.MISSING
    """A Python file that defines `config`, such as configs/quickstart.py."""
    workdir: str = tyro.MISSING
    """Directory for checkpoints and metrics; a training found there is continued."""

    required: ClassVar = ("config", "workdir")
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
        return train(experiment, self.workdir).exit_code
