"""Text as the bytes of its UTF-8 form."""

from collections.abc import Sequence
from typing import Any, Literal

from transformer.data.tokenizer import SPECIALS, Tokenizer

_FIRST = len(SPECIALS)


class Bytes(Tokenizer):
    """Id 4 + b is byte b: no vocabulary is learnt, and no text is unknown.

    Bytes that are no UTF-8, which only a model can write, decode to U+FFFD.
    """

    kind = "bytes"

    @classmethod
    def from_state(cls) -> "Bytes":
        return cls()

    @property
    def vocab_size(self) -> int:
        return _FIRST + 256

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [[_FIRST + byte for byte in text.encode("utf-8")] for text in texts]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_sources(texts)

    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str:
        return bytes(i - _FIRST for i in ids if i >= _FIRST).decode("utf-8", errors="replace")

    def _piece(self, token: int) -> str:
        return SPECIALS[token] if token < _FIRST else f"<0x{token - _FIRST:02X}>"

    def _state(self) -> dict[str, Any]:
        return {}
