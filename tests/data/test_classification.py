"""Labelled texts: how files are read, how sequences are put together, what a batch holds."""

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data.classification import (
    ClassBatches,
    ClassSplit,
    Composer,
    Labelled,
    class_names,
    label_numbers,
    read_labelled,
    tokenise_labelled,
    with_delimiters,
)
from transformer.data.tokenizer import train_tokenizer
from transformer.errors import UserError

SST = ("text", "label")
COLA = ("-", "label", "-", "text")
RTE = ("-", "text", "text2", "label")


def quiet(_: str) -> None: ...


def test_cola_has_no_header_and_columns_that_are_not_read(write):
    path = write("cola.tsv", "gj04\t1\t\tIt fits.\ngj04\t0\t*\tIt fit.  \n")
    found = read_labelled([path], COLA, False, "data.train", quiet)
    assert found.texts == ["It fits.", "It fit."] and found.labels == ["1", "0"]
    assert not found.paired and found.seconds == ["", ""]


def test_sst_has_a_header_and_a_space_at_the_end_of_texts(write):
    path = write("sst.tsv", "\ufeffsentence\tlabel\r\na 'good' \"one \t1\r\nbad \t0\r\n")
    lines = []
    found = read_labelled([path], SST, True, "data.train", lines.append)
    assert found.texts == ["a 'good' \"one", "bad"] and found.labels == ["1", "0"]
    assert found.places == [f"{path}:2", f"{path}:3"]
    assert lines == ["train: 2 examples"]


def test_pairs_and_several_files(write):
    paths = [write(n, f"i\ta\tb\tl\n0\tone {n}\ttwo\tyes\n") for n in ("x.tsv", "y.tsv")]
    found = read_labelled(paths, RTE, True, "data.test", quiet)
    assert found.paired and found.texts == ["one x.tsv", "one y.tsv"]
    assert found.seconds == ["two", "two"]


def test_blank_texts_are_left_out_and_counted(write):
    path = write("a.tsv", "good\t1\n \t0\n\nbad\t0\n")
    lines = []
    found = read_labelled([path], SST, False, "data.train", lines.append)
    assert found.texts == ["good", "bad"]
    assert lines == ["train: 2 examples (2 with a blank text left out)"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("text only", r":3: 1 column; expected 2 \(text TAB label, see data.columns\)"),
        ("a\tb\tc", ":3: 3 columns; expected 2"),
        ("a\t ", ":3: no label"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(write, row, message):
    path = write("a.tsv", f"sentence\tlabel\nfine\t1\n{row}\n")
    with pytest.raises(UserError, match=f"a.tsv{message}"):
        read_labelled([path], SST, True, "data.train", quiet)


def test_a_file_without_examples(write):
    with pytest.raises(UserError, match=r"data.train: no examples in .*a.tsv"):
        read_labelled([write("a.tsv", "sentence\tlabel\n")], SST, True, "data.train", quiet)


def labelled(*labels: str) -> Labelled:
    count = len(labels)
    places = [f"f.tsv:{i + 1}" for i in range(count)]
    return Labelled(["t"] * count, [""] * count, list(labels), places, False)


def test_classes_are_the_training_labels_sorted_or_those_given():
    assert class_names((), labelled("b", "a", "b")) == ("a", "b")
    assert class_names(("b", "a"), labelled("b", "a", "b")) == ("b", "a")
    assert label_numbers(labelled("b", "a", "b"), ("b", "a")).tolist() == [0, 1, 0]


def test_a_class_without_examples_is_an_error():
    with pytest.raises(UserError, match=r"'c' has no example in the training split; .*found a, b"):
        class_names(("a", "b", "c"), labelled("a", "b"))
    with pytest.raises(UserError, match="found only a; expected two or more"):
        class_names((), labelled("a", "a"))


def test_an_unknown_label_is_named_by_file_and_line():
    with pytest.raises(UserError, match=r"f.tsv:2: label 'x': expected one of a, b"):
        label_numbers(labelled("a", "x"), ("a", "b"))


@pytest.fixture
def tokenizer():
    config = DataConfig(target_symbols="characters")
    return with_delimiters(train_tokenizer(config, ["abcdefgh"], ["abcdefgh"]))


def composed(tokenizer, paired: bool, limit: int, first: str, second: str = "") -> str:
    composer = Composer(tokenizer, paired, limit)
    a, b = (np.array(tokenizer.encode_target(text), np.int32) for text in (first, second))
    sequence = composer.compose(a, b)
    total = composer.total(np.array([len(a)]), np.array([len(b)]))
    assert sequence.dtype == np.int32 and len(sequence) == total[0] <= limit
    names = {"<start>": "^", "<delimiter>": "|", "<end>": "$"}
    return "".join(names.get(piece) or piece for piece in tokenizer.pieces(sequence))


def test_sequences_have_start_delimiter_and_end(tokenizer):
    assert composed(tokenizer, False, 99, "abc") == "^abc$"
    assert composed(tokenizer, True, 99, "abc", "de") == "^abc|de$"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("abcdef", "gh", "^abcd|gh$"),
        ("ab", "cdefgh", "^ab|cdef$"),
        ("abcde", "abcde", "^abc|abc$"),
        ("abcd", "ef", "^abcd|ef$"),
    ],
)
def test_the_longer_text_of_a_pair_is_cut_first(tokenizer, first, second, expected):
    assert composed(tokenizer, True, 9, first, second) == expected


