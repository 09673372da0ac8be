"""Which examples make up each step: a pure function of lengths, seed and step.

Training needs few static shapes, each compiled once, and little padding. The
plan chooses the shapes from the lengths at hand and then deals the examples
out, each exactly once an epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from transformer.data.batches import ALL, Rows

Shape = tuple[int, int, int]
"""(B, S, T): rows, padded source length, padded target length."""

# Lengths a side that the search for padded sizes considers, at most: the first step
# is quadratic in their product, the second linear.
_COARSE = 16
_FINE = 512
# Rows in multiples of this use vector units and divide over devices.
_ROWS_MULTIPLE = 8


@dataclass(frozen=True)
class _Bucket:
    """Examples that share a padded shape, and the steps they take an epoch."""

    shape: Shape
    members: np.ndarray
    steps: int


class BatchPlan:
    """Batches of nearly constant padded size, bucketed by length.

    A batch of shape (B, S, T) keeps B * max(S, T) <= batch_tokens, unless one
    example alone is longer: then B = 1. The shapes form a chain, each at least
    as large as the one before on both sides, and minimise the padded tokens of
    source and target together. What does not fill the last batch of a bucket
    moves to the next one, or the rows are made fewer: whichever pads less.

    Every epoch has the same number of steps and the same shapes. With `shuffle`
    the examples are dealt anew each epoch and the shapes come in random order.

    Args:
        source_lengths: [N] tokens of each source, 1 or more.
        target_lengths: [N] tokens of each target, 1 or more.
        batch_tokens: upper bound of B * max(S, T).
        num_buckets: number of shapes, at most.
        seed: of the order.
        shuffle: False deals the examples in their own order, every epoch alike.
        group: batches a step, all of one shape (gradient accumulation).
        batch_size: the rows of each batch, instead of what `batch_tokens` allows.

    Attributes:
        steps_per_epoch: steps in which each example occurs once.
        shapes: the (B, S, T) that occur, smallest first; B counts one batch, not the group.
        group: as given.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        batch_tokens: int,
        num_buckets: int,
        seed: int = 0,
        shuffle: bool = True,
        group: int = 1,
        batch_size: int | None = None,
    ) -> None:
        source_lengths = np.asarray(source_lengths, np.int64)
        target_lengths = np.asarray(target_lengths, np.int64)
        if len(source_lengths) == 0:
            raise ValueError("a plan needs at least one example")
        self.group = group
        self._seed = seed
        self._shuffle = shuffle
        self._examples = len(source_lengths)
        self._tokens = int(source_lengths.sum() + target_lengths.sum())
        sizes = _padded_sizes(source_lengths, target_lengths, num_buckets)
        rows = batch_tokens, batch_size, group
        self._buckets = _fill(source_lengths, target_lengths, sizes, *rows)
        self.shapes: list[Shape] = [bucket.shape for bucket in self._buckets if bucket.steps]
        self.steps_per_epoch = sum(bucket.steps for bucket in self._buckets)
        self._epoch: tuple[int, list[tuple[np.ndarray, Shape]]] | None = None

    @property
    def efficiency(self) -> float:
        """Real tokens over padded tokens, both sides, empty rows included."""
        padded = sum(
            bucket.steps * self.group * rows * (source + target)
            for bucket in self._buckets
            for rows, source, target in [bucket.shape]
        )
        return self._tokens / padded

    def indices(self, step: int, rows: Rows = ALL) -> tuple[np.ndarray, Shape]:
        """The examples of a step, counted from 0 over all epochs, or of some of its rows.

        Returns:
            Example numbers, int64 [group * B] of all rows, with -1 in empty ones (always the
            last); and the shape (B, S, T) of each of the group's batches.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        if not self._shuffle:
            epoch = 0
        cached = self._epoch  # one read: another thread may replace it meanwhile
        if cached is None or cached[0] != epoch:
            self._epoch = cached = (epoch, self._deal(epoch))
        ids, shape = cached[1][position]
        return ids[rows], shape

    def _deal(self, epoch: int) -> list[tuple[np.ndarray, Shape]]:
        rank = np.arange(self._examples, dtype=np.uint64)
        if self._shuffle:
            # Raw output, because its stream is the same in every NumPy version.
            generator = np.random.PCG64(np.random.SeedSequence([self._seed, epoch]))
            rank = generator.random_raw(self._examples)
        steps: list[tuple[np.ndarray, Shape]] = []
        waiting = np.empty(0, np.int64)
        for bucket in self._buckets:
            order = np.argsort(rank[bucket.members], kind="stable")
            queue = np.concatenate([waiting, bucket.members[order]])
            rows = bucket.shape[0] * self.group
            dealt = np.full(bucket.steps * rows, -1, np.int64)
            count = min(len(queue), len(dealt))
            dealt[:count], waiting = queue[:count], queue[count:]
            steps += [(part, bucket.shape) for part in dealt.reshape(bucket.steps, rows)]
        if not self._shuffle:
            return steps
        return [steps[i] for i in np.argsort(generator.random_raw(len(steps)), kind="stable")]


class PlannedBatches:
    """What all batches have in common that follow a `BatchPlan` (see `Batches`)."""

    _plan: BatchPlan

    @property
    def steps_per_epoch(self) -> int:
        return self._plan.steps_per_epoch

    def ids(self, step: int) -> np.ndarray:
        return self._plan.indices(step)[0]


def length_batches(
    lengths: np.ndarray, batch_tokens: int, most: int
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Batches of sequences, longest first, without those of length 0.

    All but the last have as many rows as fit, so there are never more shapes than batches, and
    few padded lengths; the last has a power of two.

    Args:
        lengths: int ``[N]``, tokens of each sequence.
        batch_tokens: most tokens of a batch, padding included, unless one sequence has more.
        most: bound of the padded length, at least that of the longest.

    Yields:
        The numbers of the sequences, the batch's rows, and its length.
    """
    order = np.argsort(-lengths, kind="stable")
    order = order[: int((lengths > 0).sum())]
    start = 0
    while start < len(order):
        length = min(padded_length(int(lengths[order[start]])), most)
        count = max(1, batch_tokens // length)
        rows = order[start : start + count]
        yield rows, min(count, 1 << (len(rows) - 1).bit_length()), length
        start += len(rows)


def padded_length(length: int) -> int:
    """Up to a multiple of 8, and to four lengths from one power of two to the next."""
    step = max(8, 1 << max(0, (length - 1).bit_length() - 3))
    return -(-length // step) * step


def _padded_sizes(
    source_lengths: np.ndarray, target_lengths: np.ndarray, count: int
) -> list[tuple[int, int]]:
    """A chain of at most `count` padded sizes (S, T) with few padded tokens.

    With c(b) the number of examples that fit size b, a chain ..., a, b, ... pays
    (c(b) - c(a)) * (S_b + T_b) for b. The best chain of a coarse grid, by dynamic
    programming, is refined on the fine grid, one size at a time.
    """
    values = (_candidates(source_lengths, _FINE), _candidates(target_lengths, _FINE))
    cells = tuple(
        np.searchsorted(v, x) for v, x in zip(values, (source_lengths, target_lengths), strict=True)
    )
    fitting = np.zeros((len(values[0]), len(values[1])), np.int64)
    np.add.at(fitting, cells, 1)
    fitting = fitting.cumsum(0).cumsum(1)
    price = values[0][:, None] + values[1]
    # Sizes are cells of the fine grid from here on.
    coarse = [
        np.searchsorted(v, _candidates(x, _COARSE))
        for v, x in zip(values, (source_lengths, target_lengths), strict=True)
    ]
    chain = _best_chain(coarse, fitting, price, count)
    moved = True
    while moved:
        moved = False
        for k in range(len(chain) - 1):
            low, high = chain[k - 1] if k else (0, 0), chain[k + 1]
            window = (slice(low[0], high[0] + 1), slice(low[1], high[1] + 1))
            below = fitting[low] if k else 0
            cost = (fitting[window] - below) * price[window]
            cost += (fitting[high] - fitting[window]) * price[high]
            best = np.unravel_index(cost.argmin(), cost.shape)
            place = (chain[k][0] - low[0], chain[k][1] - low[1])
            if cost[best] < cost[place]:
                chain[k] = (low[0] + int(best[0]), low[1] + int(best[1]))
                moved = True
    return [(int(values[0][i]), int(values[1][j])) for i, j in dict.fromkeys(chain)]


def _best_chain(
    coarse: list[np.ndarray], fitting: np.ndarray, price: np.ndarray, count: int
) -> list[tuple[int, int]]:
    """The cells of the best chain with rows and columns in `coarse`, smallest first."""
    rows, columns = (grid.ravel() for grid in np.meshgrid(*coarse, indexing="ij"))
    fit = fitting[rows, columns].astype(np.float64)
    pay = price[rows, columns]
    nested = (rows[:, None] <= rows) & (columns[:, None] <= columns)
    extend = np.where(nested, (fit - fit[:, None]) * pay, np.inf)
    best = fit * pay
    previous: list[np.ndarray] = []
    for _ in range(count - 1):
        total = best[:, None] + extend
        previous.append(total.argmin(0))
        best = total.min(0)
    end = len(rows) - 1  # the largest size, which every example fits
    chain = {end}
    for choice in reversed(previous):
        chain.add(end := int(choice[end]))
    # A chain grows on both sides, so the order of its numbers is its order.
    return [(int(rows[i]), int(columns[i])) for i in sorted(chain)]


def _candidates(lengths: np.ndarray, most: int) -> np.ndarray:
    """The distinct lengths; if they are too many, quantiles and an even spread for the tail."""
    distinct = np.unique(lengths)
    if len(distinct) <= most:
        return distinct
    share = np.linspace(0, 1, most // 2 + 1)[1:]
    spread = np.geomspace(distinct[0], distinct[-1], most // 2)
    chosen = np.concatenate(
        [
            np.quantile(lengths, share, method="higher"),
            distinct[np.searchsorted(distinct, spread.clip(max=distinct[-1]))],
        ]
    )
    return np.unique(chosen.astype(np.int64))


def _fill(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    sizes: list[tuple[int, int]],
    batch_tokens: int,
    batch_size: int | None,
    group: int,
) -> list[_Bucket]:
    """Each size's examples and steps.

    What does not fill a last step of full rows either moves to the next size, or
    takes one step more with the rows of all made fewer (unless they are given): whichever pads
    less.
    """
    bucket_of = np.full(len(source_lengths), len(sizes) - 1)
    for i, (source, target) in reversed(list(enumerate(sizes))):
        bucket_of[(source_lengths <= source) & (target_lengths <= target)] = i
    buckets = []
    waiting = 0
    for i, (source, target) in enumerate(sizes):
        members = np.flatnonzero(bucket_of == i)
        waiting += len(members)
        rows = batch_size or rows_of(batch_tokens, max(source, target))
        steps, rest = divmod(waiting, rows * group)
        if rest:
            fewer = rows
            if batch_size is None:
                fewer = min(rows, _round_up(-(-waiting // ((steps + 1) * group))))
            empty = fewer * group * (steps + 1) - waiting
            last = i == len(sizes) - 1
            if last or empty * (source + target) < rest * (sum(sizes[i + 1]) - source - target):
                rows, steps, rest = fewer, steps + 1, 0
        waiting = rest
        buckets.append(_Bucket((rows, source, target), members, steps))
    return buckets


def rows_of(batch_tokens: int, length: int) -> int:
    """The rows of that length which a full batch has."""
    rows = max(1, batch_tokens // length)
    return rows - rows % _ROWS_MULTIPLE if rows >= _ROWS_MULTIPLE else rows


def _round_up(rows: int) -> int:
    return -(-rows // _ROWS_MULTIPLE) * _ROWS_MULTIPLE
