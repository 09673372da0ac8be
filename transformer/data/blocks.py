"""Batches of a language model: documents one after the other, cut into rows of one length."""

import numpy as np

from transformer.data.batches import ALL, Batch, Rows
from transformer.data.store import DocumentStore
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError


class BlockBatches:
    """Packed rows of `length` tokens (see `Batches`).

    The documents are one long text, cut every `length` tokens; the target of a token is the
    next one. A token sees its own document only: ``segments`` number the documents of a row
    from 1, ``positions`` count from 0 in each, or in the part of it that the row has. Where the
    next token begins another document the weight is 0, so each token but the first of a
    document is a target once an epoch. A store of one document needs neither segments nor
    positions: they are left out, which is as good and faster.

    With `shuffle` the place of the first cut differs from epoch to epoch, and rows come in
    random order. Then the row before that cut is short, and padded, as the last one may be.

    Args:
        store: the documents' tokens.
        tokenizer: what they were made with.
        length: tokens of a row.
        batch_tokens: of a micro-batch, at most, and at least `length`.
        seed: of the order.
        shuffle: False cuts from the first token on and keeps the order.
        group: micro-batches a step (gradient accumulation).

    Raises:
        UserError: all documents together are shorter than a row (with `shuffle`).
    """

    def __init__(
        self,
        store: DocumentStore,
        tokenizer: Tokenizer,
        length: int,
        batch_tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        group: int = 1,
    ) -> None:
        self._store, self._tokenizer, self._length = store, tokenizer, length
        self._seed, self._shuffle = seed, shuffle
        self._pairs = len(store.tokens) - 1  # of an input and its target
        if shuffle and self._pairs < length:
            raise UserError(
                f"data.train: {len(store.tokens)} tokens; expected more than "
                f"data.block_length = {length}"
            )
        if self._pairs < 1:
            raise UserError("data: found a text of one token; expected another one to predict")
        # Wherever the first cut is, there are no more rows than this.
        self._rows = 1 + -(-(self._pairs - 1) // length) if shuffle else -(-self._pairs // length)
        most = batch_tokens // length * group
        self._steps = -(-self._rows // most)
        # As many rows in every step as fit them all, and as the micro-batches share evenly.
        self._step_rows = -(-self._rows // (self._steps * group)) * group
        self._epoch: tuple[int, np.ndarray] | None = None

    @property
    def steps_per_epoch(self) -> int:
        return self._steps

    @property
    def summary(self) -> str:
        documents = len(self._store)
        return (
            f"{len(self._store.tokens):,} tokens in {documents:,} document{'s' * (documents > 1)}, "
            f"{self._steps:,} steps an epoch"
        )

    def ids(self, step: int) -> np.ndarray:
        cuts = self._cuts(step)
        return np.where(cuts > -self._length, np.maximum(cuts, 0), -1)

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The rows of a step; ``ids`` are the places of their first tokens in the store."""
        cuts = self._cuts(step)[rows]
        starts = np.maximum(cuts, 0)
        stops = np.minimum(cuts + self._length, self._pairs)
        tokens, pad = self._store.tokens, np.int32(self._tokenizer.special.pad)
        places = starts[:, None] + np.arange(self._length)
        inside = places < stops[:, None]
        places = np.where(inside, places, 0)
        batch = {
            "inputs": np.where(inside, tokens[places], pad),
            "targets": np.where(inside, tokens[places + 1], pad),
            "weights": inside.astype(np.float32),
            "ids": self.ids(step)[rows].astype(np.int32),
        }
        return batch if len(self._store) == 1 else {**batch, **self._documents(places, inside)}

    def example(self, number: int) -> str:
        return self._tokenizer.decode_target(
            self._store.tokens[number : number + self._length].tolist()
        )

    def _cuts(self, step: int) -> np.ndarray:
        """Where the rows of a step begin, int64 [rows]; an empty one at -length."""
        epoch, position = divmod(step, self._steps)
        epoch = epoch if self._shuffle else 0
        cached = self._epoch  # one read: another thread may replace it meanwhile
        if cached is None or cached[0] != epoch:
            self._epoch = cached = (epoch, self._deal(epoch))
        return cached[1][position]

    def _deal(self, epoch: int) -> np.ndarray:
        """The `_cuts` of all steps, int64 [steps, rows]."""
        length = self._length
        dealt = np.full((self._step_rows, self._steps), -length, np.int64)
        cuts = np.arange(self._rows) * length
        if not self._shuffle:
            dealt = dealt.reshape(self._steps, self._step_rows)
            dealt.ravel()[: self._rows] = cuts
            return dealt
        # Raw output, because its stream is the same in every NumPy version.
        generator = np.random.PCG64(np.random.SeedSequence([self._seed, epoch]))
        cuts += 1 + int(generator.random_raw()) % length - length
        # With a late first cut the last row begins beyond the end.
        cuts[cuts >= self._pairs] = -length
        # Rows that are missing from the last round are missing from as many steps.
        order = np.argsort(generator.random_raw(self._rows), kind="stable")
        dealt.ravel()[: self._rows] = cuts[order]
        return dealt.T

    def _documents(self, places: np.ndarray, inside: np.ndarray) -> Batch:
        """Segments, positions, and weights that end with each document."""
        offsets = self._store.offsets
        document = np.searchsorted(offsets, places, side="right") - 1
        segments = document - document[:, :1] + 1
        positions = places - np.maximum(offsets[document], places[:, :1])
        same = offsets[document + 1] > places + 1
        return {
            "weights": (inside & same).astype(np.float32),
            "segments": np.where(inside, segments, 0).astype(np.int32),
            "positions": np.where(inside, positions, 0).astype(np.int32),
        }
