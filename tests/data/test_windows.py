"""Windows: where tokens stand in a text, which windows there are, where answers are."""

import dataclasses
import unicodedata

import numpy as np
import pytest

from tests.helpers import wordpiece
from transformer.data.byte_tokenizer import Bytes
from transformer.data.questions import Question, Questions
from transformer.data.tokenizer import Encoded, Tokenizer
from transformer.data.windows import WindowBatches, locate, make_windows, window_rows
from transformer.errors import UserError

pytest.importorskip("tokenizers")

WORDS = "the cafe in zurich it opened 19 ##01 . , who where w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 日 本"
TOKENIZER = wordpiece(WORDS)
CLS, SEP = TOKENIZER.special.begin, TOKENIZER.special.end


def quiet(_: str) -> None: ...


def ids(text: str) -> list[int]:
    return TOKENIZER.encode_source(text)


def questions(context: str, *asked: tuple[str, str | None]) -> Questions:
    """Each question with its answer, which stands in the context once."""
    found = [
        Question(str(i), text, 0, ((answer, context.index(answer)),) if answer else (), f"f:{i}")
        for i, (text, answer) in enumerate(asked)
    ]
    return Questions([context], found)


@pytest.fixture
def make(settings):
    def build(whole: Questions, log=quiet, **values):
        sizes = {"max_length": 11, "stride": 2, "question_length": 3, **values}
        config = settings(objective="spans", train=("f.json",), **sizes)
        return make_windows(whole, config, TOKENIZER, "train", log)

    return build


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The CAFÉ", ["The", "CAFÉ"]),
        ("the  café\t\t.", ["the", "café", "."]),
        ("café\r\nIt", ["café", "It"]),
        ("Zürich1901", ["Zürich1901"]),
        ("1901, 日本", ["19", "01", ",", "日", "本"]),
        ("\u200bthe \u00a0 cafe\u0000", ["the", "cafe"]),
        ("😀 the 𝒳 cafe", ["😀", "the", "𝒳", "cafe"]),
    ],
)
def test_tokens_are_found_in_the_text_as_it_was_given(text, expected):
    (tokens,) = locate([text], TOKENIZER)
    assert [text[start:end] for start, end in tokens.offsets] == expected
    assert tokens.ids.tolist() == ids(text)


def test_combining_marks_belong_to_the_character_before_them():
    """The tokenizer drops them, and with them the last accent of an answer was lost."""
    text = unicodedata.normalize("NFD", "le café, cafés Zürich é")
    (tokens,) = locate([text], TOKENIZER)
    found = [text[start:end] for start, end in tokens.offsets]
    composed = [unicodedata.normalize("NFC", part) for part in found]
    assert composed == ["le", "café", ",", "cafés", "Zürich", "é"]
    assert found[1] == "cafe\u0301"


@pytest.mark.parametrize(
    ("tokens", "room", "stride", "expected"),
    [
        (5, 5, 2, [(0, 5, 0, 5)]),
        (1, 5, 2, [(0, 1, 0, 1)]),
        # The published rule, by hand: token 3 has 1 token to its right in the first window and 1
        # to its left in the second: the first wins. Token 4 has 2 to its left in the second.
        (7, 5, 2, [(0, 5, 0, 4), (2, 5, 4, 7)]),
        # The last window is shorter than the one before: token 3 has 1 + 0.05 there, 1 + 0.04
        # here; token 4 has 0 there and 1 here.
        (6, 5, 2, [(0, 5, 0, 4), (2, 4, 4, 6)]),
        # A stride beyond the room would skip tokens.
        (7, 3, 9, [(0, 3, 0, 3), (3, 3, 3, 6), (6, 1, 6, 7)]),
        (4, 1, 1, [(0, 1, 0, 1), (1, 1, 1, 2), (2, 1, 2, 3), (3, 1, 3, 4)]),
    ],
)
def test_windows_and_the_tokens_that_have_most_context_there(tokens, room, stride, expected):
    assert window_rows(tokens, room, stride) == expected


def test_windows_against_the_published_loop():
    """Devlin et al.'s program, section by section: the windows, and the best for each token."""
    for tokens, room, stride in ((23, 7, 3), (29, 11, 2), (13, 5, 5), (31, 8, 13)):
        spans, start = [], 0
        while start < tokens:
            length = min(room, tokens - start)
            spans.append((start, length))
            if start + length == tokens:
                break
            start += min(length, stride)
        found = window_rows(tokens, room, stride)
        assert [(first, length) for first, length, _, _ in found] == spans
        for place in range(tokens):
            scores = [
                min(place - a, a + n - 1 - place) + 0.01 * n if a <= place < a + n else -1
                for a, n in spans
            ]
            best = [low <= place < high for _, _, low, high in found]
            assert best.count(True) == 1 and best.index(True) == scores.index(max(scores))


def test_a_row_is_the_question_and_a_part_of_the_context(make):
    context = "w0 w1 w2 w3 w4 w5 w6"
    split = make(questions(context, ("who", "w4 w5"), ("where in the cafe", "w0")))
    batches = WindowBatches(split, TOKENIZER, 11, batch_tokens=99, num_buckets=1, shuffle=False)
    batch = batches.batch(0)
    # "who" leaves 11 - 4 = 7 tokens, all; a question of three (one is cut off) leaves 5.
    assert batches.steps_per_epoch == 1 and batch["ids"].tolist()[:3] == [0, 1, 2]
    question = ids("where in the")
    rows = [
        [CLS, *ids("who"), SEP, *ids(context), SEP],
        [CLS, *question, SEP, *ids("w0 w1 w2 w3 w4"), SEP],
        [CLS, *question, SEP, *ids("w2 w3 w4 w5 w6"), SEP],
    ]
    assert batch["inputs"][:3].tolist() == rows
    assert batch["token_types"][:3].tolist() == [
        [0] * 3 + [1] * 8,
        [0] * 5 + [1] * 6,
        [0] * 5 + [1] * 6,
    ]
    assert batch["starts"][:3].tolist() == [7, 5, 0], "the third has no answer: [CLS]"
    assert batch["ends"][:3].tolist() == [8, 5, 0]
    assert set(batch["starts"][3:].tolist()) <= {-1} and not batch["inputs"][3:].any()
    assert batches.example(2) == "where in the cafe"
    assert "2 questions in 3 windows (67% with the answer), 1 steps an epoch" in batches.summary


