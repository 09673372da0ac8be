"""Tokenised texts in one memory-mapped file, made once for the same texts and tokenizer."""

import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

# Changes whenever the file's layout or the meaning of its ids does.
_FORMAT = 1
_HEADER = 3  # format, checksum, rows kept; then the tokens of each side
# Texts, and characters, encoded at once: many enough for the tokenizer's threads, few enough for
# memory.
_CHUNK = 20_000
_CHUNK_CHARACTERS = 5_000_000


@dataclass(frozen=True)
class TokenStore:
    """Pairs of token sequences, each ending with the tokenizer's end.

    Attributes:
        rows: int32 [pairs], the number of each pair among those given to `build`.
        source_tokens: int32, all sources one after the other.
        target_tokens: int32, all targets one after the other.
        source_offsets: int64 [pairs + 1]; pair i's source lies between offsets i and i + 1.
        target_offsets: int64 [pairs + 1].
    """

    rows: np.ndarray
    source_tokens: np.ndarray
    target_tokens: np.ndarray
    source_offsets: np.ndarray
    target_offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def source_lengths(self) -> np.ndarray:
        """Tokens of each source, the end included: int64 [pairs]."""
        return np.diff(self.source_offsets)

    @property
    def target_lengths(self) -> np.ndarray:
        """Tokens of each target, the end included: int64 [pairs]."""
        return np.diff(self.target_offsets)

    def source(self, index: int) -> np.ndarray:
        """Pair `index`'s source, the end included: int32 [length]."""
        return self.source_tokens[self.source_offsets[index] : self.source_offsets[index + 1]]

    def target(self, index: int) -> np.ndarray:
        """Pair `index`'s target, the end included: int32 [length]."""
        return self.target_tokens[self.target_offsets[index] : self.target_offsets[index + 1]]


@dataclass(frozen=True)
class DocumentStore:
    """Documents as token sequences, each between the tokenizer's begin and end, if it has them
    (sentences of `transformer.data.sentences` without).

    Attributes:
        tokens: int32, all documents one after the other.
        offsets: int64 [documents + 1]; document i lies between offsets i and i + 1.
    """

    tokens: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, index: int) -> np.ndarray:
        """Document `index`, begin and end included: int32 [length]."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]


def fingerprint(
    sources: Sequence[str],
    targets: Sequence[str],
    tokenizer: Tokenizer,
    max_length: int | None,
    together: bool = False,
) -> str:
    """A hash that differs if any text, the tokenizer or the length limit does."""
    limit = f"{max_length} together" if together else max_length
    digest = hashlib.sha256(f"{_FORMAT} {tokenizer.fingerprint} {limit}".encode())
    for texts in (sources, targets):
        # The lengths tell ["ab", "c"] from ["a", "bc"].
        digest.update(np.array([len(text) for text in texts], np.int64).tobytes())
        for start in range(0, len(texts), _CHUNK):
            digest.update("".join(texts[start : start + _CHUNK]).encode("utf-8"))
    return digest.hexdigest()


def open_or_build(
    directory: Path,
    key: str,
    sources: Sequence[str],
    targets: Sequence[str],
    tokenizer: Tokenizer,
    max_length: int | None,
    together: bool = False,
) -> TokenStore:
    """The cached store named `key` (see `fingerprint`), built if it is missing or damaged.

    The file appears in one atomic step, so processes that build it at the same
    time, or die while they do, leave a whole file or none.

    Args:
        directory: holds the files; made if need be.
        key: of these texts, this tokenizer and this limit.
        sources: N texts.
        targets: N texts.
        tokenizer: encodes them.
        max_length: pairs with more tokens on either side (the end not counted) are left out.
        together: both sides are parts of one sequence: both are encoded as targets, and
            `max_length` is of the sequence, with one begin and one end.

    Raises:
        UserError: the directory cannot be written to.
    """
    rows, lengths, tokens = _cached(
        directory, key, 2, lambda: _encode(sources, targets, tokenizer, max_length, together)
    )
    return TokenStore(rows, *tokens, *map(_offsets, lengths))


def open_or_build_documents(
    directory: Path, key: str, documents: Sequence[str], tokenizer: Tokenizer, ends: bool = True
) -> DocumentStore:
    """As `open_or_build`, for texts of one side: the target's.

    Args:
        ends: whether documents begin and end as `document_ends` says; the key must tell.
    """
    _, (lengths,), (tokens,) = _cached(
        directory, key, 1, lambda: _encode_documents(documents, tokenizer, ends)
    )
    return DocumentStore(tokens, _offsets(lengths))


_Parts = tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]
"""The rows kept; of each side the lengths; of each side the tokens."""


def _cached(directory: Path, key: str, sides: int, encode: Callable[[], np.ndarray]) -> _Parts:
    """The content of the file named `key`, which `encode` makes if need be."""
    path = directory / f"{key}.npy"
    cached = _open(path, sides)
    if cached is not None:
        return cached
    flat = encode()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=directory, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.save(file, flat)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UserError(f"data.data_dir: cannot write {path}: {error.strerror}") from error
    built = _open(path, sides)
    if built is None:
        raise UserError(f"data.data_dir: {path} does not read back as it was written")
    return built


def _encode(
    sources: Sequence[str],
    targets: Sequence[str],
    tokenizer: Tokenizer,
    max_length: int | None,
    together: bool,
) -> np.ndarray:
    """The file's content, see `_flat`."""

    encode_sources = tokenizer.encode_targets if together else tokenizer.encode_sources

    def length(pair: tuple[list[int], list[int]]) -> int:
        return sum(map(len, pair)) + 2 if together else max(map(len, pair))

    limit = np.inf if max_length is None else max_length
    end = tokenizer.special.end
    rows: list[int] = []
    lengths: tuple[list[int], list[int]] = ([], [])
    tokens: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for start in range(0, len(sources), _CHUNK):
        pairs = zip(
            encode_sources(sources[start : start + _CHUNK]),
            tokenizer.encode_targets(targets[start : start + _CHUNK]),
            strict=True,
        )
        kept = [(i, pair) for i, pair in enumerate(pairs, start) if length(pair) <= limit]
        rows += [i for i, _ in kept]
        for side in (0, 1):
            lengths[side].extend(len(pair[side]) + 1 for _, pair in kept)
            chunk = [token for _, pair in kept for token in (*pair[side], end)]
            tokens[side].append(np.array(chunk, np.int32))
    return _flat(rows, lengths, tokens)


