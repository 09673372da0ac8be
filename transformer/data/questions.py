"""Questions about texts, in the published format of SQuAD 1.1 and 2.0, from files and TFDS sets.

A file is ``{"data": [{"paragraphs": [{"context": TEXT, "qas": [{"id", "question", "answers":
[{"text", "answer_start"}], "is_impossible"}]}]}]}`` (Rajpurkar et al. 2016 and 2018): an answer is
a part of its context that begins at a character, counted from 0; a question without any answer is
one that its context does not answer.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformer.config import DataConfig
from transformer.data.sources import (
    Log,
    SplitName,
    check_text,
    decoded,
    read_text,
    tfds_records,
    tfds_set,
)
from transformer.data.splits import read_splits
from transformer.data.text import hold_out
from transformer.errors import UserError


@dataclass(frozen=True)
class Question:
    """A question about a context.

    Attributes:
        name: its id in the file; a set has each once.
        text: what is asked.
        context: the number of the text it is about.
        answers: each with the character of the context that it begins at; (): the context does
            not answer it.
        place: where it was found.
    """

    name: str
    text: str
    context: int
    answers: tuple[tuple[str, int], ...]
    place: str


@dataclass(frozen=True)
class Questions:
    """Questions in the order they were found in, and the different texts they are about."""

    contexts: list[str]
    questions: list[Question]

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def unanswerable(self) -> int:
        """How many have no answer."""
        return sum(not question.answers for question in self.questions)


def read_questions(
    config: DataConfig, splits: Collection[SplitName], log: Log = print
) -> dict[SplitName, Questions]:
    """The questions of the splits that were asked for and exist.

    Where there is no validation split, the last contexts of the training split are held out with
    all their questions: as much as ``data.validation_fraction``, by characters.

    Raises:
        UserError: a file or set is missing or broken; an answer is not what stands in its context
            (names the file and the question).
    """
    found = read_splits(
        splits, partial(_read, config), partial(divide, fraction=config.validation_fraction)
    )
    for name, part in found.items():
        unanswerable = f" ({part.unanswerable:,} without an answer)" if part.unanswerable else ""
        log(f"{name}: {len(part):,} questions{unanswerable} on {len(part.contexts):,} contexts")
    return found


def divide(whole: Questions, fraction: float) -> tuple[Questions, Questions | None]:
    """All but the last `fraction` of the contexts, by characters, and those: each with its
    questions, so that no text is in both parts. 0 holds nothing out."""
    if fraction == 0:
        return whole, None
    border = len(hold_out(whole.contexts, fraction, divide=False)[0])
    return _part(whole, range(border)), _part(whole, range(border, len(whole.contexts)))


def _part(whole: Questions, contexts: range) -> Questions:
    return Questions(
        [whole.contexts[i] for i in contexts],
        [
            Question(q.name, q.text, q.context - contexts.start, q.answers, q.place)
            for q in whole.questions
            if q.context in contexts
        ],
    )


def _read(config: DataConfig, split: SplitName) -> Questions | None:
    if config.origin != "files":
        return _collect(_tfds_rows(config, split), f"{config.origin}, {split}")
    paths: tuple[str, ...] = getattr(config, split)
    if not paths:
        return None
    rows = (row for path in paths for row in _file_rows(path, f"data.{split}"))
    return _collect(rows, f"data.{split}: {', '.join(paths)}")


_Row = tuple[str, dict[str, Any]]
"""The place of a question; its fields in SQuAD's names, and ``context``."""


def _file_rows(path: str, setting: str) -> Iterator[_Row]:
    """The questions of one file.

    Raises:
        UserError: the file is missing or no JSON, or not in SQuAD's format; names the place.
    """
    text = read_text(path, setting)
    try:
        values = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path}: expected JSON in SQuAD's format ({error})") from error
    for a, article in enumerate(_list(values, "data", path)):
        where = f"{path}: data[{a}]"
        for p, paragraph in enumerate(_list(article, "paragraphs", where)):
            inner = f"{where}.paragraphs[{p}]"
            context = _field(paragraph, "context", str, inner)
            for q, question in enumerate(_list(paragraph, "qas", inner)):
                place = f"{inner}.qas[{q}]"
                name = _field(question, "id", str, place)
                yield f"{path}: question {name!r}", {**question, "context": context}


