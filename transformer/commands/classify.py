"""``transformer classify``."""

import sys
from dataclasses import dataclass

import numpy as np

from transformer.commands.base import OnCheckpoint, standard_input
from transformer.errors import UserError
from transformer.models.classifier import Classifier
from transformer.training.classification import TextClassifier


@dataclass(frozen=True)
class Classify(OnCheckpoint):
    """Classify standard input line by line: writes label TAB probability, blank for blank.

    A model of pairs expects text TAB text2.
    """

    all: bool = False
    """Write every label with its probability, in the order of the classes, separated by TABs."""

    def run(self) -> int:
        model, params, tokenizer, config = self.load_any()
        if not isinstance(model, Classifier):
            raise UserError(
                f"--checkpoint {self.checkpoint}: data.objective = {config.data.objective!r}; "
                "expected 'classification'"
            )
        classifier = TextClassifier(model, params, tokenizer, config.data)
        for first, lines in standard_input():
            pairs = [self._split(line, first + i, classifier) for i, line in enumerate(lines)]
            asked = [i for i, pair in enumerate(pairs) if pair is not None]
            answers = [""] * len(lines)
            found = classifier([pair for pair in pairs if pair is not None])
            for i, probabilities in zip(asked, found, strict=True):
                answers[i] = self._format(probabilities, classifier.names)
            print("".join(answer + "\n" for answer in answers), end="", flush=True)
        if classifier.cut:
            limit = config.data.max_length
            print(f"warning: {classifier.cut} cut to {limit} tokens", file=sys.stderr)
        return 0

    def _split(self, line: str, number: int, classifier: TextClassifier) -> tuple[str, str] | None:
        """The text, or the two of a pair; None of a blank line."""
        if not line.strip():
            return None
        text, *others = (part.strip() for part in line.split("\t"))
        if len(others) != classifier.paired:
            expected = "two, text TAB text2" if classifier.paired else "one text"
            raise UserError(f"<stdin>:{number}: {1 + len(others)} columns; expected {expected}")
        return text, others[0] if others else ""

    def _format(self, probabilities: np.ndarray, names: tuple[str, ...]) -> str:
        chosen = range(len(names)) if self.all else [int(probabilities.argmax())]
        return "\t".join(f"{names[i]}\t{probabilities[i]:.4f}" for i in chosen)
