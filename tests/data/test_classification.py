"""Labelled texts as batches: of classes and of numbers, for decoders and encoders."""

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data.classification import ClassBatches, ClassSplit, tokenise_labelled
from transformer.data.composing import with_delimiters
from transformer.data.labelled import Labelled
from transformer.data.tokenizer import Tokenizer, train_tokenizer


def quiet(_: str) -> None: ...


@pytest.fixture
def plain() -> Tokenizer:
    """An encoder's: begin is 2, end 3, "a" 4, "b" 5, ..."""
    config = DataConfig(target_symbols="characters")
    return train_tokenizer(config, ["abcdefgh"], ["abcdefgh"])


@pytest.fixture
def tokenizer(plain):
    """A decoder's."""
    return with_delimiters(plain)


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


def test_an_encoder_reads_texts_between_its_own_symbols(plain, settings):
    examples = Labelled(["abc", "a"], ["de", "fgh"], ["x", "y"], ["p"] * 2, True)
    split = tokenise_labelled(examples, ("x", "y"), settings(), plain, "train", quiet)
    batch = batches_of(split, plain, shuffle=False, num_buckets=1).batch(0)
    assert batch.keys() == {"inputs", "token_types", "labels", "ids"}
    rows = batch["ids"] >= 0
    assert batch["inputs"][rows].tolist() == [
        [2, 4, 5, 6, 3, 7, 8, 3],
        [2, 4, 3, 9, 10, 11, 3, 0],
    ]
    assert batch["token_types"][rows].tolist() == [[0] * 5 + [1] * 3, [0] * 3 + [1] * 4 + [0]]
    assert batch["labels"].tolist() == [0, 1] + [-1] * (~rows).sum()


def test_numbers_have_values_and_weights(plain, settings):
    examples = Labelled(["abc", "a", "b"], [""] * 3, ["2.5", "0", "-1e-1"], ["p"] * 3)
    split = tokenise_labelled(examples, (), settings(), plain, "", quiet)
    batches = batches_of(split, plain, shuffle=False, num_buckets=1)
    assert batches.summary.startswith("3 examples (-0.1 to 2.5, mean 0.8) in 1 steps")
    batch = batches.batch(0)
    known = batch["ids"] >= 0
    assert batch["values"][known].tolist() == pytest.approx([2.5, 0, -0.1])
    assert batch["weights"].tolist() == known.astype(float).tolist()
    assert batch["values"].dtype == batch["weights"].dtype == np.float32


@pytest.mark.parametrize("names", [("x", "y"), ()])
def test_without_labels_no_example_counts(plain, settings, names):
    examples = Labelled(["abc", "a"], [""] * 2, [], ["p"] * 2)
    split = tokenise_labelled(examples, names, settings(), plain, "", quiet)
    assert not split.labelled
    batch = batches_of(split, plain, shuffle=False).batch(0)
    assert (batch["labels"] == -1).all() if names else not batch["weights"].any()
    assert np.isfinite(batch.get("values", 0)).all()


def test_a_batch_of_so_many_examples(split, plain):
    batches = batches_of(split, plain, seed=3, batch_size=5)
    rows = [len(batches.batch(step)["ids"]) for step in range(batches.steps_per_epoch)]
    assert set(rows) == {5} and 9 <= len(rows) <= 11
    found = np.concatenate([batches.batch(i)["ids"] for i in range(batches.steps_per_epoch)])
    assert sorted(found[found >= 0]) == list(range(43))
