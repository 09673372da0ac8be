"""Tasks that a language model is shown in its prompt (Brown et al. 2020, section 2 and 3.1).

A task is a JSON file::

    {"description": "Tell the colour of each thing.",
     "template": "Thing: {input}\\nColour: {answer}",
     "choices": ["red", "green", "blue"],
     "examples": [{"input": "grass", "answer": "green"}],
     "queries": [{"input": "blood", "answer": "red"}]}

`template` (as above without it: "{input}\\n{answer}") says how an input and its answer are
written; description, examples and query are set apart by `separator` (a blank line). `choices`
hold for every query that has none of its own; `description` and `examples` may be missing.
With k shots a query follows the first k examples. The model is not trained: of the choices it
gives the one that it finds most probable after the query.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.data.sources import check_text
from transformer.decoding.scoring import Score, Scorer, common_length
from transformer.errors import UserError, did_you_mean, did_you_mean_file
from transformer.models.decoder import Decoder

NORMALIZATIONS: Mapping[str, Callable[[Score], float]] = {
    "sum": lambda score: score.total,
    "per token": lambda score: score.per_token,
    "per byte": lambda score: score.per_byte,
}
"""By what a choice may be taken: its log-likelihood, or that over its tokens or bytes."""


@dataclass(frozen=True)
class Query:
    """One question.

    Attributes:
        input: what is asked.
        answer: the right one.
        choices: the answers there are.
    """

    input: str
    answer: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """What a task file says; see the module."""

    queries: tuple[Query, ...]
    examples: tuple[tuple[str, str], ...] = ()
    description: str = ""
    template: str = "{input}\n{answer}"
    separator: str = "\n\n"

    def check_shots(self, shots: int) -> None:
        """Refuses more examples than there are."""
        if not 0 <= shots <= len(self.examples):
            raise UserError(
                f"shots = {shots}: expected 0 to {len(self.examples)}, the task's examples"
            )

    def prompt(self, query: Query, shots: int) -> str:
        """All that comes before the answer to a query, after so many examples."""
        parts = [self.description] if self.description else []
        parts += [self._write(*example) for example in self.examples[:shots]]
        before, _, _ = self.template.partition("{answer}")
        return self.separator.join([*parts, before.replace("{input}", query.input)])

    def _write(self, question: str, answer: str) -> str:
        # One pass: an input may hold "{answer}".
        before, _, after = self.template.partition("{answer}")
        return before.replace("{input}", question) + answer + after

    @property
    def majority(self) -> float:
        """Accuracy of the most frequent answer, whatever the input."""
        return Counter(query.answer for query in self.queries).most_common(1)[0][1] / self._count

    @property
    def chance(self) -> float:
        """Accuracy of guessing among the choices."""
        return sum(1 / len(query.choices) for query in self.queries) / self._count

    @property
    def _count(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class Outcome:
    """How a model does a task.

    Attributes:
        shots: examples in the prompt.
        accuracies: the share of right answers, by `NORMALIZATIONS`.
        answers: for each query, what was chosen by the log-likelihood.
    """

    shots: int
    accuracies: dict[str, float]
    answers: list[str]


def load_task(path: str | Path) -> Task:
    """Reads a task file.

    Raises:
        UserError: it is missing, no JSON, or not a task: what is wrong, and where.
    """
    path = Path(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        near = did_you_mean_file(path, show=str(path.parent / "{}"))
        raise UserError(f"{path}: {error.strerror}{near}") from error
    except ValueError as error:
        raise UserError(f"{path}: expected JSON ({error})") from error
    try:
        check_text(json.dumps(values, ensure_ascii=False), "the task")
        return _task(values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def evaluate(scorer: Scorer, task: Task, shots: int) -> Outcome:
    """Accuracy by scored choices, with `shots` examples in the prompt.

    What all prompts begin with, description and examples, is read once, and each query once for
    all of its choices.

    Raises:
        UserError: the task has fewer examples, or a prompt has too many tokens.
    """
    task.check_shots(shots)
    if not isinstance(scorer.model, Decoder):
        architecture = scorer.model.config.architecture
        raise UserError(f"a task in the prompt: expected a decoder, found an {architecture}")
    pairs = [
        [scorer.split(task.prompt(query, shots), choice) for choice in query.choices]
        for query in task.queries
    ]
    by_query = [
        (query, [Score(p, len(c.encode())) for p, c in zip(found, query.choices, strict=True)])
        for query, found in zip(task.queries, _log_probs(scorer, pairs), strict=True)
    ]
    chosen = {
        name: [_best(query, [value(score) for score in scores]) for query, scores in by_query]
        for name, value in NORMALIZATIONS.items()
    }
    right = [query.answer for query in task.queries]
    accuracies = {
        name: sum(map(str.__eq__, answers, right)) / len(right) for name, answers in chosen.items()
    }
    return Outcome(shots, accuracies, chosen["sum"])


_Pairs = Sequence[tuple[Sequence[int], Sequence[int]]]


def _log_probs(scorer: Scorer, pairs: Sequence[_Pairs]) -> Iterator[list[list[float]]]:
    """Of the pairs (context, continuation) of each query; nothing they share is read twice."""
    shared = _shared([context for some in pairs for context, _ in some])
    start = scorer.prefill([pairs[0][0][0][:shared]]) if shared else None
    rests = [[(context[shared:], ids) for context, ids in some] for some in pairs]
    for first in range(0, len(rests), scorer.batch_size):
        batch = rests[first : first + scorer.batch_size]
        own = [_shared([context for context, _ in some]) for some in batch]
        if start is None and not all(own):  # There is nothing to read of a query of one token.
            own, prefix = [0] * len(batch), None
        else:
            rows = [some[0][0][:n] for some, n in zip(batch, own, strict=True)]
            prefix = scorer.prefill(rows, start)
        parents = [row for row, some in enumerate(batch) for _ in some]
        flat = [(c[n:], ids) for some, n in zip(batch, own, strict=True) for c, ids in some]
        names = [f"query {first + row + 1}" for row in parents]
        found = iter(scorer.score_ids(flat, prefix, parents, names))
        yield from ([next(found) for _ in some] for some in batch)


def _shared(contexts: Sequence[Sequence[int]]) -> int:
    """How many tokens contexts begin with alike, if each keeps one of its own: after that one
    the continuation's first is predicted."""
    return max(0, min(common_length(contexts), *(len(context) - 1 for context in contexts)))


