"""Prompts with answers: one sequence, whose loss is on the answer."""

import pytest

from transformer.config import DataConfig
from transformer.data.answers import AnswerBatches
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


def batches_of(store, tokenizer, **values) -> AnswerBatches:
    settings = {"batch_tokens": 64, "num_buckets": 2, **values}
    return AnswerBatches(store, tokenizer, PROMPTS, **settings)


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


def test_without_a_begin_symbol_the_prompt_comes_first(store, tokenizer):
    tokenizer.special = tokenizer.special._replace(begin=-1)
    batch = batches_of(store, tokenizer, shuffle=False).batch(0)
    row = batch["ids"].tolist().index(1)
    prompt, answer = (tokenizer.encode_target(text) for text in (PROMPTS[1], ANSWERS[1]))
    count = len(prompt) + len(answer)
    assert batch["inputs"][row][:count].tolist() == [*prompt, *answer]
    assert batch["targets"][row][batch["weights"][row] > 0].tolist() == [*answer, EOS]


def test_an_end_symbol_is_needed(store, tokenizer):
    tokenizer.special = tokenizer.special._replace(end=-1)
    with pytest.raises(UserError, match="no end symbol, which ends an answer"):
        batches_of(store, tokenizer)
