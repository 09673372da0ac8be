"""How probable a model finds texts: continuations of a context, and whole files."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.store import document_ends
from transformer.data.tokenizer import Tokenizer, check_ids
from transformer.decoding.beam import Vocabulary
from transformer.decoding.prefix import Ids, Prefix, bucket, extend, filled, padded, read, rows_of
from transformer.errors import UserError
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq

# Rows of logits alive at a time: [256, 50,000] float32 is 51 MB.
_ROWS = 256
# Where the model has no longest sequence.
_WINDOW = 1024


@dataclass(frozen=True)
class Score:
    """How probable a continuation is, natural logarithms.

    Attributes:
        log_probs: of each of its tokens, given the context and those before it.
        bytes: its length in UTF-8.
    """

    log_probs: list[float]
    bytes: int

    @property
    def total(self) -> float:
        """The continuation's log-likelihood."""
        return math.fsum(self.log_probs)

    @property
    def per_token(self) -> float:
        """The mean over its tokens; 0 of none."""
        return self.total / max(1, len(self.log_probs))

    @property
    def per_byte(self) -> float:
        """The total over its bytes; 0 of none."""
        return self.total / max(1, self.bytes)


@dataclass(frozen=True)
class Perplexity:
    """How probable a text is.

    Attributes:
        log_likelihood: of the tokens counted, in nats.
        tokens: how many were counted.
        bytes: of the whole text in UTF-8.
    """

    log_likelihood: float
    tokens: int
    bytes: int

    @property
    def loss(self) -> float:
        """Nats a token."""
        return -self.log_likelihood / self.tokens

    @property
    def perplexity(self) -> float:
        """``exp(loss)``."""
        return math.exp(self.loss) if self.loss < 700 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """Comparable between tokenizers."""
        return -self.log_likelihood / math.log(2) / self.bytes


