"""A tokenizer with more ids at the end of its vocabulary: sentinels, delimiters."""

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from transformer.data.tokenizer import Encoded, Tokenizer
from transformer.errors import UserError

START, END = "<start>", "<end>"
"""Names that become the begin and end symbols where the base has none, as GPT-1's tokenizer."""
MASK = "[MASK]"
"""The name that becomes the mask where the base has none."""
SENTINELS = 100
"""As many as the published T5 has."""
_SENTINEL = "<extra_id_{}>"


class ExtendedTokenizer(Tokenizer):
    """Text is encoded as by another tokenizer; the ids beyond its own have names.

    No text is encoded to a named id, not even its name; decoded, it is its name.

    Args:
        base: encodes and decodes text.
        names: of the ids ``base.vocab_size``, ``base.vocab_size + 1``, ...
    """

    kind = "extended"

    def __init__(self, base: Tokenizer, names: Sequence[str]) -> None:
        self.base = base
        self.names = tuple(names)
        special = base.special
        if special.begin < 0 and START in self.names:
            special = special._replace(begin=self.id_of(START))
        if special.end < 0 and END in self.names:
            special = special._replace(end=self.id_of(END))
        self.special, self.mask = special, base.mask
        if self.mask < 0 and MASK in self.names:
            self.mask = self.id_of(MASK)

    @classmethod
    def from_state(cls, base: dict[str, Any], names: list[str]) -> "ExtendedTokenizer":
        return cls(Tokenizer.from_json(base), names)

    @property
    def vocab_size(self) -> int:
        return self.base.vocab_size + len(self.names)

    def id_of(self, name: str) -> int:
        """The id with this name."""
        return self.base.vocab_size + self.names.index(name)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self.base.encode_sources(texts)

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.base.encode_targets(texts)

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        return self.base.encode_with_offsets(texts)

    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str:
        parts = []
        for named, group in itertools.groupby(ids, lambda i: i >= self.base.vocab_size):
            run = list(group)
            parts += map(self._piece, run) if named else [self.base._join(run, side)]
        return " ".join(parts)

    def _piece(self, token: int) -> str:
        size = self.base.vocab_size
        return self.names[token - size] if token >= size else self.base._piece(token)

    def _state(self) -> dict[str, Any]:
        return {"base": self.base.to_json(), "names": list(self.names)}


def extended(tokenizer: Tokenizer, names: Sequence[str]) -> ExtendedTokenizer:
    """`tokenizer` with these names at its end; as it is if it has them already."""
    if isinstance(tokenizer, ExtendedTokenizer) and tokenizer.names == tuple(names):
        return tokenizer
    return ExtendedTokenizer(tokenizer, names)


def with_mask(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer with a mask: as it is if it has one, else with one more id.

    Raises:
        UserError: it is that of a published model, which has no row for another id.
    """
    if tokenizer.mask >= 0:
        return tokenizer
    if tokenizer.kind not in ("sentencepiece", "symbols", "bytes", "extended"):
        raise UserError(
            f"data.tokenizer: no mask ({MASK}) among the {tokenizer.vocab_size:,} ids of the "
            "vocabulary; expected one, which data.objective = 'masked_language_model' needs"
        )
    return ExtendedTokenizer(tokenizer, (MASK,))


def with_sentinels(tokenizer: Tokenizer) -> tuple[Tokenizer, np.ndarray]:
    """A tokenizer with T5's sentinels, and their ids in the order of their use, int32.

    As published they descend from the end of the vocabulary: ``<extra_id_0>`` is its last id.
    T5's own tokenizer, which has them, is returned as it is; others get 100.
    """
    last = tokenizer.vocab_size - 1
    count = 0
    while count <= last and tokenizer.pieces([last - count]) == [_SENTINEL.format(count)]:
        count += 1
    if not count:
        names = [_SENTINEL.format(i) for i in reversed(range(SENTINELS))]
        tokenizer, count = ExtendedTokenizer(tokenizer, names), SENTINELS
    return tokenizer, tokenizer.vocab_size - 1 - np.arange(count, dtype=np.int32)
