"""The plan: exactness, determinism, shapes, padding."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from transformer.data.objectives import training_batches
from transformer.data.pipeline import prepare
from transformer.data.plan import BatchPlan, length_batches, padded_length


def lengths(count: int, seed: int = 0, high: int = 61) -> tuple[np.ndarray, np.ndarray]:
    """Lengths like those of sentence pairs."""
    rng = np.random.default_rng(seed)
    source = np.clip(rng.lognormal(2.7, 0.45, count), 1, high).astype(int)
    target = np.clip(source * rng.lognormal(0, 0.2, count), 1, high).astype(int)
    return source, target


def epoch(plan: BatchPlan, number: int = 0) -> list[tuple[list[int], tuple[int, int, int]]]:
    first = number * plan.steps_per_epoch
    steps = [plan.indices(first + i) for i in range(plan.steps_per_epoch)]
    return [(ids.tolist(), shape) for ids, shape in steps]


@pytest.mark.parametrize("count", [1, 7, 101, 2003])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_example_exactly_once_an_epoch(count, group, shuffle):
    """The last partial batch was once dropped, and 158 windows became 128."""
    source, target = lengths(count)
    plan = BatchPlan(source, target, 331, 5, seed=3, shuffle=shuffle, group=group)
    for number in (0, 1, 4):
        seen = []
        for ids, (rows, source_length, target_length) in epoch(plan, number):
            assert len(ids) == group * rows
            real = [i for i in ids if i >= 0]
            assert real
            assert ids == real + [-1] * (len(ids) - len(real))
            assert max(source[real]) <= source_length
            assert max(target[real]) <= target_length
            assert rows * max(source_length, target_length) <= 331
            assert (rows, source_length, target_length) in plan.shapes
            seen += real
        assert sorted(seen) == list(range(count))


def test_the_shapes_are_few_and_rows_multiples_of_eight():
    source, target = lengths(2003)
    plan = BatchPlan(source, target, 1021, 8)
    assert len(plan.shapes) <= 8
    assert plan.shapes == sorted(plan.shapes, key=lambda shape: shape[1:])
    assert all(rows % 8 == 0 for rows, _, _ in plan.shapes)
    assert {shape for _, shape in epoch(plan)} == set(plan.shapes)
    # About constant: no batch has much less than the limit allows its shape.
    assert all(rows * max(s, t) > 1021 / 2 for rows, s, t in plan.shapes)


def test_fewer_rows_than_eight_where_eight_do_not_fit():
    plan = BatchPlan(np.full(13, 11), np.full(13, 7), 5 * 11, 8)
    assert plan.shapes == [(5, 11, 7)]
    assert plan.steps_per_epoch == 3


def test_an_example_longer_than_a_batch_stands_alone():
    source, target = np.array([3, 500, 5, 2]), np.array([2, 5, 7, 3])
    plan = BatchPlan(source, target, 64, 4)
    (alone,) = [ids for ids, shape in epoch(plan) if shape[1] == 500]
    assert alone == [1]
    assert (1, 500, 7) in plan.shapes


def test_every_epoch_has_its_own_order():
    plan = BatchPlan(*lengths(701), 331, 5, seed=7)
    first, second = epoch(plan, 0), epoch(plan, 1)
    assert first != second
    assert sorted(shape for _, shape in first) == sorted(shape for _, shape in second)
    assert epoch(plan, 0) == first  # whichever epoch was asked for last
    # Examples meet others, and shapes come in another order.
    assert {frozenset(ids) for ids, _ in first}.isdisjoint(frozenset(ids) for ids, _ in second)
    assert [shape for _, shape in first] != [shape for _, shape in second]
    sizes = [shape[1] for _, shape in first]
    assert sizes not in (sorted(sizes), sorted(sizes, reverse=True))


def test_without_shuffle_every_epoch_is_alike_and_the_seed_is_nothing():
    plans = [BatchPlan(*lengths(701), 331, 5, seed=seed, shuffle=False) for seed in (1, 2)]
    assert epoch(plans[0], 0) == epoch(plans[0], 2) == epoch(plans[1], 0)


def test_the_seed_decides():
    orders = [epoch(BatchPlan(*lengths(701), 331, 5, seed=seed)) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_a_step_depends_on_no_other():
    """A resumed run asks for step 29 first; an uninterrupted one asks for 0 to 28 before."""
    plan = BatchPlan(*lengths(701), 331, 5)
    whole = [plan.indices(step)[0].tolist() for step in range(3 * plan.steps_per_epoch)]
    for step in (29, 2, 2 * plan.steps_per_epoch, plan.steps_per_epoch - 1):
        assert BatchPlan(*lengths(701), 331, 5).indices(step)[0].tolist() == whole[step]


def test_another_process_makes_the_same_plan():
    """Nothing hangs on hash seeds or on the order of sets."""
    code = (
        "import zlib; from tests.data.test_plan import lengths; "
        "from transformer.data.plan import BatchPlan; plan = BatchPlan(*lengths(701), 331, 5); "
        "print([zlib.crc32(plan.indices(step)[0].tobytes()) for step in range(99)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 99


def test_the_order_is_pinned():
    """Else a run resumed after an upgrade would see some examples twice and others never."""
    plan = BatchPlan(*lengths(29), 97, 2, seed=5)
    assert plan.shapes == [(5, 17, 18), (3, 27, 32)]
    assert plan.indices(0)[0].tolist() == [20, 10, 0, 1, 15]


def exhaustive(source: np.ndarray, target: np.ndarray, count: int) -> int:
    """The fewest padded tokens of any chain of `count` sizes."""
    top = (int(source.max()), int(target.max()))
    grid = list(itertools.product(range(1, top[0] + 1), range(1, top[1] + 1)))
    costs = []
    for sizes in itertools.combinations(grid, count - 1):
        if any(a[0] > b[0] or a[1] > b[1] for a, b in itertools.pairwise(sizes)):
            continue
        cost = np.full(len(source), sum(top))
        for s, t in reversed(sizes):
            cost[(source <= s) & (target <= t)] = s + t
        costs.append(cost.sum())
    return min(costs)


@pytest.mark.parametrize(("high", "count"), [(8, 3), (97, 2)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_sizes_pad_least(seed, high, count):
    """Also where there are more lengths than the coarse search looks at."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(1, high, 211 // count), rng.integers(1, high - 2, 211 // count)
    # One row a batch: nothing but the sizes decides the padding.
    plan = BatchPlan(source, target, 1, count)
    padded = sum(s + t for _, (_, s, t) in epoch(plan))
    assert padded == exhaustive(source, target, count)


