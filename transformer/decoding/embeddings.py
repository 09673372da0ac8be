"""Vectors of texts from an encoder: of sentences, and of their tokens."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from transformer.data.composing import Composer, layout_of, padded
from transformer.data.plan import length_batches
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.models.encoder import Encoder

Pool = Literal["mean", "cls", "max"]
"""How the vectors of a text's tokens, begin and end included, become one: their mean, the first
one ([CLS]), or the largest value in each dimension."""
Text = str | tuple[str, str]
"""One text, or two that are read together."""
Progress = Callable[[int, int], None]
"""Called with (texts done, texts in all)."""

_ON_CPU, _ON_ACCELERATOR = 1024, 65_536
"""Tokens of a batch, padding included. A CPU is the faster the more of a batch its caches hold;
an accelerator wants work."""
_ENCODED = 16_384
"""Texts tokenised at once."""


class Embedder:
    """Computes vectors of texts; no text's vector depends on the others.

    Texts are sorted by length and padded to few lengths, each with as many rows as `batch_tokens`
    allow, so few shapes are compiled; the results are in the order of the texts.

    Attributes:
        dim: of a vector.
        cut: how many of the texts so far were longer than `max_length`; of those the end is cut
            off, of a pair that of the longer text first.
        blank: how many of the texts so far had no tokens; their vectors are 0.

    Args:
        model: the network; any head will do.
        params: its parameters.
        tokenizer: that of the checkpoint.
        pool: see `Pool`.
        layers: whose hidden vectors are taken, one behind the other; 0: the embeddings, 1: the
            first layer, -1: the last.
        normalize: divide each vector by its length, so that dot products are cosines.
        max_length: most tokens of a text, begin and end included; None: as many as the model has
            positions, or 512.
        batch_tokens: most tokens of a batch, unless one text alone has more; None: what suits
            the device.

    Raises:
        UserError: a setting does not fit the model, or the tokenizer.
    """

    def __init__(
        self,
        model: Encoder,
        params: Any,
        tokenizer: Tokenizer,
        *,
        pool: Pool = "mean",
        layers: Sequence[int] = (-1,),
        normalize: bool = True,
        max_length: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        config = model.config
        self._check(model, tokenizer, pool, layers)
        longest = config.max_positions
        if max_length is None:
            max_length = longest or 512
        least = 3
        if max_length < least or (longest is not None and max_length > longest):
            expected = f"at least {least}" + (f", at most {longest}" if longest else "")
            raise UserError(f"max_length = {max_length}: expected {expected} (model.max_positions)")
        if batch_tokens is None:
            batch_tokens = _ON_CPU if jax.default_backend() == "cpu" else _ON_ACCELERATOR
        if batch_tokens < 1:
            raise UserError(f"batch_tokens = {batch_tokens}: expected at least 1")
        self.cut = self.blank = 0
        self.dim = config.model_dim * len(layers)
        self._model, self._params, self._tokenizer = model, params, tokenizer
        self._most, self._batch_tokens = max_length, batch_tokens
        layout = layout_of(tokenizer)
        self._composers = [Composer(layout, paired, max_length) for paired in (False, True)]
        count = config.num_layers + 1
        chosen = tuple(layer % count for layer in layers)
        run = functools.partial(_vectors, model, chosen)
        self._pooled = functools.partial(run, pool, normalize)
        self._each = functools.partial(run, None, normalize)

    def _check(self, model: Any, tokenizer: Tokenizer, pool: str, layers: Sequence[int]) -> None:
        if not isinstance(model, Encoder):
            raise UserError(
                f"model.architecture = {model.config.architecture!r}: expected 'encoder'"
            )
        rows, ids = model.config.vocab_size or 0, tokenizer.vocab_size
        if ids > rows:
            raise UserError(f"the tokenizer has {ids} ids: expected at most {rows}, the model's")
        if pool not in get_args(Pool):
            raise UserError(f"pool = {pool!r}: expected {' or '.join(get_args(Pool))}")
        most = model.config.num_layers
        for layer in layers:
            if not -most - 1 <= layer <= most:
                raise UserError(
                    f"layers = {tuple(layers)}: expected numbers from {-most - 1} to {most}, "
                    f"of a model of {most} layers (0: the embeddings, -1: the last)"
                )
        if not layers:
            raise UserError("layers = (): expected at least one")

    def __call__(self, texts: Sequence[Text], progress: Progress | None = None) -> np.ndarray:
        """A vector for each text, float32 ``[texts, dim]``, in their order."""
        found = np.zeros((len(texts), self.dim), np.float32)
        for rows, vectors, _ in self._run(self._pooled, texts, progress):
            found[rows] = vectors
        return found

    def tokens(self, texts: Sequence[Text], progress: Progress | None = None) -> list[np.ndarray]:
        """Of each text the vectors of its tokens, begin and end included.

        Returns:
            float32 ``[tokens, dim]`` each; none of a blank text.
        """
        found = [np.zeros((0, self.dim), np.float32)] * len(texts)
        for rows, vectors, lengths in self._run(self._each, texts, progress):
            for row, vector, length in zip(rows, vectors, lengths, strict=True):
                found[row] = vector[:length].copy()
        return found

    def _run(
        self, function: Any, texts: Sequence[Text], progress: Progress | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The numbers of some texts, what `function` finds for them, and their lengths."""
        sequences = self._compose(texts)
        lengths = np.array([len(tokens) for tokens, _ in sequences], int)
        done = int((lengths == 0).sum())
        waiting: tuple[np.ndarray, Any] | None = None

        def finish(rows: np.ndarray, vectors: Any):
            nonlocal done
            done += len(rows)
            if progress is not None:
                progress(done, len(texts))
            return rows, np.asarray(vectors)[: len(rows)], lengths[rows]

        for rows, count, length in length_batches(lengths, self._batch_tokens, self._most):
            pad = self._model.config.pad_id
            tokens, types = (
                padded([sequences[i][part] for i in rows], count, length, fill)
                for part, fill in ((0, pad), (1, 0))
            )
            vectors = function(self._params, tokens, types)
            # The next batch is made while this one is computed.
            if waiting is not None:
                yield finish(*waiting)
            waiting = rows, vectors
        if waiting is not None:
            yield finish(*waiting)

    def _compose(self, texts: Sequence[Text]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The tokens of each text and their types; none of a blank text."""
        sequences = []
        for start in range(0, len(texts), _ENCODED):
            part = texts[start : start + _ENCODED]
            firsts = self._encode([text if isinstance(text, str) else text[0] for text in part])
            seconds = self._encode(["" if isinstance(text, str) else text[1] for text in part])
            for text, first, second in zip(part, firsts, seconds, strict=True):
                composer = self._composers[not isinstance(text, str)]
                tokens = len(first) + len(second)
                if not tokens:
                    self.blank += 1
                    sequences.append((first, first))
                    continue
                sequence = composer.compose(first, second)
                self.cut += len(sequence[0]) < tokens + composer.added
                sequences.append(sequence)
        return sequences

    def _encode(self, texts: list[str]) -> list[np.ndarray]:
        if not any(texts):
            return [np.zeros(0, np.int32)] * len(texts)
        return [np.array(ids, np.int32) for ids in self._tokenizer.encode_targets(texts)]


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _vectors(model: Encoder, layers, pool: Pool | None, normalize: bool, params, tokens, types):
    """``[R, T]`` tokens to float32 ``[R, dim]``, or without `pool` ``[R, T, dim]``."""
    hidden, state = model.apply(
        {"params": params}, tokens, token_types=types, method="hidden", mutable=["hidden"]
    )
    every = (*state["hidden"]["encoder"]["layers"][:-1], hidden)
    vectors = jnp.concatenate([every[i] for i in layers], axis=-1).astype(jnp.float32)
    real = (tokens != model.config.pad_id)[..., None]
    match pool:
        case "mean":
            count = jnp.maximum(real.sum(axis=1), 1)
            vectors = jnp.where(real, vectors, 0.0).sum(axis=1) / count
        case "max":
            vectors = jnp.where(real, vectors, -jnp.inf).max(axis=1)
        case "cls":
            vectors = vectors[:, 0]
    if normalize:
        size = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
        vectors /= jnp.maximum(size, 1e-12)
    return vectors
