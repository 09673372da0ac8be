"""``transformer translate``."""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from transformer.commands.base import OnCheckpoint, trained_config, warn_cut
from transformer.config import DecodeConfig
from transformer.data.sources import decode_lines
from transformer.decoding.translate import Translator

_BLOCK = 2048
"""Lines of standard input translated, and written, together."""


@dataclass(frozen=True)
class Translate(OnCheckpoint):
    """Translate standard input to standard output, line by line."""

    n_best: int = 1
    """Hypotheses a line; above 1 each is written as: line number ||| text ||| score."""
    scores: bool = False
    """Write the score (log p / length penalty, in nats) and a TAB before each translation."""
    decode: DecodeConfig = dataclasses.field(default_factory=DecodeConfig)

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "Translate":
        return cls(decode=trained_config(checkpoint, step).decode)

    def run(self) -> int:
        model, params, tokenizer, _ = self.load()
        translator = Translator(model, params, tokenizer, self.decode)
        first = 1
        for lines in _standard_input():
            found_of_lines = translator.translate(
                lines,
                self.n_best,
                on_cut=lambda i, n, first=first: warn_cut(f"<stdin>:{first + i}", n, self.decode),
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
