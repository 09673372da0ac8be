"""``transformer embed``."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from transformer.commands.base import (
    OnCheckpoint,
    require_folder,
    standard_input,
    trained_config,
)
from transformer.data.sources import read_lines
from transformer.decoding.embeddings import Embedder, Text
from transformer.errors import UserError


@dataclass(frozen=True)
class Embed(OnCheckpoint):
    """Turn texts, a line each, into vectors: of sentences, or features for another program.

    A row of numbers for every line, in their order: TAB-separated on standard output, or an array
    in a file. A blank line is a row of zeros.
    """

    data: tuple[str, ...] = ()
    """Text files to read instead of standard input; .gz is read too."""
    to: Path | None = None
    """File for the vectors: a .npy of float32 [lines, dimensions]; with --pool none a .npz with
    `vectors` [tokens, dimensions] of all lines one after another, and `lengths` [lines]."""
    pool: Literal["mean", "cls", "max", "none"] = "mean"
    """How a text's vector is made of those of its tokens, begin and end included: their mean; cls:
    the first token's; max: the largest value in each dimension; none: every token's is kept."""
    normalize: bool = True
    """Divide every vector by its length, so that the product of two is their cosine."""
    layers: tuple[int, ...] = (-1,)
    """Layers whose vectors are taken, one behind the other: -1 the last, 0 the embeddings. The
    features of BERT's paper are --layers -4 -3 -2 -1."""
    pairs: bool = False
    """Each line is text TAB text2, which are read together."""
    max_length: int = 512
    """Tokens of a line, begin and end included; of a longer one the end is cut off, and it is
    counted. By default what the model was trained with, or its published folder says."""
    batch_tokens: int | None = None
    """Padded tokens computed at once; None: what suits the device. No vector depends on it."""

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "Embed":
        config = trained_config(checkpoint, step)
        masked = config.data.objective == "masked_language_model"
        length = config.data.block_length if masked else config.data.max_length
        return cls(max_length=min(length, config.model.max_positions or length))

    def run(self) -> int:
        if self.to is None and self.pool == "none":
            raise UserError("--pool none: expected --to FILE.npz for the vectors")
        if self.to is not None:
            suffix = ".npz" if self.pool == "none" else ".npy"
            if self.to.suffix != suffix:
                raise UserError(f"--to {self.to}: expected a name in {suffix}")
            require_folder("--to", self.to)
        model, params, tokenizer, _ = self.load_encoder()
        embedder = Embedder(
            model,
            params,
            tokenizer,
            pool="mean" if self.pool == "none" else self.pool,
            layers=self.layers,
            normalize=self.normalize,
            max_length=self.max_length,
            batch_tokens=self.batch_tokens,
        )
        if self.to is None:
            for texts in self._blocks():
                print("".join(map(_line, embedder(texts))), end="", flush=True)
        else:
            self._save(embedder, [text for texts in self._blocks() for text in texts], self.to)
        if embedder.cut:
            print(
                f"warning: {embedder.cut:,} cut to {self.max_length} tokens (--max-length)",
                file=sys.stderr,
            )
        if embedder.blank:
            print(f"note: {embedder.blank:,} blank, their vectors are 0", file=sys.stderr)
        return 0

    def _save(self, embedder: Embedder, texts: list[Text], path: Path) -> None:
        console = Console(stderr=True)
        columns = ("texts", MofNCompleteColumn(), BarColumn(bar_width=None), TimeRemainingColumn())
        try:
            with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
                task = bar.add_task("embed", total=len(texts))

                def show(done: int, _: int) -> None:
                    bar.update(task, completed=done)

                if self.pool != "none":
                    np.save(path, embedder(texts, show))
                    return
                found = embedder.tokens(texts, show)
                lengths = np.array([len(vectors) for vectors in found], np.int64)
                empty = np.zeros((0, embedder.dim), np.float32)
                np.savez(path, vectors=np.concatenate([empty, *found]), lengths=lengths)
        except OSError as error:
            raise UserError(f"--to {path}: {error.strerror or error}") from error

    def _blocks(self) -> Iterator[list[Text]]:
        """The lines, some at a time."""
        if not self.data:
            for first, lines in standard_input():
                yield [self._text(line, "<stdin>", first + i) for i, line in enumerate(lines)]
        for path in self.data:
            lines = read_lines(path, "--data")
            yield [self._text(line, path, number) for number, line in enumerate(lines, 1)]

    def _text(self, line: str, place: str, number: int) -> Text:
        if not self.pairs or not line.strip():
            return line
        first, *others = line.split("\t")
        if len(others) != 1:
            raise UserError(
                f"{place}:{number}: {1 + len(others)} columns; expected two, text TAB text2"
            )
        return first, others[0]


def _line(vector: np.ndarray) -> str:
    return "\t".join(f"{value:.6g}" for value in vector) + "\n"
