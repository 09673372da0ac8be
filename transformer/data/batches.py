"""Token arrays for a step, and a thread that makes them ahead of time."""

import queue
import threading
from collections.abc import Generator

import numpy as np

from transformer.data.plan import BatchPlan
from transformer.data.store import TokenStore
from transformer.data.tokenizer import BOS, PAD

Batch = dict[str, np.ndarray]


def make_batch(store: TokenStore, plan: BatchPlan, step: int) -> Batch:
    """The batch of a step, for teacher forcing: a pure function of data, plan and step.

    For a target ``a b EOS`` the decoder's inputs are ``BOS a b``.

    Returns:
        int32 arrays of R = plan.group * B rows, padded with 0; empty rows are 0 throughout:
        ``source`` [R, S], ``inputs`` [R, T], ``targets`` [R, T], and ``ids`` [R], the
        examples' numbers, -1 in empty rows.
    """
    ids, (_, source_length, target_length) = plan.indices(step)
    source = _gather(store.source_tokens, store.source_offsets, ids, source_length)
    targets = _gather(store.target_tokens, store.target_offsets, ids, target_length)
    begin = np.where(ids >= 0, BOS, PAD).astype(np.int32)
    shifted = np.concatenate([begin[:, None], targets[:, :-1]], axis=1)
    return {
        "source": source,
        "inputs": np.where(targets == PAD, np.int32(PAD), shifted),
        "targets": targets,
        "ids": ids.astype(np.int32),
    }


def _gather(tokens: np.ndarray, offsets: np.ndarray, ids: np.ndarray, length: int) -> np.ndarray:
    """Sequences `ids` as int32 [rows, length], padded; an id of -1 is an empty row."""
    starts, ends = offsets[ids], offsets[ids + 1]
    places = starts[:, None] + np.arange(length)
    inside = (places < ends[:, None]) & (ids >= 0)[:, None]
    return np.where(inside, tokens[np.where(inside, places, 0)], np.int32(PAD))


def prefetch(
    plan: BatchPlan, store: TokenStore, start_step: int, stop_step: int, depth: int = 4
) -> Generator[tuple[int, Batch], None, None]:
    """Yields (step, batch) for the steps in [start_step, stop_step), made by a thread.

    An exception in the thread is raised here, at its step. The thread ends with
    the iterator: when it is exhausted, closed, dropped or interrupted.

    Args:
        plan: says which examples make up a step.
        store: holds their tokens.
        start_step: first step.
        stop_step: one past the last step.
        depth: batches made ahead, at most.
    """
    ready: queue.Queue[tuple[int, Batch | BaseException]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: tuple[int, Batch | BaseException]) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        step = start_step
        try:
            while step < stop_step and not stopped.is_set():
                put((step, make_batch(store, plan, step)))
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
