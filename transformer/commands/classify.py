"""``transformer classify``."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer.commands.base import OnCheckpoint, answer_lines
from transformer.config import Config
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.training.classification import TextClassifier
from transformer.training.token_labels import WordLabeller

_HEADS = ("classification", "regression", "token_labels")


@dataclass(frozen=True)
class Classify(OnCheckpoint):
    """Classify standard input line by line: writes label TAB probability, blank for blank.

    A model of pairs expects text TAB text2. A model of numbers writes the number of each line,
    one of words the label of each of its words, separated by spaces.
    """

    all: bool = False
    """Write every label with its probability, in the order of the classes, separated by TABs."""

    def run(self) -> int:
        model, params, tokenizer, config = self.load_any()
        head = model.config.head
        if head not in _HEADS:
            raise UserError(
                f"--checkpoint {self.checkpoint}: data.objective = {config.data.objective!r}; "
                f"expected one of {', '.join(_HEADS)}"
            )
        if self.all and head != "classification":
            raise UserError(f"--all: not with data.objective = {config.data.objective!r}")
        if head == "token_labels":
            return self._words(model, params, tokenizer, config)
        return self._texts(model, params, tokenizer, config)

    def _texts(self, model: Any, params: Any, tokenizer: Tokenizer, config: Config) -> int:
        classifier = TextClassifier(model, params, tokenizer, config.data)

        def answer(texts: Sequence[tuple[str, str]]) -> list[str]:
            return [self._format(outputs, classifier.names) for outputs in classifier(texts)]

        answer_lines(lambda line, number: _split(line, number, classifier.paired), answer)
        if classifier.cut:
            limit = config.data.max_length
            print(f"warning: {classifier.cut} cut to {limit} tokens", file=sys.stderr)
        return 0

    def _words(self, model: Any, params: Any, tokenizer: Tokenizer, config: Config) -> int:
        labeller = WordLabeller(model, params, tokenizer, config.data)

        def answer(texts: Sequence[list[str]]) -> list[str]:
            names = labeller.names
            return [" ".join(names[i] for i in found.argmax(axis=1)) for found in labeller(texts)]

        answer_lines(lambda line, _: line.split() or None, answer)
        return 0

    def _format(self, outputs: np.ndarray, names: tuple[str, ...]) -> str:
        if not names:
            return f"{outputs[0]:.6g}"
        chosen = range(len(names)) if self.all else [int(outputs.argmax())]
        return "\t".join(f"{names[i]}\t{outputs[i]:.4f}" for i in chosen)


def _split(line: str, number: int, paired: bool) -> tuple[str, str] | None:
    """The text, or the two of a pair; None of a blank line."""
    if not line.strip():
        return None
    text, *others = (part.strip() for part in line.split("\t"))
    if len(others) != paired:
        expected = "two, text TAB text2" if paired else "one text"
        raise UserError(f"<stdin>:{number}: {1 + len(others)} columns; expected {expected}")
    return text, others[0] if others else ""
