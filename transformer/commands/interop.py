"""``transformer import`` and ``transformer export``."""

import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from transformer.commands.base import Command
from transformer.interop.transfer import TokenizerChoice, export_model, import_model


@dataclass(frozen=True)
class Import(Command):
    """Read a published model (a Hugging Face folder) into a checkpoint."""

    from_: Annotated[str, tyro.conf.arg(name="from")] = tyro.MISSING
    """Directory with config.json, model.safetensors (or its parts) and tokenizer files."""
    workdir: str = tyro.MISSING
    """Directory for the checkpoint, of step 0; other commands take it as --checkpoint."""
    tokenizer: TokenizerChoice = "folder"
    """folder: that of the directory; ids: a text is token ids separated by spaces, for models
    without tokenizer files."""

    required: ClassVar = ("from_", "workdir")

    def run(self) -> int:
        imported = import_model(self.from_, self.workdir, self.tokenizer)
        model = imported.config.model
        head = f", head {model.head}" if model.architecture == "encoder" else ""
        print(
            f"{self.workdir}: {model.architecture}, {model.num_layers} layers of "
            f"{model.model_dim}, {model.vocab_size:,} token ids{head}"
        )
        if imported.drawn:
            print(
                f"note: {self.from_} has no {' and '.join(imported.drawn)}: drawn at random, "
                "as a new head",
                file=sys.stderr,
            )
        return 0


@dataclass(frozen=True)
class Export(Command):
    """Write a model as a Hugging Face folder (GPT, Llama, T5, Marian, BERT, RoBERTa, RoFormer)."""

    checkpoint: str = tyro.MISSING
    """The --workdir of a training run, or one checkpoint's directory."""
    to: str = tyro.MISSING
    """New directory for config.json, model.safetensors and tokenizer files."""
    step: str = "best"
    """Which checkpoint: best (lowest validation loss), last, a number, or average:N (the mean of
    the last N)."""

    required: ClassVar = ("checkpoint", "to")

    def run(self) -> int:
        exported = export_model(self.checkpoint, self.to, self.step)
        files = ", ".join(path.name for path in exported.tokenizer_files)
        print(f"{self.to}: {exported.architecture}; tokenizer: {files or 'none of its kind there'}")
        return 0