def test_a_long_text_is_cut(tokenizer):
    assert composed(tokenizer, False, 5, "abcdef") == "^abc$"


TEXTS = [("abcdefgh" * 2)[: 1 + i % 11] for i in range(43)]


@pytest.fixture
def split(tokenizer, settings) -> ClassSplit:
    labels = ["xyz"[i % 3] for i in range(len(TEXTS))]
    places = [f"f.tsv:{i + 1}" for i in range(len(TEXTS))]
    examples = Labelled(TEXTS, [""] * len(TEXTS), labels, places, False)
    return tokenise_labelled(examples, ("x", "y", "z"), settings(), tokenizer, "train", quiet)


def batches_of(split: ClassSplit, tokenizer, **values) -> ClassBatches:
    return ClassBatches(split, tokenizer, 10, **{"batch_tokens": 64, "num_buckets": 3, **values})


def test_examples_that_are_cut_are_counted(tokenizer, settings):
    examples = Labelled(
        ["abcdef", "ab", "abc"], ["a", "abcdefg", "ab"], list("xyx"), ["p"] * 3, True
    )
    lines = []
    arguments = examples, ("x", "y"), settings(max_length=8), tokenizer, "test", lines.append
    split = tokenise_labelled(*arguments)
    assert lines == ["test: 2 of 3 cut to data.max_length = 8 tokens"]
    assert split.labels.tolist() == [0, 1, 0] and split.texts[1] == "ab\tabcdefg"
    assert len(split.tokens[0]) == 6 + 2 + 3 + 3


def test_the_fingerprint_changes_with_labels_and_limit(split, tokenizer, settings):
    examples = Labelled(TEXTS, [""] * len(TEXTS), ["x"] * len(TEXTS), ["p"] * len(TEXTS), False)
    names = "x", "y", "z"
    prints = {
        tokenise_labelled(examples, names, settings(max_length=n), tokenizer, "", quiet).fingerprint
        for n in (20, 21)
    }
    assert len(prints | {split.fingerprint}) == 3


def test_batches_hold_each_example_once_with_its_label_and_end(split, tokenizer):
    batches = batches_of(split, tokenizer, seed=1, shuffle=True, group=2)
    seen = []
    for step in range(batches.steps_per_epoch, 2 * batches.steps_per_epoch):
        batch = batches.batch(step)
        for row, i in enumerate(batch["ids"]):
            inputs, weights = batch["inputs"][row], batch["weights"][row]
            if i < 0:
                assert batch["labels"][row] == -1 and not weights.any() and not inputs.any()
                continue
            seen.append(int(i))
            end = batch["ends"][row]
            assert batch["labels"][row] == i % 3
            expected = [tokenizer.id_of("<start>"), *tokenizer.encode_target(TEXTS[i][:8])]
            assert inputs[: end + 1].tolist() == [*expected, tokenizer.id_of("<end>")]
            assert not inputs[end + 1 :].any()
            assert batch["targets"][row][:end].tolist() == inputs[1 : end + 1].tolist()
            np.testing.assert_allclose(weights, np.where(np.arange(len(weights)) < end, 1 / end, 0))
    assert sorted(seen) == list(range(len(TEXTS)))


def test_batches_are_a_function_of_the_step(split, tokenizer):
    one, two = (batches_of(split, tokenizer, seed=5) for _ in range(2))
    two.batch(0)
    for name, array in one.batch(7).items():
        assert np.array_equal(array, two.batch(7)[name]), name


def test_the_summary_counts_the_classes(split, tokenizer):
    summary = batches_of(split, tokenizer).summary
    assert summary.startswith("43 examples (x 15, y 14, z 14) in ")
    assert batches_of(split, tokenizer).example(2) == TEXTS[2]
