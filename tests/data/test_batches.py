"""The thread that makes batches ahead."""

import threading

import numpy as np
import pytest

from transformer.data.batches import ALL, Batch, Rows, prefetch


class Counting:
    """Batches that say which step they are of."""

    steps_per_epoch = 7
    summary = "7 numbers"

    def __init__(self) -> None:
        self.made: list[int] = []

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        self.made.append(step)
        return {"ids": self.ids(step)[rows], "inputs": self.ids(step)[rows]}

    def ids(self, step: int) -> np.ndarray:
        return np.arange(step, step + 5)

    def example(self, number: int) -> str:
        return str(number)


def test_every_step_has_its_batch_across_an_epoch():
    made = list(prefetch(Counting(), 5, 16))
    assert [(step, int(batch["ids"][0])) for step, batch in made] == [(i, i) for i in range(5, 16)]


def test_rows_that_are_asked_for_come_with_the_numbers_of_all():
    made = prefetch(Counting(), 2, 4, rows=lambda count: np.array([1, count - 1]))
    for (step, batch), first in zip(made, (2, 3), strict=True):
        assert step == first
        assert batch["inputs"].tolist() == [first + 1, first + 4]
        assert batch["ids"].tolist() == list(range(first, first + 5))


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


@pytest.mark.parametrize("stop", [5, 3])
def test_an_empty_range(stop):
    assert list(prefetch(Counting(), 5, stop)) == []
    assert workers() == []


def test_the_threads_error_is_raised_at_its_step():
    class Failing(Counting):
        def batch(self, step: int, rows: Rows = ALL) -> Batch:
            if step == 3:
                raise OSError("disk gone")
            return super().batch(step, rows)

    seen = []
    with pytest.raises(OSError, match="disk gone"):
        for step, _ in prefetch(Failing(), 0, 9):
            seen.append(step)
    assert seen == [0, 1, 2]
    assert workers() == []


def test_a_loop_that_stops_early_leaves_no_thread():
    steps = prefetch(Counting(), 0, 10**9)
    assert next(steps)[0] == 0
    assert len(workers()) == 1
    steps.close()
    assert workers() == []


def test_an_interrupted_loop_leaves_no_thread():
    with pytest.raises(KeyboardInterrupt):
        for step, _ in prefetch(Counting(), 0, 10**9):
            if step == 2:
                raise KeyboardInterrupt
    assert workers() == []


def test_no_more_than_depth_are_made_ahead():
    filled = threading.Event()

    class Watched(Counting):
        def batch(self, step: int, rows: Rows = ALL) -> Batch:
            batch = super().batch(step, rows)
            if len(self.made) == 5:
                filled.set()
            return batch

    batches = Watched()
    steps = prefetch(batches, 0, 99, depth=3)
    next(steps)
    assert filled.wait(5)  # one taken, three ready, one waiting to be put
    assert not threading.Event().wait(0.2)
    assert batches.made == [0, 1, 2, 3, 4]
    steps.close()
