"""Tasks shown to a language model in its prompt."""

import json
import re

import numpy as np
import pytest

from tests.decoding import tiny
from tests.decoding.tiny_decoder import MODEL, TOKENIZER, log_probs, parameters
from transformer.decoding import prompting
from transformer.decoding.prompting import evaluate, load_task
from transformer.decoding.scoring import Scorer
from transformer.errors import UserError

VALUES = {
    "description": "abc",
    "template": "d{input}e{answer}f",
    "separator": "g",
    "choices": ["ab", "c"],
    "examples": [{"input": "a", "answer": "b"}, {"input": "{answer}", "answer": "{input}"}],
    "queries": [
        {"input": "ag", "answer": "c"},
        {"input": "b", "answer": "ab"},
        {"input": "cc", "answer": "c"},
        {"input": "ad", "answer": "gg", "choices": ["g", "gg", "a"]},
        {"input": "f", "answer": "c"},
    ],
}


def write(path, values) -> str:
    path.write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")
    return str(path)


@pytest.fixture
def task(tmp_path):
    return load_task(write(tmp_path / "task.json", VALUES))


def test_prompts_show_the_description_and_the_first_examples(task):
    query = task.queries[0]
    assert task.prompt(query, 0) == "abcgdage"
    assert task.prompt(query, 1) == "abcgdaebfgdage"
    # What looks like a place to fill in is text.
    assert task.prompt(query, 2) == "abcgdaebfgd{answer}e{input}fgdage"


def test_a_task_without_much_to_say(tmp_path):
    values = {"queries": [{"input": "1 + 1", "answer": "2", "choices": ["1", "2"]}]}
    task = load_task(write(tmp_path / "task.json", values))
    assert task.prompt(task.queries[0], 0) == "1 + 1\n"
    assert (task.majority, task.chance) == (1, 0.5)


def test_baselines(task):
    assert task.majority == 3 / 5
    assert task.chance == pytest.approx((4 * 1 / 2 + 1 / 3) / 5)


@pytest.mark.parametrize("shots", [0, 1])
def test_the_most_probable_choice_is_taken(task, shots):
    """By brute force: each choice after the whole prompt, without anything kept."""
    chosen = {"sum": [], "per token": [], "per byte": []}
    for query in task.queries:
        context = TOKENIZER.encode_target(task.prompt(query, shots))
        totals = []
        for choice in query.choices:
            ids = TOKENIZER.encode_target(choice)
            totals.append(
                sum(log_probs([*context, *ids[:i]])[token] for i, token in enumerate(ids))
            )
        means = [total / len(c) for total, c in zip(totals, query.choices, strict=True)]
        for name, values in (("sum", totals), ("per token", means), ("per byte", means)):
            chosen[name].append(query.choices[int(np.argmax(values))])
    found = evaluate(Scorer(MODEL, parameters(), TOKENIZER), task, shots)
    answers = [query.answer for query in task.queries]
    assert found.shots == shots
    assert found.answers == chosen["sum"]
    assert found.accuracies == {
        name: np.mean([a == b for a, b in zip(given, answers, strict=True)])
        for name, given in chosen.items()
    }


def test_nothing_that_prompts_share_is_read_twice(task, monkeypatch):
    """The description and the examples once, each query once, and of a choice its own tokens."""
    scorer = Scorer(MODEL, parameters(), TOKENIZER, batch_size=2)
    read, scored = [], []
    prefill, score_ids = scorer.prefill, scorer.score_ids

    def note_read(rows, prefix=None):
        read.append([TOKENIZER.decode_target(row) for row in rows])
        return prefill(rows, prefix)

    def note_scored(pairs, prefix, parents, names):
        contexts = [TOKENIZER.decode_target(context) for context, _ in pairs]
        scored.extend(zip(contexts, parents, strict=True))
        return score_ids(pairs, prefix, parents, names)

    monkeypatch.setattr(scorer, "prefill", note_read)
    monkeypatch.setattr(scorer, "score_ids", note_scored)
    evaluate(scorer, task, 1)
    assert read == [["abcgdaebfgd"], ["ag", "b"], ["cc", "ad"], ["f"]]
    parents = [0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0]
    assert scored == [("e", parent) for parent in parents]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "expected JSON ("),
        ("[]", "the task: expected an object, found []"),
        ({"queries": None}, "queries: expected a list, found null"),
        ({"queries": []}, "queries = []: expected at least 1"),
        ({"exmples": []}, "the task: unknown 'exmples'; did you mean examples?"),
        ({"template": "{input}"}, "template = '{input}': expected {answer} once"),
        ({"template": "{answer}{input}"}, "expected {input} before {answer}"),
        ({"description": 3}, "description = 3: expected a text"),
        ('{"queries": "\\ud800"}', "the task: U+D800 at position 13 is no character; expected"),
        ({"examples": [{"input": "a"}]}, "example 1: answer is missing"),
        ({"examples": [{"input": "a", "answer": 3}]}, "answer 1 = 3: expected a text"),
        ({"choices": ["a"]}, "query 1: choices = ['a']: expected at least 2 texts"),
        ({"choices": ["a", ""]}, "query 1: choices = ['a', '']: expected at least 2 texts"),
        ({"choices": ["a", "b"]}, "query 1: answer = 'c': expected one of ['a', 'b']"),
    ],
    ids=str,
)
def test_a_wrong_task_is_named(tmp_path, change, message):
    path = write(
        tmp_path / "task.json", change if isinstance(change, str) else {**VALUES, **change}
    )
    with pytest.raises(UserError, match=f"^{re.escape(path)}: .*{re.escape(message)}") as caught:
        load_task(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_suggests_the_nearest(tmp_path):
    write(tmp_path / "task.json", VALUES)
    with pytest.raises(UserError, match=r"tsak\.json: No such file.*did you mean .*task\.json"):
        load_task(tmp_path / "tsak.json")


def test_more_shots_than_examples_and_a_model_that_cannot(task):
    with pytest.raises(UserError, match=r"^shots = 3: expected 0 to 2, the task's examples"):
        evaluate(Scorer(MODEL, parameters(), TOKENIZER), task, 3)
    with pytest.raises(UserError, match="expected a decoder, found an encoder_decoder"):
        evaluate(Scorer(tiny.MODEL, tiny.parameters(), tiny.TOKENIZER), task, 0)
    assert set(prompting.NORMALIZATIONS) == {"sum", "per token", "per byte"}
