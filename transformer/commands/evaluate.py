"""``transformer evaluate``."""

import dataclasses
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from transformer.commands.base import OnCheckpoint, require_folder, trained_config, warn_cut
from transformer.config import DataConfig, DecodeConfig
from transformer.data.classification import ClassSplit
from transformer.data.pipeline import PairSplit, prepare
from transformer.data.text import TextSplit
from transformer.data.symbols import Symbols
from transformer.data.tokenizer import UNK, Tokenizer
from transformer.decoding.translate import Translator
from transformer.errors import UserError
from transformer.functional.losses import LossSums
from transformer.models.build import Model
from transformer.models.classifier import Classifier
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq
from transformer.training.answers import AnswerEvaluator, describe_answers
from transformer.training.classification import ClassEvaluator, describe_classes
from transformer.training.evaluation import Evaluator, evenly_spread
from transformer.training.metrics import class_scores, describe, scored_by_errors


@dataclass(frozen=True)
class Evaluate(OnCheckpoint):
    """Score a trained model on held-out data: BLEU and chrF, error rates, perplexity, accuracy."""

    split: Literal["train", "validation", "test"] | None = None
    """Which part of the data; None: test, or where there is none validation."""
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
        model, params, tokenizer, config = self.load_any()
        asked = (self.split,) if self.split else ("validation", "test")
        data = prepare(self.data, tokenizer, asked, log=console.print)
        split = (data.train if self.split == "train" else data.test) or data.validation
        if split is None or (self.split and getattr(data, self.split) is None):
            raise UserError(f"--split {' or '.join(asked)}: {self.data.origin} has none")
        config = replace(config, data=self.data)
        if isinstance(split, ClassSplit):
            lines = self._classify(model, params, tokenizer, split)
        elif isinstance(split, TextSplit):
            self._refuse("examples", "table", "predictions")
            evaluator = Evaluator(config, model, tokenizer, split)
            lines = self._losses(evaluator.sums(params), tokenizer, split)
        elif isinstance(model, Seq2Seq):
            lines = self._translate(model, params, tokenizer, split, console)
        else:
            assert isinstance(model, Decoder)
            self._refuse("examples", "table", "predictions")
            scores = AnswerEvaluator(config, model, tokenizer, split)(params)
            lines = describe_answers(scores, len(split))
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return 0

    def _translate(
        self, model: Seq2Seq, params: Any, tokenizer: Tokenizer, split: PairSplit, console: Console
    ) -> list[str]:
        """Outputs, shown and written as asked for; their scores."""
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
        return describe(scored_by_errors(self.data), outputs, references)

    def _classify(
        self, model: Model, params: Any, tokenizer: Tokenizer, split: ClassSplit
    ) -> list[str]:
        """The scores of the predicted classes, which are written as asked for."""
        self._refuse("examples", "table")
        if not isinstance(model, Classifier):
            raise UserError(
                f"--checkpoint {self.checkpoint}: the model has no classifier, which "
                "data.objective = 'classification' needs"
            )
        evaluator = ClassEvaluator(model, self.data, tokenizer, split)
        found = evaluator.probabilities(params).argmax(axis=1)
        if self.predictions is not None:
            lines = "".join(split.names[i] + "\n" for i in found)
            self.predictions.write_text(lines, encoding="utf-8")
        return describe_classes(class_scores(found, split.labels, len(split.names)), len(split))

    def _refuse(self, *options: str) -> None:
        """Options that this objective has no use for."""
        for name in options:
            if getattr(self, name):
                raise UserError(
                    f"--{name} {getattr(self, name)}: not with data.objective = "
                    f"{self.data.objective!r}"
                )

    def _losses(self, sums: LossSums, tokenizer: Tokenizer, split: TextSplit) -> list[str]:
        """How well texts are predicted, every token of them counted once."""
        bits = float(sums.nll) / math.log(2)
        nll = float(sums.nll / sums.weight)
        whole = self.data.objective == "language_model"
        lines = [
            f"nll {nll:.4f} nats a token, perplexity {math.exp(nll):.4f} ({sums.weight:,.0f} tokens"
            f"{', each counted once' if whole else ' of targets'})"
        ]
        if whole:
            lines.append(
                f"{bits / split.characters:.4f} bits a character, {bits / split.bytes:.4f} bits a "
                f"byte ({split.characters:,} characters)"
            )
        unknown = (split.store.tokens == UNK).sum() if isinstance(tokenizer, Symbols) else 0
        if unknown:
            lines.append(f"{unknown:,} of the tokens stand for symbols unknown in training")
        return lines


def _table(sources, outputs, references, rows: int) -> Table:
    table = Table("source", "prediction", "reference", "", title="held-out examples")
    for i in evenly_spread(min(rows, len(sources)), len(sources)):
        right = outputs[i] in references[i]
        cells = sources[i], outputs[i], " | ".join(references[i]), "✓" if right else "✗"
        table.add_row(*map(Text, cells))  # as it is: "[b]" in a text is no markup
    return table
