"""``transformer score``."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformer.commands.base import OnCheckpoint, standard_input, trained_texts
from transformer.decoding.scoring import Score as Found
from transformer.decoding.scoring import Scorer
from transformer.errors import UserError, did_you_mean_file


@dataclass(frozen=True)
class Score(OnCheckpoint):
    """Score continuations, or a whole text by its perplexity.

    Standard input has lines of: context TAB continuation. For each one is written: log-likelihood
    of the continuation in nats TAB number of its tokens; a blank line for a blank one. Of an
    encoder-decoder the context is a source.
    """

    text: Path | None = None
    """Print the perplexity of this file instead."""
    window: int | None = None
    """Tokens seen at once in a text; None: model.max_positions, or 1024."""
    stride: int | None = None
    """Tokens of a text counted in each window, given those before them; None: half the window. 1
    is the slowest, and gives every token the most context."""
    begin: bool = False
    """Precede each context, or the text, by the tokenizer's begin token, as a new document; by
    default if the model's tokenizer does, or if it was trained on answers."""
    batch_size: int = 8
    """Texts or windows scored together; no score depends on it."""

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "Score":
        return cls(begin=trained_texts(checkpoint, step)[1])

    def run(self) -> int:
        text = None if self.text is None else _read(self.text)
        model, params, tokenizer, _ = self.load_generative()
        scorer = Scorer(model, params, tokenizer, self.batch_size, self.begin)
        if text is not None:
            found = scorer.perplexity(text, self.window, self.stride)
            print(
                f"perplexity {found.perplexity:.4f}: {found.loss:.4f} nats a token, "
                f"{found.bits_per_byte:.4f} bits a byte, {found.tokens:,} tokens"
            )
            return 0
        for first, lines in standard_input():
            for line in self._score(scorer, lines, first):
                print(line)
            sys.stdout.flush()
        return 0

    def _score(self, scorer: Scorer, lines: list[str], first: int) -> Iterator[str]:
        pairs = {}
        for i, line in enumerate(lines):
            if line.strip():
                context, *others = line.split("\t")
                if len(others) != 1:
                    raise UserError(
                        f"<stdin>:{first + i}: {1 + len(others)} columns; "
                        "expected two, context TAB continuation"
                    )
                pairs[i] = context, others[0]
        names = [f"<stdin>:{first + i}" for i in pairs]
        scores = dict(zip(pairs, scorer.score(list(pairs.values()), names), strict=True))
        return (_format(scores.get(i)) for i in range(len(lines)))


def _format(score: Found | None) -> str:
    return "" if score is None else f"{score.total:.4f}\t{len(score.log_probs)}"


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        near = did_you_mean_file(path, show=str(path.parent / "{}"))
        raise UserError(f"--text {path}: {error.strerror}{near}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--text {path}: expected UTF-8, found byte {error.start}") from error
