"""Tokenised pairs in one memory-mapped file, made once for the same texts and tokenizer."""

import hashlib
import os
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

# Changes whenever the file's layout or the meaning of its ids does.
_FORMAT = 1
_HEADER = 5  # format, checksum, pairs kept, source tokens, target tokens
# Texts encoded at once: many enough for the tokenizer's threads, few enough for memory.
_CHUNK = 20_000


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


def fingerprint(
    sources: Sequence[str], targets: Sequence[str], tokenizer: Tokenizer, max_length: int | None
) -> str:
    """A hash that differs if any text, the tokenizer or the length limit does."""
    digest = hashlib.sha256(f"{_FORMAT} {tokenizer.fingerprint} {max_length}".encode())
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

    Raises:
        UserError: the directory cannot be written to.
    """
    path = directory / f"{key}.npy"
    cached = _open(path)
    if cached is not None:
        return cached
    flat = _encode(sources, targets, tokenizer, max_length)
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
    built = _open(path)
    if built is None:
        raise UserError(f"data.data_dir: {path} does not read back as it was written")
    return built


def _encode(
    sources: Sequence[str], targets: Sequence[str], tokenizer: Tokenizer, max_length: int | None
) -> np.ndarray:
    """The file's content, flat: header, rows, lengths of both sides, tokens of both sides."""
    limit = np.inf if max_length is None else max_length
    end = tokenizer.special.end
    rows: list[int] = []
    lengths: tuple[list[int], list[int]] = ([], [])
    tokens: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for start in range(0, len(sources), _CHUNK):
        pairs = zip(
            tokenizer.encode_sources(sources[start : start + _CHUNK]),
            tokenizer.encode_targets(targets[start : start + _CHUNK]),
            strict=True,
        )
        kept = [(i, pair) for i, pair in enumerate(pairs, start) if max(map(len, pair)) <= limit]
        rows += [i for i, _ in kept]
        for side in (0, 1):
            lengths[side].extend(len(pair[side]) + 1 for _, pair in kept)
            chunk = [token for _, pair in kept for token in (*pair[side], end)]
            tokens[side].append(np.array(chunk, np.int32))
    parts = [np.array(part, np.int32) for part in (rows, *lengths)]
    body = np.concatenate([*parts, *tokens[0], *tokens[1]])
    header = [_FORMAT, _checksum(body), len(rows), sum(lengths[0]), sum(lengths[1])]
    if max(header) > np.iinfo(np.int32).max:
        raise UserError(f"{max(header)} tokens: expected fewer than 2**31 a side")
    return np.concatenate([np.array(header, np.int32), body])


def _checksum(body: np.ndarray) -> int:
    return zlib.crc32(body.data) & 0x7FFFFFFF


def _open(path: Path) -> TokenStore | None:
    """The store in `path`, or None if it is missing, partial or damaged."""
    try:
        flat = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError):
        return None
    if flat.dtype != np.int32 or flat.ndim != 1 or len(flat) < _HEADER:
        return None
    form, checksum, pairs, source_total, target_total = flat[:_HEADER].tolist()
    body = flat[_HEADER:]
    sizes = [pairs, pairs, pairs, source_total, target_total]
    if form != _FORMAT or sum(sizes) != len(body) or checksum != _checksum(body):
        return None
    rows, source_lengths, target_lengths, source, target = np.split(body, np.cumsum(sizes)[:-1])
    return TokenStore(rows, source, target, _offsets(source_lengths), _offsets(target_lengths))


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
