"""``transformer generate``."""

import dataclasses
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from transformer.commands.base import OnCheckpoint, standard_input, trained_texts
from transformer.config import GenerateConfig
from transformer.data.sources import check_text
from transformer.decoding.generate import Generator, Piece

# A person watches: a call of the device should not take much longer than this, in seconds.
_PATIENCE = 0.1
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MEANINGS = {escape: text for text, escape in _ESCAPES.items()}


@dataclass(frozen=True)
class Generate(GenerateConfig, OnCheckpoint):
    """Generate text that goes on from a prompt, or from each line of standard input.

    With --prompt the text appears as it comes, without the prompt; further samples follow after
    a line "--- 2". Of standard input every line is a prompt and every output a line, in which
    ends of lines are written as \\n; with several samples as: line number ||| text.
    """

    prompt: str | None = None
    """Text to go on from; None: each line of standard input. An empty one is the tokenizer's
    begin token."""
    max_new_tokens: int = 100
    """Most tokens generated after the prompt; by default at most half of model.max_positions."""
    stop: tuple[str, ...] = ()
    """Texts that end an output, which is cut before them; \\n, \\r, \\t and \\\\ are understood."""

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "Generate":
        trained, begin = trained_texts(checkpoint, step)
        limit = trained.model.max_positions
        new = cls.max_new_tokens if limit is None else min(cls.max_new_tokens, max(1, limit // 2))
        return cls(begin=begin, max_new_tokens=new)

    def run(self) -> int:
        check_text(self.prompt or "", "--prompt")
        model, params, tokenizer, _ = self.load_generative()
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(GenerateConfig)}
        config = GenerateConfig(**{**fields, "stop": tuple(map(_unescape, self.stop))})
        generator = Generator(model, params, tokenizer, config, log=_say, patience=_PATIENCE)
        if self.prompt is not None:
            _write_as_it_comes(generator.stream([self.prompt]))
            return 0
        for first, lines in standard_input():
            for i, outputs in enumerate(generator.generate(lines), first):
                for output in outputs:
                    text = _escape(output.text)
                    print(f"{i} ||| {text}" if self.samples > 1 else text)
            sys.stdout.flush()
        return 0


def _write_as_it_comes(pieces: Iterator[Piece]) -> None:
    """The first sample at once, what comes of the others meanwhile after it."""
    began, first = time.perf_counter(), None
    waiting: dict[int, list[Piece]] = {}
    current = 0
    for piece in pieces:
        first = first or time.perf_counter()
        waiting.setdefault(piece.sample, []).append(piece)
        while waiting.get(current):
            text, finish = waiting[current][0].text, waiting[current].pop(0).finish
            print(text, end="\n" if finish else "", flush=True)
            if finish:
                current += 1
                if current in waiting:
                    print(f"--- {current + 1}")
    now = time.perf_counter()
    _say(f"first text after {(first or now) - began:.2f} s, all after {now - began:.2f} s")


def _escape(text: str) -> str:
    return re.sub(r"[\\\n\r\t]", lambda match: _ESCAPES[match[0]], text)


def _unescape(text: str) -> str:
    return re.sub(r"\\[nrt\\]", lambda match: _MEANINGS[match[0]], text)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
