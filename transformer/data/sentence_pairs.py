"""Batches that an encoder is pre-trained on: hidden tokens, and pairs of texts that follow each
other or do not (Devlin et al. 2019, section 3.1 and appendix A.2)."""

from typing import NamedTuple

import numpy as np

from transformer.data.batches import ALL, Batch, Rows
from transformer.data.composing import Composer, layout_of
from transformer.data.masking import Masker, unigram_entropy
from transformer.data.plan import BatchPlan, PlannedBatches
from transformer.data.sentences import SentenceSplit, cut_long, runs
from transformer.data.tokenizer import Tokenizer

IS_NEXT, IS_RANDOM = 0, 1
"""The published classes of the second text."""

_SHORT = 0.1
"""The part of the pairs that are made shorter at random, so that fine-tuning meets no length for
the first time (the published program's ``short_seq_prob``)."""


_NOTHING = np.zeros(0, np.int32)


class Pair(NamedTuple):
    """Two texts: int32 tokens without special ones, and whether the second is random."""

    first: np.ndarray
    second: np.ndarray
    follows: int


class MaskedBatches(PlannedBatches):
    """Batches of texts with hidden tokens (see `Batches`, and `Masker` for what is hidden).

    An example is a run of sentences of one document (see `runs`). Which texts become of it, and
    what is hidden, follow from (seed, epoch, example), so both are new each epoch.

    * With `next_sentence` a row is ``[CLS] A [SEP] B [SEP]``. A is the first sentences of the run,
      cut at a random place; B is, with probability 1/2, the rest of it, or else as many sentences
      from a random place in another document, each of which is equally likely. Of one pair in
      ten the run and the random text are shortened to a random length. Of what is too long the
      longer text loses tokens, at its beginning or end at random, until the row fits.
    * Without, it is ``[CLS] A [SEP]``, A the whole run.

    Sentences longer than a row are cut into pieces.

    Args:
        split: the documents.
        tokenizer: what they were made with.
        length: of a row, at most; the pairs' rows all have it.
        masker: hides tokens.
        next_sentence: see above.
        num_buckets: of `BatchPlan`, for rows that are no pairs.
        plan_settings: likewise.

    Raises:
        UserError: as `layout_of`.
    """

    def __init__(
        self,
        split: SentenceSplit,
        tokenizer: Tokenizer,
        length: int,
        masker: Masker,
        next_sentence: bool,
        num_buckets: int,
        seed: int = 0,
        shuffle: bool = True,
        **plan_settings,
    ) -> None:
        self._split, self._tokenizer, self._masker = split, tokenizer, masker
        self._paired, self._seed = next_sentence, seed
        self._composer = Composer(layout_of(tokenizer), next_sentence, length)
        self._room = length - self._composer.added
        self._sentences, self._documents = cut_long(split.sentences, split.documents, self._room)
        limits = self._sentences, self._documents
        self._starts, self._stops = runs(*limits, self._room, next_sentence)
        lengths = self._sentences[self._stops] - self._sentences[self._starts]
        lengths = lengths + self._composer.added
        if next_sentence:  # a second text may be longer than the one it takes the place of
            lengths, num_buckets = np.full_like(lengths, length), 1
        self._plan = BatchPlan(
            lengths, lengths, num_buckets=num_buckets, seed=seed, shuffle=shuffle, **plan_settings
        )

    @property
    def summary(self) -> str:
        entropy = unigram_entropy(self._split.words, self._masker.ordinary)
        kind = "pairs" if self._paired else "rows"
        return (
            f"{len(self._split.words):,} tokens (unigram entropy {entropy:.4f} nats) in "
            f"{len(self._split.sentences) - 1:,} sentences of {len(self._split):,} documents; "
            f"{len(self._starts):,} {kind} in {self.steps_per_epoch:,} steps an epoch"
        )

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The rows of a step; an empty row is padding throughout, of weights 0."""
        epoch = step // self.steps_per_epoch
        # With pairs all rows are made: what one of them weighs depends on the others.
        ids, (_, length, _) = self._plan.indices(step, ALL if self._paired else rows)
        count = self._masker.count(length - self._composer.added)
        inputs = np.full((len(ids), length), self._tokenizer.special.pad, np.int32)
        token_types = np.zeros_like(inputs)
        places = np.zeros((len(ids), count), np.int32)
        targets, weights = places.copy(), np.zeros(places.shape, np.float32)
        follows = np.full(len(ids), -1, np.int32)
        for row, number in enumerate(ids.tolist()):
            if number < 0:
                continue
            # The order of the examples comes from (seed, epoch), which is (seed, epoch, 0, 0).
            bits = np.random.PCG64(np.random.SeedSequence([self._seed, epoch, number, 1]))
            if self._paired:
                first, second, follows[row] = self.pair(number, bits)
            else:
                first, second = self._run(number), _NOTHING
            tokens, types = self._composer.compose(first, second)
            token_types[row, : len(types)] = types
            hidden, chosen = self._masker(tokens, bits)
            inputs[row, : len(tokens)] = hidden
            places[row, : len(chosen)] = chosen
            targets[row, : len(chosen)] = tokens[chosen]
            weights[row, : len(chosen)] = 1
        batch = {
            "inputs": inputs,
            "token_types": token_types,
            "places": places,
            "targets": targets,
            "weights": weights,
            "ids": ids.astype(np.int32),
        }
        if not self._paired:
            return batch
        share = weights.sum() / max((ids >= 0).sum(), 1)
        follow_weights = np.where(ids >= 0, share, 0).astype(np.float32)
        batch |= {"follows": follows, "follow_weights": follow_weights}
        return {name: array[rows] for name, array in batch.items()}

    def example(self, number: int) -> str:
        return self._tokenizer.decode_target(self._run(number).tolist())

    def pair(self, number: int, bits: np.random.BitGenerator) -> Pair:
        """The two texts that example `number` becomes, by `bits`."""
        sentences, target = self._sentences, self._room
        start, stop = int(self._starts[number]), int(self._stops[number])
        if _chance(bits) < _SHORT:
            target = 2 + _below(self._room - 1, bits)
            enough = int(np.searchsorted(sentences, sentences[start] + target))
            stop = min(stop, max(enough, start + 2))
        middle = start + 1 + (_below(stop - start - 1, bits) if stop - start > 1 else 0)
        first = self._text(start, middle)
        if middle < stop and _chance(bits) < 0.5:
            return self._fitted(first, self._text(middle, stop), IS_NEXT, bits)
        own = int(np.searchsorted(self._documents, start, side="right")) - 1
        other = _below(len(self._documents) - 2, bits)
        other += other >= own
        begin, end = self._documents[other : other + 2].tolist()
        begin += _below(end - begin, bits)
        missing = max(target - len(first), 1)
        enough = int(np.searchsorted(sentences, sentences[begin] + missing))
        return self._fitted(first, self._text(begin, min(enough, end)), IS_RANDOM, bits)

    def _run(self, number: int) -> np.ndarray:
        """The tokens of an example."""
        return self._text(int(self._starts[number]), int(self._stops[number]))

    def _text(self, start: int, stop: int) -> np.ndarray:
        """The tokens of some sentences."""
        return self._split.words[self._sentences[start] : self._sentences[stop]]

    def _fitted(
        self, first: np.ndarray, second: np.ndarray, follows: int, bits: np.random.BitGenerator
    ) -> Pair:
        lengths = self._composer.lengths(np.array([len(first)]), np.array([len(second)]))
        a, b = (int(length[0]) for length in lengths)
        return Pair(_cut(first, a, bits), _cut(second, b, bits), follows)


def _cut(text: np.ndarray, size: int, bits: np.random.BitGenerator) -> np.ndarray:
    """The text without so many tokens, each taken from its beginning or end at random."""
    surplus = len(text) - size
    front = int((bits.random_raw(surplus) & np.uint64(1)).sum()) if surplus else 0
    return text[front : front + size]


def _chance(bits: np.random.BitGenerator) -> float:
    """Uniform in [0, 1). Raw output, because its stream is the same in every NumPy version."""
    return (int(bits.random_raw()) >> 11) * 2.0**-53


def _below(count: int, bits: np.random.BitGenerator) -> int:
    """Uniform among 0 ... `count` - 1."""
    return int(bits.random_raw()) % count
