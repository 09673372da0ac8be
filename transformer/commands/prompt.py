"""``transformer prompt``."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro

from transformer.commands.base import OnCheckpoint, trained_texts
from transformer.decoding.prompting import NORMALIZATIONS, evaluate, load_task
from transformer.decoding.scoring import Scorer
from transformer.errors import UserError


@dataclass(frozen=True)
class Prompt(OnCheckpoint):
    """Have a language model do a task from its prompt, with zero, one or a few examples.

    Of each query's choices the model gives the one it finds most probable: by log-likelihood, or
    that over the choice's tokens or bytes.
    """

    task: Path = tyro.MISSING
    """A JSON file: description, template, choices, examples and queries; see
    transformer/decoding/prompting.py."""
    shots: tuple[int, ...] = (0,)
    """Examples in the prompt; several numbers are tried one after the other."""
    begin: bool = False
    """Precede the prompt by the tokenizer's begin token, as a new document; by default if
    the model's tokenizer does, or if it was trained on answers."""
    batch_size: int = 8
    """Choices scored together; no score depends on it."""

    required: ClassVar = ("checkpoint", "task")

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "Prompt":
        return cls(begin=trained_texts(checkpoint, step)[1])

    def run(self) -> int:
        task = load_task(self.task)
        if not self.shots:
            raise UserError("--shots: expected at least one number")
        task.check_shots(max(self.shots))
        task.check_shots(min(self.shots))
        model, params, tokenizer, _ = self.load_decoder()
        scorer = Scorer(model, params, tokenizer, self.batch_size, self.begin)
        print(
            f"{len(task.queries)} queries; the most frequent answer is right in "
            f"{task.majority:.1%}, a guess in {task.chance:.1%}"
        )
        print("shots  " + "  ".join(f"{name:>9}" for name in NORMALIZATIONS))
        for shots in self.shots:
            found = evaluate(scorer, task, shots).accuracies
            shown = "  ".join(f"{found[name]:>9.1%}" for name in NORMALIZATIONS)
            print(f"{shots:>5}  {shown}", flush=True)
        return 0