def _encode_documents(documents: Sequence[str], tokenizer: Tokenizer, ends: bool) -> np.ndarray:
    """The file's content, see `_flat`."""
    before, after = document_ends(tokenizer) if ends else ([], [])
    lengths: list[int] = []
    tokens: list[np.ndarray] = []
    for chunk in _chunks(documents):
        for ids in tokenizer.encode_targets(chunk):
            tokens.append(np.array([*before, *ids, *after], np.int32))
            lengths.append(len(tokens[-1]))
    return _flat(list(range(len(documents))), [lengths], [tokens])


def document_ends(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids a document begins and ends with: at most one each.

    A begin that is padding (T5's) is none, unless it is the end as well (GPT-2's).
    """
    pad, begin, end, *_ = tokenizer.special
    begins = begin >= 0 and (begin != pad or begin == end)
    return [begin] if begins else [], [end] if end >= 0 else []


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in lists that are not too large."""
    chunk: list[str] = []
    size = 0
    for text in texts:
        if chunk and (len(chunk) == _CHUNK or size + len(text) > _CHUNK_CHARACTERS):
            yield chunk
            chunk, size = [], 0
        chunk.append(text)
        size += len(text)
    yield chunk


def _flat(
    rows: list[int], lengths: Sequence[list[int]], tokens: Sequence[list[np.ndarray]]
) -> np.ndarray:
    """Header, rows, lengths of each side, tokens of each side."""
    parts = [np.array(part, np.int32) for part in (rows, *lengths)]
    body = np.concatenate([*parts, *(part for side in tokens for part in side)])
    header = [_FORMAT, _checksum(body), len(rows), *map(sum, lengths)]
    if max(header) > np.iinfo(np.int32).max:
        raise UserError(f"{max(header)} tokens: expected fewer than 2**31 a side")
    return np.concatenate([np.array(header, np.int32), body])


def _checksum(body: np.ndarray) -> int:
    return zlib.crc32(body.data) & 0x7FFFFFFF


def _open(path: Path, sides: int) -> _Parts | None:
    """The content of `path`, or None if it is missing, partial or damaged."""
    try:
        flat = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    if flat.dtype != np.int32 or flat.ndim != 1 or len(flat) < _HEADER + sides:
        return None
    header, body = flat[: _HEADER + sides].tolist(), flat[_HEADER + sides :]
    form, checksum, count, *totals = header
    sizes = [count] * (1 + sides) + totals
    if form != _FORMAT or sum(sizes) != len(body) or checksum != _checksum(body):
        return None
    rows, *parts = np.split(body, np.cumsum(sizes)[:-1])
    return rows, parts[:sides], parts[sides:]


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
