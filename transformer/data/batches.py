"""What training needs of a data set, and a thread that makes its batches ahead of time."""

import queue
import threading
from collections.abc import Callable, Generator
from typing import Protocol

import numpy as np

Batch = dict[str, np.ndarray]
"""What one step learns from, R rows of T tokens:

* ``inputs``, ``targets``: int32 [R, T]; each target is what follows its input.
* ``weights``: float32 [R, T]; a target of weight 0 does not count.
* ``ids``: int32 [R], the number of each row's example; -1: an empty row.
* ``source``: int32 [R, S], of encoder-decoders.
* ``segments``, ``positions``: int32 [R, T], of packed rows: the document each input
  belongs to (0: padding) and its place there. Without them a row is one segment.

Encoders have no ``targets`` but, by what they learn:

* ``token_types``: int32 [R, T], 0 for the first text of a row and 1 for the second.
* masked tokens: ``places`` int32 [R, P] with ``targets`` and ``weights`` [R, P]; of pairs
  ``follows`` int32 [R] (0: the second text is the next one, 1: a random one, -1: an empty row)
  and ``follow_weights`` float32 [R], whose sum over the batch is that of ``weights``.
* classes: ``labels`` int32 [R], of tokens [R, T]; -1 does not count. Of tokens ``words`` int32
  [R, T]: the number of the word whose first token it is, else -1.
* numbers: ``values`` and ``weights`` float32 [R].
* choices: ``inputs`` and ``token_types`` [R, C, T], ``labels`` int32 [R].
* spans: ``starts`` and ``ends`` int32 [R], both 0: no answer; -1: an empty row.
"""


Rows = slice | np.ndarray
"""Some rows of a batch, in their order: a slice, or their numbers."""

ALL: Rows = slice(None)


class Batches(Protocol):
    """The batches of a data set: a pure function of (data, seed, step)."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every example occurs once."""
        ...

    @property
    def summary(self) -> str:
        """How much data there is, such as "29,000 pairs in 275 steps an epoch"."""
        ...

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The arrays of a step, counted from 0 over all epochs, or these rows of them."""
        ...

    def ids(self, step: int) -> np.ndarray:
        """``ids`` of all rows of a step, without making them."""
        ...

    def example(self, number: int) -> str:
        """The text of the example that ``ids`` calls `number`, for messages."""
        ...


def prefetch(
    batches: Batches,
    start_step: int,
    stop_step: int,
    depth: int = 4,
    rows: Callable[[int], Rows] | None = None,
) -> Generator[tuple[int, Batch], None, None]:
    """Yields (step, batch) for the steps in [start_step, stop_step), made by a thread.

    An exception in the thread is raised here, at its step. The thread ends with
    the iterator: when it is exhausted, closed, dropped or interrupted.

    Args:
        batches: makes them.
        start_step: first step.
        stop_step: one past the last step.
        depth: batches made ahead, at most.
        rows: of the number of a step's rows, those to make; ``ids`` are still those of all rows.
    """
    ready: queue.Queue[tuple[int, Batch | BaseException]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: tuple[int, Batch | BaseException]) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def make(step: int) -> Batch:
        if rows is None:
            return batches.batch(step)
        ids = batches.ids(step)
        return {**batches.batch(step, rows(len(ids))), "ids": ids}

    def work() -> None:
        step = start_step
        try:
            while step < stop_step and not stopped.is_set():
                put((step, make(step)))
                step += 1
        except BaseException as error:
            put((step, error))

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in range(start_step, stop_step):
            step, batch = ready.get()
            if isinstance(batch, BaseException):
                raise batch
            yield step, batch
    finally:
        stopped.set()
        thread.join()