def test_many_shapes_take_no_more_memory_than_a_few():
    source, target = lengths(2003, high=997)
    assert len(BatchPlan(source, target, 4096, 64).shapes) > 16


def test_efficiency_counts_every_padded_token():
    source, target = lengths(701)
    plan = BatchPlan(source, target, 331, 5, group=2)
    padded = sum(len(ids) * (s + t) for ids, (_, s, t) in epoch(plan))
    assert plan.efficiency == (source.sum() + target.sum()) / padded


def test_little_padding():
    """Eight shapes waste about an eighth; one shape would waste more than half."""
    source, target = lengths(20_011)
    assert BatchPlan(source, target, 4096, 8).efficiency > 0.82
    assert BatchPlan(source, target, 4096, 1).efficiency < 0.35


def test_a_plan_of_nothing():
    with pytest.raises(ValueError, match="at least one example"):
        BatchPlan(np.array([], int), np.array([], int), 64, 4)


def test_batches_by_length_are_full_and_few():
    lengths = np.random.default_rng(0).integers(0, 201, 1000)
    batches = list(length_batches(lengths, 2048, 256))
    numbers = np.concatenate([rows for rows, _, _ in batches])
    assert sorted(numbers) == list(np.flatnonzero(lengths)), "each once, without the empty ones"
    for rows, count, length in batches:
        assert lengths[rows].max() <= length and len(rows) <= count and count * length <= 2048
    assert all(len(rows) == count for rows, count, _ in batches[:-1])
    assert len({shape for _, *shape in map(tuple, batches) for shape in [tuple(shape)]}) <= 17
    padding = sum(count * length for _, count, length in batches) / lengths.sum()
    assert padding < 1.2
    _, *shape = next(iter(length_batches(np.array([300]), 64, 512)))
    assert shape == [1, 320], "one text is a batch"


@pytest.mark.parametrize(
    ("length", "padded"),
    [(1, 8), (8, 8), (9, 16), (64, 64), (65, 80), (128, 128), (129, 160), (512, 512)],
)
def test_padded_lengths(length, padded):
    assert padded_length(length) == padded


TEXT = "\n\n".join(f"the {i} quick. brown fox {i * i}. jumps\nover it" for i in range(23))
PAIRS = "".join(f"{'ab' * (i % 7 + 1)}\t{'xy'[i % 2]} {i % 5}\n" for i in range(23))
OBJECTIVES = {
    "translation": {"source": PAIRS},
    "answers": {"source": PAIRS},
    "language_model": {"source": TEXT, "documents": "paragraph", "block_length": 13},
    "span_corruption": {
        "source": TEXT, "block_length": 16, "target_symbols": "characters", "tokenizer": "bytes",
    },
    "classification": {"source": PAIRS},
}  # fmt: skip


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_some_rows_are_those_of_the_whole_batch(objective, write, settings):
    values = dict(OBJECTIVES[objective])
    path = write("train.txt", values.pop("source"))
    config = settings(
        objective=objective, train=(path,), validation=(path,), batch_tokens=64, num_buckets=2,
        **values,
    )  # fmt: skip
    data = prepare(config, splits=("train",), log=lambda line: None)
    assert data.train is not None
    batches = training_batches(data.train, config, data.tokenizer, 1, 1)
    for step in range(batches.steps_per_epoch + 2):
        whole, rows = batches.batch(step), np.array([1, 3])[: len(batches.ids(step)) // 2]
        np.testing.assert_array_equal(batches.ids(step), whole["ids"])
        some = batches.batch(step, rows)
        assert some.keys() == whole.keys()
        for name, array in some.items():
            np.testing.assert_array_equal(array, whole[name][rows], name)
