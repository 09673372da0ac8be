"""From a prompt to text that goes on from it.

The host knows the text, the device the numbers. A prompt is read once and its cache copied for
each sample; a loop on the device draws some tokens before the host looks at them. Programs are
compiled for (rows, width of the prompts, places in the cache), each of few sizes, and for no
prompt or number of tokens in particular.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from transformer.config import GenerateConfig
from transformer.data.store import document_ends
from transformer.data.tokenizer import Tokenizer, check_ids
from transformer.decoding import decoder_beam, steps
from transformer.decoding.beam import Vocabulary
from transformer.decoding.pieces import TextPieces
from transformer.decoding.prefix import Ids, Prefix, bucket, filled, padded, read, rows_of
from transformer.decoding.sampling import NO_TOKEN
from transformer.errors import UserError
from transformer.models.cache import cache_bytes
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq

Text = str | Ids
"""A text, or the token ids it is made of."""
Finish = Literal["end", "stop", "length"]
"""What ended an output: the end symbol, a stop string, or `max_new_tokens`."""


@dataclass(frozen=True)
class Generated:
    """One output.

    Attributes:
        text: without the prompt, cut before a stop string.
        ids: its tokens, without the end symbol; those of a stop string are among them.
        finish: what ended it.
        score: of a beam, see `decoder_beam.search`.
    """

    text: str
    ids: list[int]
    finish: Finish
    score: float | None = None


class Piece(NamedTuple):
    """Some more text of one output; the last piece of each says what ended it."""

    prompt: int
    sample: int
    text: str
    finish: Finish | None = None


@dataclass
class _Row:
    """One output under way.

    Attributes:
        prompt: which one it goes on from.
        sample: its number among the prompt's.
        hash: of the prompt's ids.
        window: the ids that the model sees: the prompt's and its own.
        pieces: its text.
        finish: what has ended it.
        score: of a beam.
    """

    prompt: int
    sample: int
    hash: int
    window: list[int]
    pieces: TextPieces
    finish: Finish | None = None
    score: float | None = None


_News = Iterator[tuple[_Row, str]]
"""Rows with a new piece of their text; a row comes a last time when it has a `finish`."""


class Generator:
    """Generates text with a language model, or from sources with an encoder-decoder.

    A text is a function of the model, its prompt, the settings, the seed and its number among
    the samples; what else is generated, and how it is padded, does not change it. So the same
    prompt given twice has the same outputs twice: ask for more samples instead.

    Args:
        model: `Decoder`, or `Seq2Seq`, whose prompts are sources.
        params: its parameters.
        tokenizer: its target side is used, and the source side for sources; the model's table
            may have more rows than it has ids.
        config: the settings.
        log: is told the memory of each cache of a new size.
        patience: seconds that a call of the device should take, after which pieces of text
            come and an interrupt is heeded.

    Raises:
        UserError: the tokenizer has more ids than the model, or the settings do not fit it.
    """

    def __init__(
        self,
        model: Seq2Seq | Decoder,
        params: Any,
        tokenizer: Tokenizer,
        config: GenerateConfig,
        log: Callable[[str], None] | None = None,
        patience: float = 0.5,
    ):
        self.model, self.params = model, params
        self.tokenizer, self.config = tokenizer, config
        self.vocabulary = Vocabulary.of(model.config, tokenizer)
        self._log, self._patience = log, patience
        self._sizes: set[tuple[int, int]] = set()
        self._statics = model, config.sampling, self.vocabulary
        self._begin_ids, _ = document_ends(tokenizer)
        if config.begin and not self._begin_ids:
            raise UserError("begin = True: the tokenizer has no begin token")
        limit = model.config.max_positions
        if config.context is not None and (limit is None or config.context >= limit):
            raise UserError(
                f"context = {config.context}: expected less than model.max_positions = {limit}"
            )
        if isinstance(model, Seq2Seq) and (config.beam_size > 1 or config.context or config.begin):
            raise UserError(
                "beam_size, context and begin are for language models, this model is an "
                "encoder_decoder; `transformer translate` searches with a beam"
            )
        new = config.max_new_tokens
        if isinstance(model, Seq2Seq) and limit is not None and new > limit:
            raise UserError(f"max_new_tokens = {new}: expected at most max_positions = {limit}")

    def prefill(self, text: Text) -> Prefix:
        """Reads a text once, for any number of calls to go on from.

        Raises:
            UserError: as of `generate`.
        """
        return self._read([self._encode("prefix", text, None, 0)], None)

    def generate(
        self, prompts: Sequence[Text], prefix: Prefix | None = None
    ) -> list[list[Generated]]:
        """The outputs of each prompt: ``config.samples`` of them, in order.

        Args:
            prompts: texts, or ids. An empty one begins with the tokenizer's begin symbol.
            prefix: from `prefill`: what all prompts go on from. They are turned into tokens
                without it, and may be empty.

        Raises:
            UserError: a prompt is too long, empty where the tokenizer has no begin symbol, or
                holds an id that does not exist; or the model gives NaN.
        """
        found: list[dict[int, Generated]] = [{} for _ in prompts]
        for row, _ in self._run(prompts, prefix):
            if row.finish is not None:
                found[row.prompt][row.sample] = Generated(
                    row.pieces.text, row.pieces.ids, row.finish, row.score
                )
        return [[outputs[sample] for sample in sorted(outputs)] for outputs in found]

    def stream(self, prompts: Sequence[Text], prefix: Prefix | None = None) -> Iterator[Piece]:
        """As `generate`, but pieces of text as soon as they are certain, of several outputs mixed.

        No piece holds half a character or the beginning of a stop string.
        """
        for row, text in self._run(prompts, prefix):
            yield Piece(row.prompt, row.sample, text, row.finish)

    def _run(self, prompts: Sequence[Text], prefix: Prefix | None) -> _News:
        c = self.config
        encoded = [
            self._encode(f"prompt {i}", prompt, prefix, c.max_new_tokens)
            for i, prompt in enumerate(prompts, 1)
        ]
        together = max(1, c.batch_size // max(c.samples, c.beam_size))
        for start in range(0, len(encoded), together):
            batch = encoded[start : start + together]
            pairs = [(i, sample) for i in range(len(batch)) for sample in range(c.samples)]
            rows = [self._row(start + i, sample, batch[i], prefix) for i, sample in pairs]
            if c.beam_size > 1:
                yield from self._search(rows, batch, prefix)
                continue
            known: Any = batch if isinstance(self.model, Seq2Seq) else self._read(batch, prefix)
            for first in range(0, len(rows), c.batch_size):
                some = slice(first, first + c.batch_size)
                yield from self._draw(rows[some], known, [i for i, _ in pairs[some]])

    def _encode(self, name: str, prompt: Text, prefix: Prefix | None, new: int) -> list[int]:
        """The ids of a prompt, checked, with positions for `new` tokens after it."""
        special, config, sources = self.tokenizer.special, self.config, self.tokenizer.encode_source
        if isinstance(self.model, Seq2Seq):
            ids = [*sources(prompt), special.end] if isinstance(prompt, str) else list(prompt)
            before, new = 0, 0  # The target has positions of its own.
        else:
            ids = self.tokenizer.encode_target(prompt) if isinstance(prompt, str) else list(prompt)
            before = 0 if prefix is None else len(prefix.ids[0])
            if not before and (config.begin or not ids):
                ids = [*self._begin_ids, *ids]
        if not ids and (not before or config.beam_size > 1):
            why = "a beam goes on from its end" if before else "the tokenizer has no begin symbol"
            raise UserError(f"{name} is empty: expected text, {why}")
        try:
            check_ids(ids, self.vocabulary.size)
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        length, limit = before + len(ids), self.model.config.max_positions
        if limit is not None and length > limit:
            raise UserError(
                f"{name} has {length} tokens: expected at most model.max_positions = {limit}"
            )
        if limit is not None and config.context is None and length + new > limit:
            raise UserError(
                f"{name} has {length} tokens, and max_new_tokens = {new}: expected together at "
                f"most model.max_positions = {limit}, or a context to go on from beyond them"
            )
        return ids

    def _row(self, prompt: int, sample: int, ids: list[int], prefix: Prefix | None) -> _Row:
        past = ids if prefix is None else [*prefix.ids[0], *ids]
        window, shown = list(past), past
        if isinstance(self.model, Seq2Seq):
            window, shown = [self.vocabulary.begin], ()
        pieces = TextPieces(self.tokenizer, shown, self.config.stop)
        return _Row(
            prompt, sample, zlib.crc32(np.asarray(past, np.int32).tobytes()), window, pieces
        )

    def _read(self, rows: list[list[int]], prefix: Prefix | None) -> Prefix:
        return read(self._decoder(), self.params, rows, prefix)

    def _decoder(self) -> Decoder:
        if isinstance(self.model, Decoder):
            return self.model
        raise UserError("a prefix is for language models, this model is an encoder_decoder")

    def _draw(self, rows: list[_Row], known: Any, parents: list[int]) -> _News:
        """Samples. Where positions run out all rows are read anew, the full ones cut before."""
        while rows:
            yield from self._draw_while_positions_last(rows, known, parents)
            rows = [row for row in rows if row.finish is None]
            for row in rows:
                if len(row.window) > (self.model.config.max_positions or len(row.window)):
                    row.window = row.window[-(self.config.context or 0) :]
            if rows:
                known, parents = self._read([row.window for row in rows], None), [*range(len(rows))]

    def _draw_while_positions_last(self, rows: list[_Row], known: Any, parents: list[int]) -> _News:
        """All rows have as many tokens; the last one drawn is in no cache yet."""
        drawn, positions = len(rows[0].pieces.ids), np.array([len(row.window) for row in rows])
        limit = self.config.max_new_tokens - drawn
        if self.model.config.max_positions is not None:
            limit = min(limit, self.model.config.max_positions + 1 - int(positions.max()))
        state, index = self._begin(rows, known, parents, bucket(limit), drawn)
        yield from self._tell(rows, np.asarray(state.tokens)[:, None])
        taken, some = 1, 1
        while taken < limit and not all(row.finish for row in rows):
            began = time.perf_counter()
            state, tokens, number = steps.advance(
                *self._statics,
                self.params,
                rows=state,
                done=filled([row.finish is not None for row in rows], True),
                positions=filled(positions + taken - 1),
                index=index + taken - 1,
                count=drawn + taken,
                steps=min(some, limit - taken),
            )
            number = int(number)
            quick = time.perf_counter() - began < self._patience / 2
            some = min(2 * some, steps.MOST_STEPS) if quick else max(1, some // 2)
            taken += number
            yield from self._tell(rows, np.asarray(tokens)[:, :number])

    def _begin(self, rows: list[_Row], known: Any, parents: list[int], room: int, drawn: int):
        """The first token of each row, and where in the cache its key will be written."""
        places = 1 if isinstance(self.model, Seq2Seq) else known.places
        streams = steps.Streams(
            np.uint32(self.config.seed),
            np.uint32(filled([row.hash for row in rows])),
            filled([row.sample for row in rows]),
        )
        count, capacity = len(streams.samples), places + room
        encoder = isinstance(self.model, Seq2Seq)
        width = bucket(max(map(len, known))) if encoder else 0
        self._report(count, capacity, width)
        statics, origins = (*self._statics, capacity, self.params), filled(parents)
        if encoder:
            source, _ = padded(known, rows_of(len(known)), width, self.model.config.pad_id)
            return steps.begin_target(*statics, source, origins, streams), places
        read = known.hidden, known.cache
        return steps.begin(*statics, *read, origins, streams, drawn), places

    def _tell(self, rows: list[_Row], tokens: np.ndarray) -> _News:
        """Gives tokens ``[R, n]`` to the rows that have not ended."""
        for row, new in zip(rows, tokens, strict=False):
            for token in new.tolist():
                if row.finish is None and ((piece := self._push(row, token)) or row.finish):
                    yield row, piece

    def _push(self, row: _Row, token: int) -> str:
        if token == NO_TOKEN:
            raise _nan(row)
        if token == self.vocabulary.end:
            piece, row.finish = row.pieces.finish(), "end"
        else:
            row.window.append(token)
            piece = row.pieces.push(token)
            if len(row.pieces.ids) == self.config.max_new_tokens:
                piece, row.finish = piece + row.pieces.finish(), "length"
        if row.pieces.stopped:
            row.finish = "stop"
        return piece

    def _search(self, rows: list[_Row], batch: list[list[int]], prefix: Prefix | None) -> _News:
        model, c = self._decoder(), self.config
        found = decoder_beam.search(
            model, self.params, batch, c, self.vocabulary, prefix, self._report
        )
        for row in rows:
            outputs = found[row.prompt - rows[0].prompt]
            if not outputs:
                raise _nan(row)
            if row.sample >= len(outputs):
                continue  # The vocabulary has no more.
            ids, row.score = outputs[row.sample]
            tokens = ids if len(ids) == c.max_new_tokens else [*ids, self.vocabulary.end]
            yield row, "".join(self._push(row, token) for token in tokens if not row.finish)

    def _report(self, rows: int, capacity: int, source: int = 0) -> None:
        if self._log is None or (rows, capacity) in self._sizes:
            return
        self._sizes.add((rows, capacity))
        size = cache_bytes(self.model.config, rows, capacity, source) / 1e6
        sources = f" and {source} of a source" if source else ""
        self._log(f"cache of {rows} x {capacity} tokens{sources}: {size:,.1f} MB")


def _nan(row: _Row) -> UserError:
    return UserError(f"prompt {row.prompt + 1}: expected probabilities of the model, found NaN")
