"""T5's training objective: to fill in what was cut out (Raffel et al. 2020, section 3.1.4).

Spans of the text are replaced by sentinels, different ones, and the target is what they
stand for. With the spans ``c d`` and ``g`` of ``a b c d e f g``::

    source   a b <extra_id_0> e f <extra_id_1> </s>
    target   <extra_id_0> c d <extra_id_1> g </s>

The target ends as in the authors' program: with the end symbol alone, where the paper's
figure 2 shows one sentinel more.
"""

from typing import NamedTuple

import numpy as np

from transformer.data.batches import ALL, Batch, Rows
from transformer.data.extended_tokenizer import with_sentinels
from transformer.data.plan import BatchPlan, PlannedBatches
from transformer.data.store import DocumentStore, document_ends
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError


class Counts(NamedTuple):
    """How much of some tokens is noise: what is cut out of them."""

    noise: int
    spans: int


def noise_counts(length: int, density: float, mean_span: float) -> Counts:
    """The numbers of noise tokens and of their spans, which do not depend on chance.

    ``noise = round(density length)``, ``spans = round(noise / mean_span)``, each at least 1, and
    no more spans than there are tokens between them. Of a single token nothing is cut.
    """
    if length < 2:
        return Counts(0, 0)
    noise = min(max(round(length * density), 1), length - 1)
    return Counts(noise, min(max(round(noise / mean_span), 1), noise, length - noise))


