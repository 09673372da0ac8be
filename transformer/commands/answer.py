"""``transformer answer``."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transformer.commands.base import OnCheckpoint, answer_lines
from transformer.data.sources import check_text
from transformer.errors import UserError
from transformer.training.spans import Answer, QuestionAnswerer


@dataclass(frozen=True)
class AnswerQuestions(OnCheckpoint):
    """Answer questions on standard input from their contexts, line by line.

    question TAB context gives answer TAB probability, blank gives blank. A line of JSON with
    "question" and "context", which may hold line breaks, gives JSON with "answer", "start" (its
    first character in the context) and "probability".
    """

    null_threshold: float | None = None
    """Give the empty answer (in JSON null) where its score exceeds that of the best one by more
    than this, for a model trained on questions without answers; `transformer evaluate` finds good
    values. None: answer every question."""

    def run(self) -> int:
        model, params, tokenizer, config = self.load_encoder()
        if model.config.head != "span":
            raise UserError(
                f"--checkpoint {self.checkpoint}: the model has the head {model.config.head!r}; "
                "expected 'span' (data.objective = 'spans')"
            )
        answerer = QuestionAnswerer(
            model, params, tokenizer, config.data, threshold=self.null_threshold
        )

        def parse(line: str, number: int) -> _Asked | None:
            place = f"<stdin>:{number}"
            return _Asked(_parse(line, place), place, _is_json(line)) if line.strip() else None

        def answer(asked: Sequence[_Asked]) -> list[str]:
            found = answerer([item.pair for item in asked], [item.place for item in asked])
            return [_format(a, item.as_json) for a, item in zip(found, asked, strict=True)]

        answer_lines(parse, answer)
        if answerer.cut:
            limit = config.data.question_length
            print(f"warning: {answerer.cut} questions cut to {limit} tokens", file=sys.stderr)
        return 0


class _Asked(NamedTuple):
    """A question and its context, where they stand, and whether as JSON."""

    pair: tuple[str, str]
    place: str
    as_json: bool


def _is_json(line: str) -> bool:
    return line.lstrip().startswith("{")


def _parse(line: str, place: str) -> tuple[str, str]:
    """The question and its context."""
    if not _is_json(line):
        return _both(line.split("\t"), place)
    try:
        values = json.loads(line)
    except ValueError as error:
        raise UserError(f"{place}: no JSON: {error}") from error
    parts = [values.get(name) for name in ("question", "context")]
    if not all(isinstance(part, str) for part in parts):
        raise UserError(f'{place}: expected texts "question" and "context"')
    for part in parts:
        check_text(part, place)
    return _both(parts, place)


def _both(parts: Sequence[str], place: str) -> tuple[str, str]:
    if len(parts) != 2:
        raise UserError(f"{place}: {len(parts)} columns; expected two, question TAB context")
    question, context = parts
    if not question.strip() or not context.strip():
        raise UserError(f"{place}: expected a question and its context, found a blank one")
    return question, context


def _format(answer: Answer, as_json: bool) -> str:
    if not as_json:
        return f"{answer.text}\t{answer.probability:.4f}"
    found = {
        "answer": answer.text or None,
        "start": answer.start if answer.text else None,
        "probability": round(answer.probability, 6),
    }
    return json.dumps(found, ensure_ascii=False)