class Scorer:
    """Scores texts with a language model, or targets of sources with an encoder-decoder.

    The probabilities are the model's over the tokenizer's vocabulary. Of an encoder-decoder the
    context is a source, and the end symbol is one of the continuation's tokens.

    Args:
        model: the network.
        params: its parameters.
        tokenizer: of the texts; the model's table may have more rows than it has ids.
        batch_size: texts scored together; no score depends on it.
        begin: precede every context by the tokenizer's begin token, as a new document.

    Raises:
        UserError: the tokenizer has more ids than the model, or no begin token.
    """

    def __init__(
        self,
        model: Seq2Seq | Decoder,
        params: Any,
        tokenizer: Tokenizer,
        batch_size: int = 8,
        begin: bool = False,
    ):
        self.model, self.params, self.tokenizer = model, params, tokenizer
        self.vocabulary = Vocabulary.of(model.config, tokenizer)
        self.batch_size, self.begin = batch_size, begin
        if batch_size < 1:
            raise UserError(f"batch_size = {batch_size}: expected at least 1")
        self._begin, _ = document_ends(tokenizer)
        if begin and not self._begin:
            raise UserError("begin = True: the tokenizer has no begin token")

    def score(
        self, pairs: Sequence[tuple[str, str]], names: Sequence[str] | None = None
    ) -> list[Score]:
        """Of each (context, continuation).

        Args:
            pairs: texts.
            names: what errors call them; None: text 1, text 2, ...

        Raises:
            UserError: a pair has too many tokens, or an empty context where the tokenizer has
                no begin token; or the model gives NaN.
        """
        found = self.score_ids([self.split(*pair) for pair in pairs], names=names)
        return [
            Score(log_probs, len(text.encode()))
            for log_probs, (_, text) in zip(found, pairs, strict=True)
        ]

    def split(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The ids of a context and of what continues it.

        They are encoded together, as the model has seen texts, and split before the first token
        that is not the context's: one that reaches over the border, such as a space and a word,
        belongs to the continuation.
        """
        if isinstance(self.model, Seq2Seq):
            end = [i for i in [self.tokenizer.special.end] if i >= 0]
            source = self.tokenizer.encode_source(context)
            return [*source, *end], [*self.tokenizer.encode_target(continuation), *end]
        alone, ids = self.tokenizer.encode_targets([context, context + continuation])
        same = common_length([alone, ids])
        begin = self._begin if self.begin or not same else []
        return [*begin, *ids[:same]], ids[same:]

    def prefill(self, rows: Sequence[Ids], prefix: Prefix | None = None) -> Prefix:
        """Reads rows of ids once, for any number of continuations of each.

        Args:
            rows: ids; a row may be empty after a prefix.
            prefix: one row that was read before them.
        """
        if not isinstance(self.model, Decoder):
            raise UserError("a prefix is for language models, this model is an encoder_decoder")
        for row in rows:
            self._check("prefix", [*(prefix.ids[0] if prefix else ()), *row], ())
        return read(self.model, self.params, rows, prefix)

    def score_ids(
        self,
        pairs: Sequence[tuple[Ids, Ids]],
        prefix: Prefix | None = None,
        parents: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> list[list[float]]:
        """The log-probability of each continuation's tokens.

        Args:
            pairs: ids of contexts and continuations. A language model's context has at least one.
            prefix: what was read before the contexts, from `prefill`.
            parents: which row of it, for each context; None: the first.
            names: as of `score`.

        Raises:
            UserError: as of `score`.
        """
        parents = parents if parents is not None else [0] * len(pairs)
        names = names or [f"text {i + 1}" for i in range(len(pairs))]
        for name, parent, (context, continuation) in zip(names, parents, pairs, strict=True):
            before = 0 if prefix is None else len(prefix.ids[parent])
            self._check(name, context, continuation, before)
        found: list[list[float]] = [[] for _ in pairs]
        full = [i for i, (_, continuation) in enumerate(pairs) if len(continuation)]
        order = sorted(full, key=lambda i: -len(pairs[i][0]) - len(pairs[i][1]))
        for start in range(0, len(order), self.batch_size):
            some = order[start : start + self.batch_size]
            origins = [parents[i] for i in some]
            scores = self._score_batch([pairs[i] for i in some], prefix, origins)
            for i, row in zip(some, scores, strict=False):
                found[i] = row[: len(pairs[i][1])].tolist()
                if np.isnan(found[i]).any():
                    raise UserError(f"{names[i]}: expected probabilities of the model, found NaN")
        return found

    def perplexity(
        self,
        text: str,
        window: int | None = None,
        stride: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Perplexity:
        """Of a text of any length: every token counts once, given at least ``window - stride``
        tokens before it, or all there are.

        The first token counts only where the begin token precedes it (`begin`): nothing else
        says how probable it is.

        Args:
            text: as it is, ends of lines included.
            window: tokens that the model sees at once; None: ``max_positions``, or 1024.
            stride: tokens counted in a window; None: half of it. 1 gives each token the most
                context there can be.
            progress: called with (tokens counted, tokens in all) now and then.

        Raises:
            UserError: the text has too few tokens, or `window` or `stride` do not fit.
        """
        if not isinstance(self.model, Decoder):
            raise UserError("perplexity of a text: expected a decoder, found an encoder_decoder")
        most = self.model.config.max_positions
        window = window if window is not None else most or _WINDOW
        if window < 1 or window > (most or window):
            raise UserError(f"window = {window}: expected 1 to {most or 'any number of'} tokens")
        stride = stride if stride is not None else max(1, window // 2)
        if not 1 <= stride <= window:
            raise UserError(f"stride = {stride}: expected 1 to window = {window}")
        ids = self.tokenizer.encode_target(text)
        check_ids(ids, self.vocabulary.size)
        ids = [*(self._begin if self.begin else ()), *ids]
        if len(ids) < 2:
            raise UserError(f"the text has {len(ids)} tokens: expected at least 2")
        total, done = 0.0, 0
        windows = list(_windows(len(ids), window, stride))
        for start in range(0, len(windows), self.batch_size):
            some = windows[start : start + self.batch_size]
            for row in self.score_ids([(ids[a:b], ids[b:c]) for a, b, c in some]):
                total, done = total + math.fsum(row), done + len(row)
            if progress is not None:
                progress(done, len(ids) - 1)
        return Perplexity(total, done, len(text.encode()))

    def _check(self, name: str, context: Ids, continuation: Ids, before: int = 0) -> None:
        try:
            check_ids([*context, *continuation], self.vocabulary.size)
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        if not len(context):
            raise UserError(f"{name} has no context: expected at least one token of it")
        limit = self.model.config.max_positions
        length = before + len(context) + max(0, len(continuation) - 1)  # The last is not read.
        if isinstance(self.model, Seq2Seq):  # The two have positions of their own.
            length = max(len(context), len(continuation))
        if limit is not None and length > limit:
            raise UserError(
                f"{name} has {length} tokens to be read: expected at most "
                f"model.max_positions = {limit}"
            )

    def _score_batch(
        self, pairs: list[tuple[Ids, Ids]], prefix: Prefix | None, parents: list[int]
    ) -> np.ndarray:
        """``[B, N]`` for batches of few shapes."""
        count = rows_of(len(pairs))
        width = bucket(max(len(target) for _, target in pairs))
        targets, _ = padded([target for _, target in pairs], count, width)
        statics = self.model, self.vocabulary.size
        if isinstance(self.model, Seq2Seq):
            pad, begin = self.model.config.pad_id, self.vocabulary.begin
            longest = bucket(max(len(source) for source, _ in pairs))
            source, _ = padded([source for source, _ in pairs], count, longest, pad)
            inputs, _ = padded([[begin, *target[:-1]] for _, target in pairs], count, width, pad)
            return np.asarray(_score_targets(*statics, self.params, source, inputs, targets))
        rows = [[*context, *continuation][:-1] for context, continuation in pairs]
        tokens, lengths = padded(rows, count, bucket(max(map(len, rows))))
        first = np.zeros(count, np.int32)
        first[: len(pairs)] = [len(context) - 1 for context, _ in pairs]
        known = None
        if prefix is not None:
            offsets = filled([len(prefix.ids[i]) for i in parents])
            known = prefix.cache, filled(parents), offsets.astype(np.int32)
        return np.asarray(
            _score_rows(*statics, self.params, tokens, lengths, first, targets, known)
        )


def common_length(rows: Sequence[Ids]) -> int:
    """How many ids all rows begin with."""
    columns = zip(*rows, strict=False)
    return next((i for i, ids in enumerate(columns) if len(set(ids)) > 1), min(map(len, rows)))


def _windows(count: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(first token seen, first counted, end): ``end - 1 - first`` tokens are seen at most."""
    counted, end = 1, min(count, window + 1)
    while counted < count:
        yield max(0, end - 1 - window), counted, end
        counted, end = end, min(count, end + stride)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _score_rows(model: Decoder, size, params, tokens, lengths, first, targets, known):
    width = tokens.shape[1]
    if known is None:
        segments = (jnp.arange(width) < lengths[:, None]).astype(jnp.int32)
        positions = jnp.where(segments > 0, jnp.arange(width), 0)
        hidden: Any = model.apply({"params": params}, tokens, segments, positions, method="hidden")
    else:
        cache, parents, offsets = known
        index = cache.positions.shape[1]
        cache = cache.fork(parents, index + width)
        hidden, _ = extend(model, params, tokens, lengths, offsets, cache, index)
    places = jnp.minimum(first[:, None] + jnp.arange(targets.shape[1]), width - 1)
    hidden = jnp.take_along_axis(hidden, places[..., None], axis=1)
    return _target_log_probs(model, size, params, hidden, targets)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _score_targets(model: Seq2Seq, size, params, source, inputs, targets):
    hidden: Any = model.apply({"params": params}, source, inputs, method="hidden")
    return _target_log_probs(model, size, params, hidden, targets)


def _target_log_probs(model: Seq2Seq | Decoder, size: int, params, hidden, targets):
    """``[B, N, D]`` to the targets' log-probabilities ``[B, N]``, some rows of logits at a time."""

    def score(row):
        logits: Any = model.apply({"params": params}, row[0][None, None], method="logits")
        logits = logits[0, 0, :size]
        return logits[row[1]] - jax.nn.logsumexp(logits)

    rows = hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)
    return jax.lax.map(score, rows, batch_size=_ROWS).reshape(targets.shape)