def corrupted_lengths(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """The lengths of source and target that `length` tokens become, end symbols included.

    >>> corrupted_lengths(568, density=0.15, mean_span=3)
    (512, 114)
    """
    noise, spans = noise_counts(length, density, mean_span)
    return length - noise + spans + 1, noise + spans + 1


def raw_length(source_length: int, density: float, mean_span: float) -> int:
    """The most tokens whose corrupted source has at most `source_length`, which is 3 or more.

    >>> raw_length(512, density=0.15, mean_span=3)
    568
    """
    length = 1
    # The source grows with the text, but for steps back of one token where a span is added.
    for longer in range(2, int(2 * source_length / (1 - density)) + 2):
        if corrupted_lengths(longer, density, mean_span)[0] <= source_length:
            length = longer
    return length


def noise_mask(
    length: int, density: float, mean_span: float, bits: np.random.BitGenerator
) -> np.ndarray:
    """Which tokens are cut out: bool ``[length]``.

    Kept and noise spans alternate, beginning with a kept one. Of the masks with the counts of
    `noise_counts` all are equally likely.
    """
    noise, spans = noise_counts(length, density, mean_span)
    if not spans:
        return np.zeros(length, bool)
    parts = _partition(length - noise, spans, bits), _partition(noise, spans, bits)
    lengths = np.stack(parts, axis=1).ravel()
    return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def _partition(total: int, parts: int, bits: np.random.BitGenerator) -> np.ndarray:
    """`total` as the sum of `parts` numbers above 0, all such lists equally likely."""
    # Raw output, because its stream is the same in every NumPy version.
    order = np.argsort(bits.random_raw(total - 1), kind="stable")
    cuts = np.sort(order[: parts - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupt(
    tokens: np.ndarray, mask: np.ndarray, sentinels: np.ndarray, end: int
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target, int32, each ending with `end`; `merge` is the inverse.

    Args:
        tokens: int ``[length]``.
        mask: bool ``[length]``, True where a token is cut out.
        sentinels: the ids that stand for the spans, in the order of their use; as many as
            there are spans, or more.
        end: the end symbol.
    """
    starts = mask & ~np.concatenate([[False], mask[:-1]])
    count = int(starts.sum())
    if count > len(sentinels):
        raise ValueError(f"{count} spans: expected at most {len(sentinels)}, one a sentinel")
    marked = tokens.copy()
    marked[starts] = sentinels[:count]
    source = marked[~mask | starts]
    target = np.insert(tokens[mask], np.flatnonzero(starts[mask]), sentinels[:count])
    return np.append(source, end).astype(np.int32), np.append(target, end).astype(np.int32)


def merge(source: np.ndarray, target: np.ndarray, sentinels: np.ndarray, end: int) -> np.ndarray:
    """The text of a source with the spans of a target, or of a model's output, filled in.

    Args:
        source: int, as `corrupt` returned it; what follows its first `end` is not looked at.
        target: likewise.
        sentinels: as given to `corrupt`.
        end: as given to `corrupt`.

    Raises:
        UserError: a sentinel of the source is not in the target; says which.
    """
    spans = dict(_pieces(target, sentinels, end))
    parts = []
    for sentinel, kept in _pieces(source, sentinels, end):
        if sentinel is not None:
            if sentinel not in spans:
                number = np.flatnonzero(sentinels == sentinel)[0]
                raise UserError(f"sentinel {number} (id {sentinel}): found none in the target")
            parts.append(spans[sentinel])
        parts.append(kept)
    return np.concatenate(parts)


def _pieces(
    tokens: np.ndarray, sentinels: np.ndarray, end: int
) -> list[tuple[int | None, np.ndarray]]:
    """What is before the first sentinel (as of None), and each sentinel with what follows it."""
    tokens = tokens[: np.append(np.flatnonzero(tokens == end), len(tokens))[0]]
    first, *others = np.split(tokens, np.flatnonzero(np.isin(tokens, sentinels)))
    return [(None, first), *((int(part[0]), part[1:]) for part in others)]


class SpanBatches(PlannedBatches):
    """Batches of corrupted text (see `Batches`).

    All documents are one long text, without what marks their ends; it is cut into pieces that
    become sources of `block_length` tokens. Which spans of a piece are noise follows from (seed,
    epoch, piece).

    Args:
        store: the documents' tokens.
        tokenizer: what they were made with, from `with_sentinels`.
        block_length: tokens of a source, its end included.
        density: the part of the tokens that is noise.
        mean_span: tokens of a span of noise, on average.
        batch_tokens: of the sources of a micro-batch, at most.
        seed: of the noise and of the order.
        shuffle: False keeps the order and makes every epoch alike.
        group: micro-batches a step (gradient accumulation).

    Raises:
        UserError: the tokenizer has no end symbol, or too few sentinels for a source.
    """

    def __init__(
        self,
        store: DocumentStore,
        tokenizer: Tokenizer,
        block_length: int,
        density: float,
        mean_span: float,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        group: int = 1,
    ) -> None:
        self._store, self._tokenizer = store, tokenizer
        self._noise = density, mean_span
        self._seed, self._shuffle = seed, shuffle
        _, self._sentinels = with_sentinels(tokenizer)
        if tokenizer.special.end < 0:
            raise UserError("data.tokenizer: it has no end symbol, which ends source and target")
        self._length = raw_length(block_length, *self._noise)
        spans = noise_counts(self._length, *self._noise).spans
        if spans > len(self._sentinels):
            raise UserError(
                f"data.block_length = {block_length}: {spans} spans a row; expected at most "
                f"{len(self._sentinels)}, one for each sentinel"
            )
        before, after = document_ends(tokenizer)
        self._before, self._ends = len(before), len(before) + len(after)
        # Where each document begins in the long text.
        self._offsets = store.offsets - self._ends * np.arange(len(store.offsets))
        self._total = int(self._offsets[-1])
        pieces = -(-self._total // self._length)
        lengths = np.full(pieces, self._length)
        lengths[-1] = self._total - (pieces - 1) * self._length
        sizes = np.array([corrupted_lengths(n, *self._noise) for n in lengths.tolist()])
        self._plan = BatchPlan(sizes[:, 0], sizes[:, 1], batch_tokens, 1, seed, shuffle, group)

    @property
    def summary(self) -> str:
        return (
            f"{self._total:,} tokens in rows of {self._length}, "
            f"{self.steps_per_epoch:,} steps an epoch"
        )

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The pieces of a step, corrupted; an empty row is padding throughout, of weight 0."""
        pad, begin, end, *_ = self._tokenizer.special
        epoch = step // self.steps_per_epoch if self._shuffle else 0
        ids, (_, source_length, target_length) = self._plan.indices(step, rows)
        source = np.full((len(ids), source_length), pad, np.int32)
        targets = np.full((len(ids), target_length), pad, np.int32)
        inputs, weights = targets.copy(), np.zeros(targets.shape, np.float32)
        for row, i in enumerate(ids[ids >= 0].tolist()):
            tokens = self._piece(i)
            bits = np.random.PCG64(np.random.SeedSequence([self._seed, epoch, i]))
            mask = noise_mask(len(tokens), *self._noise, bits)
            corrupted, target = corrupt(tokens, mask, self._sentinels, end)
            source[row, : len(corrupted)] = corrupted
            targets[row, : len(target)] = target
            inputs[row, : len(target)] = [begin, *target[:-1]]
            weights[row, : len(target)] = 1
        return {
            "source": source,
            "inputs": inputs,
            "targets": targets,
            "weights": weights,
            "ids": ids.astype(np.int32),
        }

    def example(self, number: int) -> str:
        return self._tokenizer.decode_target(self._piece(number).tolist())

    def _piece(self, number: int) -> np.ndarray:
        """The tokens that become row `number` of an epoch in its own order."""
        first = number * self._length
        places = np.arange(first, min(first + self._length, self._total))
        document = np.searchsorted(self._offsets, places, side="right") - 1
        return self._store.tokens[places + document * self._ends + self._before]
