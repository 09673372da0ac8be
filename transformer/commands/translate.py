"""``transformer translate``."""

import dataclasses
import sys
from dataclasses import dataclass

from transformer.commands.base import OnCheckpoint, standard_input, trained_config, warn_cut
from transformer.config import DecodeConfig
from transformer.decoding.translate import Translator


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
        for first, lines in standard_input():
            found_of_lines = translator.translate(
                lines,
                self.n_best,
                on_cut=lambda i, n, first=first: warn_cut(f"<stdin>:{first + i}", n, self.decode),
            )
            for i, found in enumerate(found_of_lines, first):
                for hypothesis in found:
                    print(self._format(i, hypothesis.text, hypothesis.score))
            sys.stdout.flush()
        return 0

    def _format(self, line: int, text: str, score: float) -> str:
        if self.n_best > 1:
            return f"{line} ||| {text} ||| {score:.4f}"
        return f"{score:.4f}\t{text}" if self.scores else text
