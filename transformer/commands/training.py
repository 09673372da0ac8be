"""``transformer train``."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import tyro

from transformer import config as configuration
from transformer.commands.base import Command
from transformer.config import Config
from transformer.training.loop import train


@dataclass(frozen=True)
class Train(Config, Command):
    """Train a model, or go on with a training that was stopped."""

    config: str = tyro.MISSING
    """A Python file that defines `config`, such as configs/quickstart.py."""
    workdir: str = tyro.MISSING
    """Directory for checkpoints and metrics; a training found there is continued."""

    required: ClassVar = ("config", "workdir")
    located_by: ClassVar = ("config",)

    @classmethod
    def defaults(cls, config: str | None = None) -> "Train":
        if config is None:
            return cls()
        loaded = configuration.load(config)
        return cls(**{f.name: getattr(loaded, f.name) for f in dataclasses.fields(loaded)})

    def run(self) -> int:
        experiment = Config(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Config)})
        return train(experiment, self.workdir).exit_code