def _best(query: Query, values: Sequence[float]) -> str:
    return query.choices[max(range(len(values)), key=values.__getitem__)]


def _task(values: Any) -> Task:
    _require_keys("the task", values, {"queries"}, {
        "description", "template", "separator", "choices", "examples",
    })  # fmt: skip
    for name in ("description", "template", "separator"):
        if not isinstance(values.get(name, ""), str):
            raise UserError(f"{name} = {values[name]!r}: expected a text")
    template = values.get("template", Task.template)
    for name in ("{input}", "{answer}"):
        if template.count(name) != 1:
            raise UserError(f"template = {template!r}: expected {name} once")
    if template.index("{input}") > template.index("{answer}"):
        raise UserError(f"template = {template!r}: expected {{input}} before {{answer}}")
    examples = []
    for i, example in enumerate(_list(values, "examples", []), 1):
        _require_keys(f"example {i}", example, {"input", "answer"})
        examples.append((_text(example, "input", i), _text(example, "answer", i)))
    queries = []
    for i, query in enumerate(_list(values, "queries"), 1):
        _require_keys(f"query {i}", query, {"input", "answer"}, {"choices"})
        choices = query.get("choices", values.get("choices"))
        if not isinstance(choices, list) or len(choices) < 2 or not all(
            isinstance(choice, str) and choice for choice in choices
        ):  # fmt: skip
            raise UserError(f"query {i}: choices = {choices!r}: expected at least 2 texts")
        answer = _text(query, "answer", i)
        if answer not in choices:
            raise UserError(f"query {i}: answer = {answer!r}: expected one of {choices}")
        queries.append(Query(_text(query, "input", i), answer, tuple(choices)))
    if not queries:
        raise UserError("queries = []: expected at least 1")
    optional = {k: values[k] for k in ("description", "template", "separator") if k in values}
    return Task(tuple(queries), tuple(examples), **optional)


def _require_keys(
    where: str, value: Any, needed: set[str], optional: frozenset[str] | set[str] = frozenset()
) -> None:
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected an object, found {json.dumps(value)[:40]}")
    known = sorted({*needed, *optional})
    for name in value:
        if name not in known:
            near = did_you_mean(name, known) or f": expected {', '.join(known)}"
            raise UserError(f"{where}: unknown {name!r}{near}")
    for name in sorted(needed - value.keys()):
        raise UserError(f"{where}: {name} is missing")


def _list(values: dict[str, Any], name: str, default: Any = None) -> list[Any]:
    value = values.get(name, default)
    if not isinstance(value, list):
        raise UserError(f"{name}: expected a list, found {json.dumps(value)[:40]}")
    return value


def _text(values: dict[str, Any], name: str, number: int) -> str:
    if not isinstance(values[name], str):
        raise UserError(f"{name} {number} = {values[name]!r}: expected a text")
    return values[name]
