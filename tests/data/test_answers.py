"""Prompts with answers: one sequence, whose loss is on the answer."""

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data.answers import AnswerBatches, fitting
from transformer.data.store import TokenStore, open_or_build
from transformer.data.tokenizer import BOS, EOS, Tokenizer, train_tokenizer
from transformer.errors import UserError

PROMPTS = ["ab" * (1 + i % 5) + "?" for i in range(29)]
ANSWERS = ["xyz"[: 1 + i % 3] for i in range(29)]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(DataConfig(target_symbols="characters"), PROMPTS, ANSWERS)


@pytest.fixture
def store(tokenizer, tmp_path) -> TokenStore:
    return open_or_build(tmp_path, "key", PROMPTS, ANSWERS, tokenizer, None)


def batches_of(store, tokenizer, limit=99, **values) -> AnswerBatches:
    settings = {"batch_tokens": 64, "num_buckets": 2, **values}
    kept = fitting(store, limit, "train", lambda _: None)
    return AnswerBatches(store, kept, tokenizer.special, PROMPTS, **settings)


def test_the_loss_is_on_the_answer_and_its_end(store, tokenizer):
    batches = batches_of(store, tokenizer, shuffle=False)
    batch = batches.batch(0)
    row = batch["ids"].tolist().index(1)
    prompt, answer = (tokenizer.encode_target(text) for text in (PROMPTS[1], ANSWERS[1]))
    count = len(prompt) + len(answer) + 1
    assert batch["inputs"][row][:count].tolist() == [BOS, *prompt, *answer]
    assert batch["targets"][row][:count].tolist() == [*prompt, *answer, EOS]
    counted = batch["targets"][row][batch["weights"][row] > 0]
    assert counted.tolist() == [*answer, EOS]
    assert set(batch["weights"].ravel().tolist()) == {0.0, 1.0}


def test_batches_hold_each_pair_once(store, tokenizer):
    batches = batches_of(store, tokenizer, seed=3, group=2)
    seen, weight = [], 0.0
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        empty = batch["ids"] < 0
        assert not batch["weights"][empty].any() and not batch["inputs"][empty].any()
        seen += batch["ids"][~empty].tolist()
        weight += batch["weights"].sum()
    assert sorted(seen) == list(range(len(PROMPTS)))
    assert weight == sum(len(answer) + 1 for answer in ANSWERS)
    assert batches.summary.startswith("29 prompts with answers in ")


def test_pairs_too_long_are_left_out_and_counted(store, tokenizer):
    """Numbers stay those of the whole split, by which examples are named in messages."""
    lengths = [len(p) + len(a) + 2 for p, a in zip(PROMPTS, ANSWERS, strict=True)]
    limit = 11
    lines = []
    kept = fitting(store, limit, "train", lines.append)
    expected = [i for i, length in enumerate(lengths) if length <= limit]
    assert kept.tolist() == expected
    assert lines == [f"train: {29 - len(expected)} of 29 longer than 11 tokens left out"]
    batches = batches_of(store, tokenizer, limit)
    ids = np.concatenate([batches.batch(s)["ids"] for s in range(batches.steps_per_epoch)])
    assert sorted(ids[ids >= 0].tolist()) == expected
    assert batches.batch(0)["inputs"].shape[1] <= limit - 1


def test_nothing_that_fits_is_an_error(store):
    with pytest.raises(UserError, match=r"data.max_length = 4: every prompt .* longer in train"):
        fitting(store, 4, "train", lambda _: None)
