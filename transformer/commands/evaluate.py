"""``transformer evaluate``."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from transformer.commands.base import OnCheckpoint, require_folder, trained_config, warn_cut
from transformer.config import DataConfig, DecodeConfig
from transformer.data.pipeline import Split, prepare
from transformer.decoding.translate import Translator
from transformer.errors import UserError
from transformer.training.evaluation import evenly_spread
from transformer.training.metrics import describe, scored_by_errors


@dataclass(frozen=True)
class Evaluate(OnCheckpoint):
    """Score a trained model on held-out data: BLEU and chrF, or phoneme and word error rate."""

    split: Literal["train", "validation", "test"] = "test"
    """Which part of the data."""
    examples: int | None = None
    """Examples scored, evenly spread over the split; None: all."""
    table: int = 0
    """Show this many examples with prediction and reference."""
    predictions: Path | None = None
    """Write the predictions there, one line an example, in the order of the split."""
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    decode: DecodeConfig = dataclasses.field(default_factory=DecodeConfig)

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "Evaluate":
        trained = trained_config(checkpoint, step)
        return cls(data=trained.data, decode=trained.decode)

    def run(self) -> int:
        console = Console()
        if self.predictions is not None:
            require_folder("--predictions", self.predictions)
        model, params, tokenizer, _ = self.load()
        data = prepare(self.data, tokenizer, (self.split,), log=console.print)
        split: Split | None = getattr(data, self.split)
        if split is None:
            raise UserError(f"--split {self.split}: {self.data.dataset} has none")
        count = len(split) if self.examples is None else min(self.examples, len(split))
        if count < 1:
            raise UserError(f"--examples {self.examples}: expected at least 1")
        chosen = evenly_spread(count, len(split))
        sources = [split.sources[i] for i in chosen]
        references = [split.references[i] for i in chosen]
        translator = Translator(model, params, tokenizer, self.decode)
        with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task("decoding", total=count)
            found = translator.translate(
                sources,
                progress=lambda done, all: bar.update(task, completed=done, total=all),
                on_cut=lambda i, tokens: warn_cut(f"example {chosen[i]}", tokens, self.decode),
            )
        outputs = [best[0].text for best in found]
        if self.predictions is not None:
            self.predictions.write_text("".join(o + "\n" for o in outputs), encoding="utf-8")
        if self.table:
            console.print(_table(sources, outputs, references, self.table))
        for line in describe(scored_by_errors(self.data), outputs, references):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return 0


def _table(sources, outputs, references, rows: int) -> Table:
    table = Table("source", "prediction", "reference", "", title="held-out examples")
    for i in evenly_spread(min(rows, len(sources)), len(sources)):
        right = outputs[i] in references[i]
        cells = sources[i], outputs[i], " | ".join(references[i]), "✓" if right else "✗"
        table.add_row(*map(Text, cells))  # as it is: "[b]" in a text is no markup
    return table
