"""What the command line can do. A command is a dataclass of its options and a `run`."""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from transformer import config as configuration
from transformer.analysis import attention_maps, plots
from transformer.config import Config, DataConfig, DecodeConfig
from transformer.data.pipeline import Split, prepare
from transformer.data.sources import decode_lines
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.translate import Translator
from transformer.errors import UserError
from transformer.models.seq2seq import Seq2Seq
from transformer.training.checkpoint import load_config, load_for_inference
from transformer.training.evaluation import evenly_spread
from transformer.training.logging import read_metrics
from transformer.training.loop import train
from transformer.training.metrics import describe, scored_by_errors

_BLOCK = 2048
"""Lines of standard input translated, and written, together."""


@dataclass(frozen=True)
class Command:
    """Base of the commands.

    Attributes:
        required: options that must be given.
        located_by: options that say where the defaults of the others are found.
    """

    required: ClassVar[tuple[str, ...]] = ()
    located_by: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def defaults(cls, **given: str) -> "Command":
        """The command with the options that `located_by` leads to."""
        return cls(**given)

    def run(self) -> int:
        """Does the work; returns the exit code."""
        raise NotImplementedError


@dataclass(frozen=True)
class Train(Config, Command):
    """Train a model, or go on with a training that was stopped."""

    config: str = "(required)"
    """A Python file that defines `config`, such as configs/quickstart.py."""
    workdir: str = "(required)"
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


@dataclass(frozen=True)
class _OnCheckpoint(Command):
    """A command that needs a trained model."""

    checkpoint: str = "(required)"
    """The --workdir of a training run, or one checkpoint's directory."""
    step: str = "best"
    """Which checkpoint: best (lowest validation loss), last, a number, or average:N (the mean of
    the last N)."""

    required: ClassVar = ("checkpoint",)
    located_by: ClassVar = ("checkpoint", "step")

    def load(self) -> tuple[Seq2Seq, dict, Tokenizer, Config]:
        loaded = load_for_inference(self.checkpoint, self.step)
        tokenizer = Tokenizer.from_json(loaded.tokenizer)
        return Seq2Seq(loaded.config.model), loaded.params, tokenizer, loaded.config


def _trained_config(checkpoint: str | None, step: str) -> Config:
    """The settings a checkpoint was trained with; the defaults where none is named (--help)."""
    return Config() if checkpoint is None else load_config(checkpoint, step)


def _require_folder(option: str, path: Path) -> None:
    """Found out before the work whose result would be lost."""
    if not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: no such directory {path.parent}")


@dataclass(frozen=True)
class Evaluate(_OnCheckpoint):
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
        trained = _trained_config(checkpoint, step)
        return cls(data=trained.data, decode=trained.decode)

    def run(self) -> int:
        console = Console()
        if self.predictions is not None:
            _require_folder("--predictions", self.predictions)
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
                on_cut=lambda i, tokens: _warn_cut(f"example {chosen[i]}", tokens, self.decode),
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


@dataclass(frozen=True)
class Translate(_OnCheckpoint):
    """Translate standard input to standard output, line by line."""

    n_best: int = 1
    """Hypotheses a line; above 1 each is written as: line number ||| text ||| score."""
    scores: bool = False
    """Write the score (log p / length penalty, in nats) and a TAB before each translation."""
    decode: DecodeConfig = dataclasses.field(default_factory=DecodeConfig)

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "Translate":
        return cls(decode=_trained_config(checkpoint, step).decode)

    def run(self) -> int:
        model, params, tokenizer, _ = self.load()
        translator = Translator(model, params, tokenizer, self.decode)
        first = 1
        for lines in _standard_input():
            found_of_lines = translator.translate(
                lines,
                self.n_best,
                on_cut=lambda i, n, first=first: _warn_cut(f"<stdin>:{first + i}", n, self.decode),
            )
            for i, found in enumerate(found_of_lines, first):
                for hypothesis in found:
                    print(self._format(i, hypothesis.text, hypothesis.score))
            sys.stdout.flush()
            first += len(lines)
        return 0

    def _format(self, line: int, text: str, score: float) -> str:
        if self.n_best > 1:
            return f"{line} ||| {text} ||| {score:.4f}"
        return f"{score:.4f}\t{text}" if self.scores else text


def _warn_cut(place: str, tokens: int, decode: DecodeConfig) -> None:
    print(
        f"warning: {place}: {tokens} tokens, cut to the first {decode.max_source_length} "
        "(--decode.max-source-length)",
        file=sys.stderr,
    )


def _standard_input() -> Iterator[list[str]]:
    """Lines of standard input in blocks; a person typing gets an answer to each line."""
    size = 1 if sys.stdin.isatty() else _BLOCK
    first, block = 1, []
    for raw in sys.stdin.buffer:
        block.append(raw)
        if len(block) == size:
            yield decode_lines(b"".join(block), "<stdin>", first)
            first, block = first + size, []
    if block:
        yield decode_lines(b"".join(block), "<stdin>", first)


@dataclass(frozen=True)
class AttentionMap(_OnCheckpoint):
    """Draw where the decoder looks in one source while it writes each target symbol."""

    source: str = "(required)"
    """The text to translate."""
    target: str | None = None
    """Its translation; None: the model's own."""
    layer: int = -1
    """Decoder layer, from 0; -1 is the last."""
    output: Path = Path("attention.png")
    """The PNG file to write."""

    required: ClassVar = ("checkpoint", "source")
    located_by: ClassVar = ()

    def run(self) -> int:
        _require_folder("--output", self.output)
        model, params, tokenizer, config = self.load()
        layers = model.config.num_layers
        if not -layers <= self.layer < layers:
            raise UserError(f"--layer {self.layer}: expected 0 to {layers - 1}, or -1")
        target = self.target
        if target is None:
            translator = Translator(model, params, tokenizer, config.decode)
            target = translator.translate([self.source])[0][0].text
        pair = attention_maps.label_pair(tokenizer, self.source, target)
        weights = attention_maps.cross_attention(model, params, pair["source"], pair["inputs"])
        title = f"cross-attention, layer {self.layer % layers}: {self.source} → {target}"
        plots.plot_attention(weights[self.layer], pair["rows"], pair["columns"], self.output, title)
        print(f"attention map: {self.output}")
        return 0


@dataclass(frozen=True)
class PlotLoss(Command):
    """Draw the loss of a training run."""

    workdir: str = "(required)"
    """The --workdir of the run."""
    output: Path | None = None
    """The PNG file to write; None: loss.png in the workdir."""

    required: ClassVar = ("workdir",)

    def run(self) -> int:
        output = self.output or Path(self.workdir) / "loss.png"
        _require_folder("--workdir" if self.output is None else "--output", output)
        plots.plot_loss(read_metrics(self.workdir), output)
        print(f"loss curve: {output}")
        return 0
