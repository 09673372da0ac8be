"""How a training ends."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.config import Config
from transformer.errors import UserError
from transformer.training.logging import read_metrics
from transformer.training.meta import Meta


class NonFiniteLoss(UserError):
    """The loss or its gradient became infinite or not a number: training cannot go on."""

    exit_code = 1
    shared = True


@dataclass(frozen=True)
class TrainResult:
    """How a call of `train` ended."""

    workdir: Path
    step: int
    """Optimizer steps done in all."""
    steps: int
    """Optimizer steps asked for (``train.steps``)."""
    validation: dict[str, float] | None
    """Metrics on the validation split after the last step, if it was evaluated then."""
    signal: int | None = None
    """The signal that stopped training early."""

    @property
    def exit_code(self) -> int:
        """0, or by the shell's convention 128 + the signal (130 for Ctrl-C, 143 for SIGTERM)."""
        return 0 if self.signal is None else 128 + self.signal

    @property
    def history(self) -> list[dict[str, Any]]:
        """All metrics logged so far: `read_metrics`."""
        return read_metrics(self.workdir)


def completed(
    saved: Meta, config: Config, workdir: Path, say: Callable[[str], None]
) -> TrainResult | None:
    """The result of a run that was complete before, unless an evaluation is still owed."""
    steps = config.train.steps
    if saved.step < steps:
        return None
    more = "train.steps" if config.train.epochs is None else "train.epochs"
    say(f"{workdir}: already complete at step {saved.step}; to train on, give a larger {more}")
    owed = saved.validation is None
    return None if owed else TrainResult(workdir, saved.step, steps, saved.validation)
