"""Prompts with endings: the published forms, what is refused, what a batch holds."""

import numpy as np
import pytest

from tests.helpers import wordpiece
from transformer.data.choices import (
    ChoiceBatches,
    Choices,
    numbered,
    read_choices,
    tokenise_choices,
)
from transformer.errors import UserError

pytest.importorskip("tokenizers")

TOKENIZER = wordpiece("i am we are hungry in bed asleep blue red green . he she")
CLS, SEP = TOKENIZER.special.begin, TOKENIZER.special.end

CODAH = ("-", "text", "choice", "choice", "choice", "label")
SWAG = ("text=sent1", "text2=sent2", "choice=ending0", "choice=ending1", "label=label")


def quiet(_: str) -> None: ...


@pytest.fixture
def read(write, settings):
    def read_text(name: str, content: str, columns: tuple[str, ...], log=quiet, **values):
        path = write(name, content)
        values = {"train": (path,), "validation_fraction": 0.0, **values}
        config = settings(objective="multiple_choice", columns=columns, **values)
        return read_choices(config, ("train", "validation", "test"), log)

    return read_text


def test_codah_is_tab_separated_without_a_header(read):
    """Quotes are text there."""
    content = 'o\tI am\thungry .\tin "bed"\tblue\t2\n\ni\tWe are\tred\tgreen\tasleep\t0\n'
    lines: list[str] = []
    found = read("full_data.tsv", content, CODAH, lines.append)
    assert found["train"] == Choices(
        ["I am", "We are"],
        [("hungry .", 'in "bed"', "blue"), ("red", "green", "asleep")],
        [2, 0],
    )
    assert lines == ["train: 1 blank lines left out", "train: 2 examples of 3 choices"]


def test_swag_is_comma_separated_with_names(read):
    """Each ending goes on from the beginning of the second sentence, which is a column."""
    content = (
        ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,label\n"
        '0,v1,7,"I am. He","I am.",He,gold,"is, ""red"".",sleeps,1\n'
        "1,v2,8,We are. ,We are.,,gen,Blue,Green,0\n"
    )
    found = read("train.csv", content, SWAG)
    assert found["train"] == Choices(
        ["I am.", "We are."], [('He is, "red".', "He sleeps"), ("Blue", "Green")], [1, 0]
    )


