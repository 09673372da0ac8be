"""Which examples make up each step: a pure function of lengths, seed and step.

Training needs few static shapes, each compiled once, and little padding. The
plan chooses the shapes from the lengths at hand and then deals the examples
out, each exactly once an epoch.
"""

from dataclasses import dataclass

import numpy as np

Shape = tuple[int, int, int]
"""(B, S, T): rows, padded source length, padded target length."""

# The search for padded sizes is quadratic in the lengths it considers at a time:
# about twice _CANDIDATES a side, then those within _REACH of the best.
_CANDIDATES = 16
_REACH = 2
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
        self._buckets = _fill(source_lengths, target_lengths, sizes, batch_tokens, group)
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

    def indices(self, step: int) -> tuple[np.ndarray, Shape]:
        """The examples of a step, counted from 0 over all epochs.

        Returns:
            Example numbers, int64 [group * B], with -1 in empty rows (always the
            last ones); and the shape (B, S, T) of each of the group's batches.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        if not self._shuffle:
            epoch = 0
        cached = self._epoch  # one read: another thread may replace it meanwhile
        if cached is None or cached[0] != epoch:
            self._epoch = cached = (epoch, self._deal(epoch))
        return cached[1][position]

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


def _padded_sizes(
    source_lengths: np.ndarray, target_lengths: np.ndarray, count: int
) -> list[tuple[int, int]]:
    """A chain of at most `count` padded sizes (S, T) with few padded tokens.

    The best chain of the candidate lengths, then of the lengths around that chain,
    until it stands.
    """
    width = int(target_lengths.max()) + 1
    codes, weights = np.unique(source_lengths * width + target_lengths, return_counts=True)
    lengths = (codes // width, codes % width)
    values = (_candidates(source_lengths), _candidates(target_lengths))
    sizes, cost = _best_chain(lengths, weights, values, count)
    while True:
        values = (
            _around([source for source, _ in sizes], lengths[0]),
            _around([target for _, target in sizes], lengths[1]),
        )
        better, lower = _best_chain(lengths, weights, values, count)
        if lower >= cost:
            return sizes
        sizes, cost = better, lower


def _best_chain(
    lengths: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
    values: tuple[np.ndarray, np.ndarray],
    count: int,
) -> tuple[list[tuple[int, int]], float]:
    """The best chain among the given values of S and of T, by dynamic programming.

    With c(b) the number of examples that fit size b, a chain ..., a, b, ... pays
    (c(b) - c(a)) * (S_b + T_b) for b.

    Args:
        lengths: the distinct pairs of lengths.
        weights: how often each occurs.
        values: allowed padded lengths, ascending; the last ones fit every example.
        count: sizes at most.

    Returns:
        The chain, and what it pays in all.
    """
    histogram = np.zeros((len(values[0]), len(values[1])), np.int64)
    cell = tuple(np.searchsorted(v, x) for v, x in zip(values, lengths, strict=True))
    np.add.at(histogram, cell, weights)
    fitting = histogram.cumsum(0).cumsum(1).ravel().astype(np.float64)
    source, target = (grid.ravel() for grid in np.meshgrid(values[0], values[1], indexing="ij"))
    price = (source + target).astype(np.float64)
    nested = (source[:, None] <= source) & (target[:, None] <= target)
    extend = np.where(nested, (fitting - fitting[:, None]) * price, np.inf)
    best = fitting * price
    previous: list[np.ndarray] = []
    for _ in range(count - 1):
        total = best[:, None] + extend
        previous.append(total.argmin(0))
        best = total.min(0)
    end = len(price) - 1  # the largest size, which every example fits
    chain = {end}
    for choice in reversed(previous):
        chain.add(end := int(choice[end]))
    # A chain grows on both sides, so the order of its numbers is its order.
    return [(int(source[i]), int(target[i])) for i in sorted(chain)], float(best[-1])


def _candidates(lengths: np.ndarray) -> np.ndarray:
    """Lengths to begin the search with: quantiles, and an even spread for the long tail."""
    common = np.quantile(lengths, np.linspace(0, 1, _CANDIDATES + 1)[1:], method="higher")
    spread = np.geomspace(lengths.min(), lengths.max(), _CANDIDATES).round()
    return np.unique(np.concatenate([common, spread, [lengths.max()]]).astype(np.int64))


def _around(values: list[int], lengths: np.ndarray) -> np.ndarray:
    near = np.add.outer(values, np.arange(-_REACH, _REACH + 1))
    return np.unique(near[(near >= lengths.min()) & (near <= lengths.max())])


def _fill(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    sizes: list[tuple[int, int]],
    batch_tokens: int,
    group: int,
) -> list[_Bucket]:
    """Each size's examples and steps.

    What does not fill a last step of full rows either moves to the next size, or
    takes one step more with the rows of all made fewer: whichever pads less.
    """
    bucket_of = np.full(len(source_lengths), len(sizes) - 1)
    for i, (source, target) in reversed(list(enumerate(sizes))):
        bucket_of[(source_lengths <= source) & (target_lengths <= target)] = i
    buckets = []
    waiting = 0
    for i, (source, target) in enumerate(sizes):
        members = np.flatnonzero(bucket_of == i)
        waiting += len(members)
        rows = _round_down(max(1, batch_tokens // max(source, target)))
        steps, rest = divmod(waiting, rows * group)
        if rest:
            fewer = min(rows, _round_up(-(-waiting // ((steps + 1) * group))))
            empty = fewer * group * (steps + 1) - waiting
            last = i == len(sizes) - 1
            if last or empty * (source + target) < rest * (sum(sizes[i + 1]) - source - target):
                rows, steps, rest = fewer, steps + 1, 0
        waiting = rest
        buckets.append(_Bucket((rows, source, target), members, steps))
    return buckets


def _round_down(rows: int) -> int:
    return rows - rows % _ROWS_MULTIPLE if rows >= _ROWS_MULTIPLE else rows


def _round_up(rows: int) -> int:
    return -(-rows // _ROWS_MULTIPLE) * _ROWS_MULTIPLE
