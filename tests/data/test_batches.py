"""Arrays of a step, and the thread that makes them ahead."""

import threading

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data import batches
from transformer.data.batches import make_batch, prefetch
from transformer.data.plan import BatchPlan
from transformer.data.store import TokenStore, open_or_build
from transformer.data.tokenizer import BOS, EOS, train_tokenizer


@pytest.fixture
def store(tmp_path) -> TokenStore:
    sources = ["abc" * (i % 5) + "a" for i in range(43)]
    targets = [" ".join("XYZ"[: 1 + i % 3]) for i in range(43)]
    tokenizer = train_tokenizer(DataConfig(), sources, targets)
    return open_or_build(tmp_path, "key", sources, targets, tokenizer, None)


def plan_of(store: TokenStore, **values) -> BatchPlan:
    return BatchPlan(store.source_lengths, store.target_lengths, 89, 3, **values)


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
    batch = make_batch(store, plan, 0)
    assert batch["ids"].tolist() == [0, 1] + [-1] * 6
    empty = [[0, 0, 0]] * 6
    assert batch["source"].tolist() == [[7, EOS, 0], [8, 9, EOS], *empty]
    assert batch["inputs"].tolist() == [[BOS, 5, 6], [BOS, 0, 0], *empty]
    assert batch["targets"].tolist() == [[5, 6, EOS], [EOS, 0, 0], *empty]
    assert all(array.dtype == np.int32 for array in batch.values())


def test_batches_hold_each_pair_once(store):
    plan = plan_of(store, group=2)
    seen = []
    for step in range(plan.steps_per_epoch, 2 * plan.steps_per_epoch):
        batch = make_batch(store, plan, step)
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


def test_prefetch_equals_make_batch_across_an_epoch(store):
    plan = plan_of(store)
    start, stop = plan.steps_per_epoch - 2, 2 * plan.steps_per_epoch + 1
    made = list(prefetch(plan, store, start, stop))
    assert [step for step, _ in made] == list(range(start, stop))
    again = plan_of(store)
    for step, batch in made:
        for name, array in make_batch(store, again, step).items():
            assert np.array_equal(batch[name], array), name


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.mark.parametrize("stop", [5, 3])
def test_an_empty_range(store, stop):
    assert list(prefetch(plan_of(store), store, 5, stop)) == []
    assert workers() == []


def test_the_threads_error_is_raised_at_its_step(store, monkeypatch):
    def fail_at_three(store, plan, step):
        if step == 3:
            raise OSError("disk gone")
        return {}

    monkeypatch.setattr(batches, "make_batch", fail_at_three)
    seen = []
    with pytest.raises(OSError, match="disk gone"):
        for step, _ in prefetch(plan_of(store), store, 0, 9):
            seen.append(step)
    assert seen == [0, 1, 2]
    assert workers() == []


def test_a_loop_that_stops_early_leaves_no_thread(store):
    steps = prefetch(plan_of(store), store, 0, 10**9)
    assert next(steps)[0] == 0
    assert len(workers()) == 1
    steps.close()
    assert workers() == []


def test_an_interrupted_loop_leaves_no_thread(store):
    with pytest.raises(KeyboardInterrupt):
        for step, _ in prefetch(plan_of(store), store, 0, 10**9):
            if step == 2:
                raise KeyboardInterrupt
    assert workers() == []


def test_no_more_than_depth_are_made_ahead(store, monkeypatch):
    made = []
    filled = threading.Event()

    def count(store, plan, step):
        made.append(step)
        if len(made) == 5:
            filled.set()
        return {}

    monkeypatch.setattr(batches, "make_batch", count)
    steps = prefetch(plan_of(store), store, 0, 99, depth=3)
    next(steps)
    assert filled.wait(5)  # one taken, three ready, one waiting to be put
    assert not threading.Event().wait(0.2)
    assert made == [0, 1, 2, 3, 4]
    steps.close()
