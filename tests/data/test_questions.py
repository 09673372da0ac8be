"""SQuAD's format: what is read, what is refused and how, what is held out."""

import gzip
import json
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds

from transformer.data.questions import Question, Questions, divide, read_questions
from transformer.errors import UserError

CONTEXT = "The café, in Zürich.\r\nIt  opened in 1901."


def quiet(_: str) -> None: ...


def squad(*paragraphs: dict[str, Any], version: str = "1.1") -> str:
    """One article a paragraph."""
    return json.dumps({"version": version, "data": [{"paragraphs": [p]} for p in paragraphs]})


def asked(name: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    pairs = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": f"what is {name}?", "answers": pairs, **more}


@pytest.fixture
def read(write, settings):
    """The questions of a training file with this content."""

    def read_text(content: str | bytes, **values: Any) -> dict[str, Questions]:
        values = {"validation_fraction": 0.0, **values}
        path = write("train.json", content)
        config = settings(objective="spans", train=(path,), max_length=80, **values)
        return read_questions(config, ("train", "validation"), values.get("log", quiet))  # type: ignore[return-value]

    return read_text


def test_both_versions_are_read_in_order(write, settings):
    one = squad({"context": CONTEXT, "qas": [asked("b", ("1901", 36)), asked("a", ("café", 4))]})
    two = squad(
        {"context": CONTEXT, "qas": [asked("c", is_impossible=True)]},
        {"context": "x", "qas": [asked("d", ("x", 0), ("x", 0), is_impossible=False)]},
        version="v2.0",
    )
    paths = write("one.json", one), write("two.json.gz", gzip.compress(two.encode()))
    lines: list[str] = []
    config = settings(objective="spans", train=paths, max_length=80, validation_fraction=0.0)
    found = read_questions(config, ("train", "validation"), lines.append)
    assert found.keys() == {"train"}
    assert found["train"].contexts == [CONTEXT, "x"], "a context is kept once"
    assert found["train"].questions == [
        Question("b", "what is b?", 0, (("1901", 36),), f"{paths[0]}: question 'b'"),
        Question("a", "what is a?", 0, (("café", 4),), f"{paths[0]}: question 'a'"),
        Question("c", "what is c?", 0, (), f"{paths[1]}: question 'c'"),
        Question("d", "what is d?", 1, (("x", 0), ("x", 0)), f"{paths[1]}: question 'd'"),
    ]
    assert lines == ["train: 4 questions (1 without an answer) on 2 contexts"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            asked("q", ("1901", 35)),
            "question 'q', answers[0]: '1901' at character 35: the context has ' 190' there (it "
            "stands at 36)",
        ),
        (
            asked("q", ("café", 4), ("1899", 36)),
            "question 'q', answers[1]: '1899' at character 36: the context has '1901' there",
        ),
        (asked("q", (".", 41)), "answers[0]: '.' at character 41: the context has '' there (it"),
        (asked("q", ("The", -42)), "answers[0]: 'The' at character -42: the context has '' there"),
        (asked("q", ("  ", 24)), "answers[0]: '  ' at character 24"),
        (asked("q", is_impossible=False), "question 'q': no answers; expected one, or is_imposs"),
        (
            asked("q", ("café", 4), is_impossible=True),
            "question 'q': is_impossible with 1 answers; expected none",
        ),
        ({"id": "q", "answers": []}, "question 'q': expected 'question', a text"),
        ({"id": "q", "question": "?"}, "question 'q': expected 'answers', a list"),
        ({"id": 7, "question": "?"}, "data[0].paragraphs[0].qas[0]: expected 'id', a text"),
        (asked("q", ("café", "4")), "question 'q', answers[0]: expected 'answer_start', a whole"),  # type: ignore[arg-type]
        (asked("q", ("café", 4)) | {"question": " "}, "question 'q': expected a question and a"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_question(read, tmp_path, question, message):
    with pytest.raises(UserError) as error:
        read(squad({"context": CONTEXT, "qas": [question]}))
    assert str(error.value).startswith(f"{tmp_path / 'train.json'}: ")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "train.json: expected JSON in SQuAD's format (Expecting value: line 1 column 2"),
        ("[]", "train.json: expected 'data', a list (SQuAD's format)"),
        ('{"data": []}', "no questions"),
        ('{"data": [{}]}', "train.json: data[0]: expected 'paragraphs', a list"),
        (squad({"context": " ", "qas": [asked("q")]}), "question 'q': expected a question and a"),
        (squad({"qas": []}), "data[0].paragraphs[0]: expected 'context', a text"),
        (squad({"context": "a\ud800", "qas": [asked("q")]}), "U+D800 at position 1 is no char"),
        (
            squad({"context": "x", "qas": [asked("q"), asked("q")]}),
            "question 'q': expected every id once, found it at",
        ),
    ],
)
def test_what_is_no_squad(read, content, message):
    with pytest.raises(UserError) as error:
        read(content)
    assert message in str(error.value)


def test_whole_contexts_are_held_out_with_their_questions(read):
    """A context in both parts would let a model learn what it is then asked about."""
    paragraphs = [
        {"context": letter * 10, "qas": [asked(f"{letter}{i}", (letter, i)) for i in range(3)]}
        for letter in "abcde"
    ]
    found = read(squad(*paragraphs), validation_fraction=0.3)
    train, validation = found["train"], found["validation"]
    assert [c[0] for c in train.contexts] == ["a", "b", "c", "d"]
    assert [(q.name, q.context) for q in validation.questions] == [("e0", 0), ("e1", 0), ("e2", 0)]
    assert len(train) + len(validation) == 15
    assert {q.name[0] for q in train.questions} == set("abcd")
    again, nothing = divide(train, 0)
    assert again is train and nothing is None


class TinySquad(tfds.core.GeneratorBasedBuilder):
    """With the features of tfds:squad/v2.0."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        texts = {name: tfds.features.Text() for name in ("title", "context", "question")}
        answers = {"text": tfds.features.Text(), "answer_start": np.int32}
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "id": np.str_,
                    **texts,
                    "answers": tfds.features.Sequence(answers),
                    "is_impossible": np.bool_,
                }
            ),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(), "validation": self._generate_examples()}

    def _generate_examples(self):
        for name, answers in (("a", [("café", 4), ("The café", 0)]), ("b", [])):
            yield (
                name,
                {
                    "id": name,
                    "title": "",
                    "context": CONTEXT,
                    "question": f"what is {name}?",
                    "answers": {
                        "text": [text for text, _ in answers],
                        "answer_start": [start for _, start in answers],
                    },
                    "is_impossible": not answers,
                },
            )


class TinyOther(TinySquad):
    """Without questions."""

    def _info(self) -> tfds.core.DatasetInfo:
        features = tfds.features.FeaturesDict({"text": tfds.features.Text()})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _generate_examples(self):
        yield 0, {"text": "a"}


def test_a_tfds_set_of_questions(settings):
    config = settings(objective="spans", dataset="tfds:tiny_squad")
    found = read_questions(config, ("train", "validation", "test"), quiet)
    assert found.keys() == {"train", "validation"}
    questions = {q.name: q for q in found["validation"].questions}
    assert found["validation"].contexts == [CONTEXT]
    assert questions["a"].answers == (("café", 4), ("The café", 0))
    assert questions["b"].answers == () and questions["b"].text == "what is b?"
    assert "tfds:tiny_squad', validation[" in questions["a"].place


def test_a_tfds_set_without_questions(settings):
    config = settings(objective="spans", dataset="tfds:tiny_other")
    with pytest.raises(UserError, match="expected the features id, context, question, answers"):
        read_questions(config, ("train",), quiet)