def test_jsonl(read):
    rows = '{"p": "I am", "a": "red", "b": "blue", "gold": 1}\n'
    columns = ("text=p", "choice=a", "choice=b", "label=gold")
    found = read("train.jsonl", rows, columns)
    assert found["train"] == Choices(["I am"], [("red", "blue")], [1])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("o\tI am\ta\tb\tc", ":2: 5 columns; expected 6 (- TAB text TAB choice1 TAB choice2 TAB"),
        ("o\tI am\ta\tb\tc\td\t1", ":2: 7 columns; expected 6"),
        ("o\tI am\ta\t \tc\t1", ":2: nothing in column choice2; expected a text"),
        ("o\t\ta\tb\tc\t1", ":2: nothing in column text; expected a text"),
        ("o\tI am\ta\tb\tc\t3", ":2: label '3': expected the number of the right choice, 0 to 2"),
        ("o\tI am\ta\tb\tc\t-1", ":2: label '-1': expected the number of the right choice"),
        ("o\tI am\ta\tb\tc\t", ":2: label '': expected the number of the right choice, 0 to 2"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(read, tmp_path, line, message):
    with pytest.raises(UserError) as error:
        read("a.tsv", f"o\tI am\ta\tb\tc\t0\n{line}\n", CODAH)
    assert str(error.value).startswith(f"{tmp_path / 'a.tsv'}{message}")


def test_the_last_rows_are_held_out(read):
    content = "".join(f"o\tprompt {i}\ta\tb\tc\t{i % 3}\n" for i in range(10))
    found = read("a.tsv", content, CODAH, validation_fraction=0.2)
    assert found["train"].labels == [0, 1, 2, 0, 1, 2, 0, 1]
    assert found["validation"].prompts == ["prompt 8", "prompt 9"]
    with pytest.raises(UserError, match=r"fraction = 0\.05: leaves no row for validation, of 10"):
        read("a.tsv", content, CODAH, validation_fraction=0.05, log=quiet)


def test_a_test_file_may_lack_the_labels(read, write):
    test = write("test.csv", "sent1,sent2,ending0,ending1\nI am.,He,red,blue\n")
    whole = "sent1,sent2,ending0,ending1,label\nI am.,He,red,blue,1\n"
    lines: list[str] = []
    found = read("train.csv", whole, SWAG, lines.append, test=(test,))
    assert found["test"].labels == [-1] and found["train"].labels == [1]
    assert "test: 1 examples of 2 choices without labels" in lines
    with pytest.raises(UserError, match=r"train\.csv:1: no column 'label' in the header"):
        read("train.csv", whole.replace(",label", "").replace(",1", ""), SWAG)


def test_files_without_examples_or_with_labels_in_part(read, write):
    with pytest.raises(UserError, match=r"data.train: no examples in .*a.tsv"):
        read("a.tsv", "\n", CODAH)
    other = write("other.csv", "sent1,sent2,ending0,ending1\nI am.,He,red,blue\n")
    whole = "sent1,sent2,ending0,ending1,label\nI am.,He,red,blue,1\n"
    tests = (other, write("whole.csv", whole))
    with pytest.raises(UserError, match=r"data\.test: some of .* have labels, others have none"):
        read("train.csv", whole, SWAG, test=tests)


def test_choices_are_numbered():
    assert numbered(("text", "choice", "-", "choice")) == ["text", "choice1", "-", "choice2"]
    assert numbered(("choice=a", "text=b", "choice=c")) == ["choice1=a", "text=b", "choice2=c"]


EXAMPLES = Choices(
    ["I am", "We are hungry", "He"],
    [("red .", "in bed"), ("asleep", "blue green red"), ("she", "he")],
    [1, 0, 1],
)


@pytest.fixture
def split(settings):
    config = settings(objective="multiple_choice", columns=SWAG, train=("a",), max_length=9)
    return tokenise_choices(EXAMPLES, config, TOKENIZER, "train", quiet)


def test_a_batch_has_a_row_for_each_choice(split):
    batches = ChoiceBatches(
        split, TOKENIZER, 9, batch_tokens=90, num_buckets=1, shuffle=False, batch_size=5
    )
    batch = batches.batch(0)
    assert batch["inputs"].shape == batch["token_types"].shape == (5, 2, 9)
    assert batch["ids"].tolist() == [0, 1, 2, -1, -1]
    assert batch["labels"].tolist() == [1, 0, 1, -1, -1]
    prompt, one, two = (TOKENIZER.encode_source(text) for text in ("I am", "red .", "in bed"))
    for choice, ending in enumerate((one, two)):
        row = [CLS, *prompt, SEP, *ending, SEP]
        assert batch["inputs"][0, choice].tolist() == [*row, 0, 0]
        assert batch["token_types"][0, choice].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0]
    assert not batch["inputs"][3:].any()
    # 45 tokens in 3 rows of 9, of all choices of 5 rows: half of them.
    assert "3 examples of 2 choices (right: 1, 2) in 1 steps an epoch" in batches.summary
    assert batches.example(2) == "He"


def test_batches_hold_as_many_tokens_as_they_may(split):
    batches = ChoiceBatches(split, TOKENIZER, 9, batch_tokens=36, num_buckets=1, shuffle=False)
    shapes = [batches.batch(i)["inputs"].shape for i in range(batches.steps_per_epoch)]
    assert shapes == [(2, 2, 9), (2, 2, 9)]
    found = np.concatenate([batches.batch(i)["ids"] for i in range(batches.steps_per_epoch)])
    assert sorted(found[found >= 0]) == [0, 1, 2]


def test_long_ones_are_cut_and_counted(settings):
    lines: list[str] = []
    config = settings(objective="multiple_choice", columns=SWAG, train=("a",), max_length=7)
    split = tokenise_choices(EXAMPLES, config, TOKENIZER, "train", lines.append)
    assert lines == ["train: 1 of 6 prompts with an ending cut to data.max_length = 7 tokens"]
    batch = ChoiceBatches(split, TOKENIZER, 7, batch_tokens=99, num_buckets=1, shuffle=False)
    cut = [
        CLS,
        *TOKENIZER.encode_source("We are"),
        SEP,
        *TOKENIZER.encode_source("blue green"),
        SEP,
    ]
    assert batch.batch(0)["inputs"][1, 1].tolist() == cut
    other = settings(objective="multiple_choice", columns=SWAG, train=("a",), max_length=9)
    assert tokenise_choices(EXAMPLES, other, TOKENIZER, "", quiet).fingerprint != split.fingerprint
