"""What the commands share."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import jax
import tyro

from transformer.config import Config, DecodeConfig, MeshConfig, from_dict
from transformer.data.sources import decode_lines
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.functional.partition import placing
from transformer.models.build import Model, build_model
from transformer.models.decoder import Decoder
from transformer.models.encoder import Encoder
from transformer.models.seq2seq import Seq2Seq
from transformer.parallel.mesh import make_mesh
from transformer.parallel.sharding import Sharding, sharing
from transformer.training.checkpoint import load_config, load_for_inference, load_meta

_ARCHITECTURES: dict[type, str] = {
    Seq2Seq: "encoder_decoder",
    Decoder: "decoder",
    Encoder: "encoder",
}

_BLOCK = 2048
"""Lines of standard input worked on, and written, together."""


@dataclass(frozen=True)
class Command:
    """Base of the commands.

    Attributes:
        required: options that must be given.
        instead: of those, ones that need not be where another option is given.
        located_by: options that say where the defaults of the others are found; `defaults`
            takes them, with "_" for a dot.
    """

    required: ClassVar[tuple[str, ...]] = ()
    instead: ClassVar[Mapping[str, str]] = {}
    located_by: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def defaults(cls, **given: str) -> "Command":
        """The command with the options that `located_by` leads to."""
        return cls(**given)

    def on_devices(self) -> AbstractContextManager[Any]:
        """What `run` is to be called within."""
        return nullcontext()

    def run(self) -> int:
        """Does the work; returns the exit code."""
        raise NotImplementedError


@dataclass(frozen=True)
class OnCheckpoint(Command):
    """A command that needs a trained model."""

    checkpoint: str = tyro.MISSING
    """The --workdir of a training run, or one checkpoint's directory."""
    step: str = "best"
    """Which checkpoint: best (see train.best_by), last, a number, or average:N (the mean of
    the last N)."""
    mesh: MeshConfig = field(default_factory=MeshConfig)

    required: ClassVar = ("checkpoint",)
    located_by: ClassVar = ("checkpoint", "step")

    @cached_property
    def sharding(self) -> Sharding | None:
        """How the devices share the work."""
        return sharing(make_mesh(self.mesh))

    def on_devices(self) -> AbstractContextManager[Any]:
        return placing(self.sharding and self.sharding.placing)

    def load_any(self) -> tuple[Model, dict, Tokenizer, Config]:
        """The network, its parameters, its tokenizer and its settings."""
        loaded = load_for_inference(self.checkpoint, self.step)
        tokenizer = Tokenizer.from_json(loaded.tokenizer)
        model, params = build_model(loaded.config.model), loaded.params
        if self.sharding is not None:
            params = jax.device_put(params, self.sharding.parameters(model))
        return model, params, tokenizer, loaded.config

    def load(self) -> tuple[Seq2Seq, dict, Tokenizer, Config]:
        """As `load_any`, of an encoder-decoder."""
        return self._load_one_of(Seq2Seq)

    def load_decoder(self) -> tuple[Decoder, dict, Tokenizer, Config]:
        """As `load_any`, of a language model."""
        return self._load_one_of(Decoder)

    def load_generative(self) -> tuple[Seq2Seq | Decoder, dict, Tokenizer, Config]:
        """As `load_any`, of a model that says how probable a next token is."""
        return self._load_one_of(Seq2Seq, Decoder)

    def load_encoder(self) -> tuple[Encoder, dict, Tokenizer, Config]:
        """As `load_any`, of an encoder."""
        return self._load_one_of(Encoder)

    def _load_one_of(self, *kinds: type) -> tuple[Any, dict, Tokenizer, Config]:
        model, params, tokenizer, config = self.load_any()
        if not isinstance(model, kinds):
            expected = " or ".join(repr(_ARCHITECTURES[kind]) for kind in kinds)
            raise UserError(
                f"--checkpoint {self.checkpoint}: model.architecture = "
                f"{model.config.architecture!r}; expected {expected}"
            )
        return model, params, tokenizer, config


def trained_config(checkpoint: str | None, step: str) -> Config:
    """The settings a checkpoint was trained with; the defaults where none is named (--help)."""
    return Config() if checkpoint is None else load_config(checkpoint, step)


def trained_texts(checkpoint: str | None, step: str) -> tuple[Config, bool]:
    """As `trained_config`, and whether a text should follow the tokenizer's begin id: the model
    was trained on answers, where every prompt does, or its published tokenizer puts it there."""
    if checkpoint is None:
        return Config(), False
    meta = load_meta(checkpoint, step)
    config = from_dict(meta.config)
    begins = config.data.objective == "answers" or Tokenizer.from_json(meta.tokenizer).begins_texts
    return config, begins


def require_folder(option: str, path: Path) -> None:
    """Found out before the work whose result would be lost."""
    if not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: no such directory {path.parent}")


def warn_cut(place: str, tokens: int, decode: DecodeConfig) -> None:
    """Says on stderr that a source was too long to be translated whole."""
    print(
        f"warning: {place}: {tokens} tokens, cut to the first {decode.max_source_length} "
        "(--decode.max-source-length)",
        file=sys.stderr,
    )


def standard_input() -> Iterator[tuple[int, list[str]]]:
    """Lines of standard input in blocks, each with the number of its first line, from 1.

    A person typing gets an answer to each line.
    """
    size = 1 if sys.stdin.isatty() else _BLOCK
    first, block = 1, []
    for raw in sys.stdin.buffer:
        block.append(raw)
        if len(block) == size:
            yield first, decode_lines(b"".join(block), "<stdin>", first)
            first, block = first + size, []
    if block:
        yield first, decode_lines(b"".join(block), "<stdin>", first)


def answer_lines(
    parse: Callable[[str, int], Any], answer: Callable[[Sequence[Any]], list[str]]
) -> None:
    """Writes a line for each of standard input: blank where `parse` finds nothing."""
    for first, lines in standard_input():
        parsed = [parse(line, first + i) for i, line in enumerate(lines)]
        answers = iter(answer([item for item in parsed if item is not None]))
        written = ["" if item is None else next(answers) for item in parsed]
        print("".join(line + "\n" for line in written), end="", flush=True)
