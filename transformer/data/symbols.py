"""Characters or words as tokens."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from transformer.config import DataConfig
from transformer.data.tokenizer import SPECIALS, UNK, UNKNOWN_TEXT, Tokenizer

Symbol = Literal["characters", "words"]


class Symbols(Tokenizer):
    """A symbol is a character or a space-separated word; both sides share the ids.

    Symbols that were not in the training text become UNK. Runs of spaces between
    words are not kept.
    """

    kind = "symbols"

    def __init__(self, symbols: Sequence[str], source: Symbol, target: Symbol) -> None:
        self._symbols = [*SPECIALS, *symbols]
        self._ids = {symbol: i for i, symbol in enumerate(symbols, start=len(SPECIALS))}
        self._units: dict[str, Symbol] = {"source": source, "target": target}

    @classmethod
    def from_state(cls, symbols: list[str], source: Symbol, target: Symbol) -> "Symbols":
        return cls(symbols, source, target)

    @classmethod
    def train(cls, sources: Sequence[str], targets: Sequence[str], config: DataConfig) -> "Symbols":
        """The distinct symbols of both sides, in the order of their code points."""
        found: set[str] = set()
        for text in sources:
            found.update(_segment(text, config.source_symbols))
        for text in targets:
            found.update(_segment(text, config.target_symbols))
        return cls(sorted(found), config.source_symbols, config.target_symbols)

    @property
    def vocab_size(self) -> int:
        return len(self._symbols)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encode(texts, self._units["source"])

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encode(texts, self._units["target"])

    def _encode(self, texts: Sequence[str], unit: Symbol) -> list[list[int]]:
        lookup = self._ids.get
        return [[lookup(symbol, UNK) for symbol in _segment(text, unit)] for text in texts]

    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str:
        separator = " " if self._units[side] == "words" else ""
        return separator.join(UNKNOWN_TEXT if i == UNK else self._symbols[i] for i in ids)

    def _piece(self, token: int) -> str:
        return self._symbols[token]

    def _state(self) -> dict[str, Any]:
        return {
            "symbols": self._symbols[len(SPECIALS) :],
            "source": self._units["source"],
            "target": self._units["target"],
        }


def _segment(text: str, unit: Symbol) -> Iterable[str]:
    """Splits at U+0020 only: other white space is part of a word."""
    return text if unit == "characters" else filter(None, text.split(" "))