def test_answers_at_the_edges_of_windows(make):
    """One that a window cuts is not in it; every token of a word counts to an answer in it."""
    context = "w0 w1 w2 w3 w4 w5 w6 1901 w8"
    split = make(
        questions(context, ("who who who", "w4 w5"), ("who who who", "w0"), ("who who who", "90"))
    )
    rows = split.windows
    # Rooms of 5 tokens, 2 apart; 1901 is two tokens, 7 and 8, of which "90" touches both.
    assert rows.first[rows.question == 0].tolist() == [0, 2, 4, 5 + 1]
    places = np.stack([rows.starts, rows.ends], axis=1) - 5
    assert places[rows.question == 0].tolist() == [[-5, -5], [2, 3], [0, 1], [-5, -5]]
    assert places[rows.question == 1].tolist() == [[0, 0], [-5, -5], [-5, -5], [-5, -5]]
    assert places[rows.question == 2].tolist() == [[-5, -5], [-5, -5], [3, 4], [1, 2]]
    assert split.labelled


def test_texts_come_back_by_characters(make):
    context = "The  CAFÉ,\r\nin  Zürich ."
    split = make(questions(context, ("who", "CAFÉ"), ("where", None)))
    assert split.text(0, 0, 2) == "The  CAFÉ," and split.text(1, 1, 3) == "CAFÉ,\r\nin"
    assert split.start(0, 1) == 5
    assert not make(questions(context, ("who", None))).labelled


class Spaced(Tokenizer):
    """As byte-level BPE: a word's token begins with the space before it."""

    kind, vocab_size = "spaced", 99  # type: ignore[assignment]

    def encode_with_offsets(self, texts):
        return [Encoded([7, 8], [(0, 3), (3, 8)]) for _ in texts]

    def _state(self):
        return {}

    encode_sources = encode_targets = _join = _piece = None  # type: ignore[assignment]


def test_a_space_before_a_word_is_no_part_of_an_answer(settings):
    whole = questions("the cafe", ("the cafe", "cafe"))
    config = settings(objective="spans", train=("f.json",), max_length=20, question_length=3)
    split = make_windows(whole, config, Spaced(), "train", quiet)
    assert split.windows.starts.tolist() == split.windows.ends.tolist() == [5]
    assert (split.text(0, 1, 1), split.start(0, 1)) == ("cafe", 4)


def test_what_is_cut_or_lost_is_counted(make):
    lines: list[str] = []
    context = "w0 w1 w2 w3 w4 w5 w6 w7"
    split = make(questions(context, ("who who who who", context)), lines.append)
    assert lines == [
        "train: 3 windows of at most 11 tokens; 1 questions cut to data.question_length = 3 "
        "tokens; 1 answers longer than a window, taken for none"
    ]
    assert not split.windows.starts.any()


def test_a_text_without_tokens_is_named(make):
    with pytest.raises(UserError, match="f:0: the context has no token"):
        make(questions("\u0000", ("who", None)))
    with pytest.raises(UserError, match=r"f:0: the answer '\\x00' at character 3 has no token"):
        make(questions("the\u0000", ("who", "\u0000")))
    assert len(make(questions("the", ("\u0000", "the"))).asked[0]) == 0


def test_a_tokenizer_without_offsets_is_refused(settings):
    config = settings(objective="spans", train=("f.json",), max_length=80)
    with pytest.raises(UserError, match="a tokenizer of kind 'bytes' does not say where"):
        make_windows(questions("a", ("b", None)), config, Bytes(), "", quiet)


def test_every_window_occurs_once_and_again_alike(make):
    context = " ".join(f"w{i % 10}" for i in range(40))
    whole = questions(context, *[(" ".join(["who"] * (i % 4 + 1)), None) for i in range(7)])
    split = make(whole, max_length=13)
    settings = {"batch_tokens": 65, "num_buckets": 3}
    held_out = WindowBatches(split, TOKENIZER, 13, **settings, shuffle=False)
    seen = [held_out.batch(i)["ids"] for i in range(held_out.steps_per_epoch)]
    found = np.concatenate(seen)
    assert sorted(found[found >= 0]) == list(range(len(split.windows.first)))
    one, two = (WindowBatches(split, TOKENIZER, 13, **settings, seed=5) for _ in range(2))
    step = one.steps_per_epoch + 1
    for name, array in one.batch(step).items():
        np.testing.assert_array_equal(array, two.batch(step)[name])


def test_the_fingerprint_follows_what_is_trained_on(make):
    whole = questions("w0 w1 w2 w3", ("who", "w1"))
    other = questions("w0 w1 w2 w3", ("who", "w2"))
    prints = [
        make(whole).fingerprint,
        make(other).fingerprint,
        make(whole, max_length=8).fingerprint,
        make(dataclasses.replace(whole, contexts=["w0 w1 w2 w4"])).fingerprint,
    ]
    assert len(set(prints)) == 4 and prints[0] == make(whole).fingerprint
