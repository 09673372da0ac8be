"""Arrays of a step of pairs."""

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data.pairs import PairBatches
from transformer.data.plan import BatchPlan
from transformer.data.store import TokenStore, open_or_build
from transformer.data.tokenizer import BOS, EOS, SpecialIds, Tokenizer, train_tokenizer


@pytest.fixture
def store(tmp_path) -> TokenStore:
    sources = ["abc" * (i % 5) + "a" for i in range(43)]
    targets = [" ".join("XYZ"[: 1 + i % 3]) for i in range(43)]
    tokenizer = train_tokenizer(DataConfig(), sources, targets)
    return open_or_build(tmp_path, "key", sources, targets, tokenizer, None)


def batches_of(
    store: TokenStore, plan: BatchPlan, special: SpecialIds = Tokenizer.special
) -> PairBatches:
    return PairBatches(store, plan, special, [f"text {i}" for i in range(len(store))])


def test_inputs_are_the_targets_shifted():
    """The start token was once doubled, and the first target lost: a b EOS -> BOS a b."""
    store = TokenStore(
        rows=np.arange(2, dtype=np.int32),
        source_tokens=np.array([7, EOS, 8, 9, EOS], np.int32),
        target_tokens=np.array([5, 6, EOS, EOS], np.int32),
        source_offsets=np.array([0, 2, 5]),
        target_offsets=np.array([0, 3, 4]),
    )
    plan = BatchPlan(store.source_lengths, store.target_lengths, 40, 1, shuffle=False)
    batch = batches_of(store, plan).batch(0)
    assert batch["ids"].tolist() == [0, 1] + [-1] * 6
    empty = [[0, 0, 0]] * 6
    assert batch["source"].tolist() == [[7, EOS, 0], [8, 9, EOS], *empty]
    assert batch["inputs"].tolist() == [[BOS, 5, 6], [BOS, 0, 0], *empty]
    assert batch["targets"].tolist() == [[5, 6, EOS], [EOS, 0, 0], *empty]
    assert batch["weights"].tolist() == [[1, 1, 1], [1, 0, 0], *empty]
    weights = batch.pop("weights")
    assert weights.dtype == np.float32
    assert all(array.dtype == np.int32 for array in batch.values())
    # T5 begins with its padding, and ends with 1.
    other = batches_of(store, plan, SpecialIds(pad=0, begin=0, end=1, never=(0,))).batch(0)
    assert other["inputs"].tolist() == [[0, 5, 6], [0, 0, 0], *empty]
    assert np.array_equal(other["weights"], weights)
    # And some pad with another id than 0.
    other = batches_of(store, plan, SpecialIds(pad=58, begin=58, end=EOS, never=(58,))).batch(0)
    assert other["inputs"].tolist() == [[58, 5, 6], [58] * 3] + [[58] * 3] * 6
    assert other["targets"].tolist() == [[5, 6, EOS], [EOS, 58, 58]] + [[58] * 3] * 6
    assert np.array_equal(other["weights"], weights)


def test_batches_hold_each_pair_once(store):
    plan = BatchPlan(store.source_lengths, store.target_lengths, 89, 3, group=2)
    batches = batches_of(store, plan)
    seen = []
    for step in range(plan.steps_per_epoch, 2 * plan.steps_per_epoch):
        batch = batches.batch(step)
        rows, source_length, target_length = plan.indices(step)[1]
        assert batch["source"].shape == (2 * rows, source_length)
        assert batch["inputs"].shape == batch["targets"].shape == (2 * rows, target_length)
        for i, source, target in zip(batch["ids"], batch["source"], batch["targets"], strict=True):
            if i < 0:
                assert not source.any() and not target.any()
                continue
            seen.append(i)
            assert np.trim_zeros(source, "b").tolist() == store.source(i).tolist()
            assert np.trim_zeros(target, "b").tolist() == store.target(i).tolist()
    assert sorted(seen) == list(range(len(store)))
    assert batches.steps_per_epoch == plan.steps_per_epoch
    assert batches.summary.startswith(f"43 pairs in {plan.steps_per_epoch} steps an epoch, ")
    assert batches.example(17) == "text 17"