def _tfds_rows(config: DataConfig, split: SplitName) -> Iterator[_Row] | None:
    """The questions of a TFDS set with SQuAD's features; None if it has no such split.

    Raises:
        UserError: the set does not exist, cannot be built here, or has other features.
    """
    builder, where = tfds_set(config)
    missing = [name for name in _FEATURES if name not in builder.info.features]
    if missing:
        raise UserError(
            f"{where}: expected the features {', '.join(_FEATURES)}, as SQuAD has; found "
            f"{', '.join(builder.info.features)}"
        )
    if split not in builder.info.splits:
        return None
    return (_tfds_row(record, place) for place, record in tfds_records(builder, split, where))


def _tfds_row(record: dict[str, Any], place: str) -> _Row:
    name = decoded(record["id"], place)
    place = f"{place}, question {name!r}"
    answers = record["answers"]
    pairs = zip(answers["text"], answers["answer_start"], strict=True)
    row: dict[str, Any] = {key: decoded(record[key], place) for key in ("context", "question")}
    row["id"] = name
    row["answers"] = [
        {"text": decoded(text, place), "answer_start": int(start)} for text, start in pairs
    ]
    if "is_impossible" in record:
        row["is_impossible"] = bool(record["is_impossible"])
    return place, row


def _collect(rows: Iterator[_Row] | None, where: str) -> Questions | None:
    """The rows, checked one by one."""
    if rows is None:
        return None
    contexts: dict[str, int] = {}
    questions: dict[str, Question] = {}
    for place, row in rows:
        context = _field(row, "context", str, place)
        text = _field(row, "question", str, place)
        for part in (context, text):
            check_text(part, place)
        if not context.strip() or not text.strip():
            raise UserError(f"{place}: expected a question and a context, found a blank one")
        name = str(row["id"])
        if name in questions:
            raise UserError(f"{place}: expected every id once, found it at {questions[name].place}")
        number = contexts.setdefault(context, len(contexts))
        questions[name] = Question(name, text, number, _answers(row, context, place), place)
    if not questions:
        raise UserError(f"{where}: no questions")
    return Questions(list(contexts), list(questions.values()))


def _answers(row: dict[str, Any], context: str, place: str) -> tuple[tuple[str, int], ...]:
    """The answers of a question, each compared with what stands in the context."""
    impossible = row.get("is_impossible")
    answers = _list(row, "answers", place)
    if answers and impossible:
        raise UserError(f"{place}: is_impossible with {len(answers)} answers; expected none")
    if not answers and impossible is False:
        raise UserError(f"{place}: no answers; expected one, or is_impossible")
    found = []
    for i, answer in enumerate(answers):
        where = f"{place}, answers[{i}]"
        text, start = (_field(answer, n, t, where) for n, t in (("text", str), _START))
        there = context[start : start + len(text)] if start >= 0 else ""
        if there != text or not text.strip():
            elsewhere = context.find(text) if text.strip() else -1
            hint = f" (it stands at {elsewhere})" if elsewhere >= 0 else ""
            raise UserError(
                f"{where}: {text[:80]!r} at character {start}: the context has {there[:80]!r} "
                f"there{hint}"
            )
        found.append((text, start))
    return tuple(found)


_FEATURES = ("id", "context", "question", "answers")
_START = ("answer_start", int)


def _field(values: Any, name: str, kind: type, place: str) -> Any:
    if not isinstance(values, dict) or type(values.get(name)) is not kind:
        wanted = {str: "a text", int: "a whole number", list: "a list"}[kind]
        raise UserError(f"{place}: expected {name!r}, {wanted} (SQuAD's format)")
    return values[name]


def _list(values: Any, name: str, place: str) -> list[Any]:
    return _field(values, name, list, place)
