"""The tokenizers of published models that come as sentencepiece models: Marian, T5, Llama."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import sentencepiece

from transformer.data.pretrained_tokenizer import (
    find_special,
    read_json,
    special_from_state,
    tokenizer_config,
)
from transformer.data.tokenizer import SpecialIds, Tokenizer
from transformer.errors import UserError

_SENTINEL = re.compile(r"(<extra_id_\d+>)")
_LANGUAGE = re.compile(r">>\S+?<<")


class SentencePieceFile(Tokenizer):
    """A published ``spiece.model`` (T5) or ``tokenizer.model`` (Llama).

    T5's sentinels follow the pieces, ``<extra_id_0>`` last, and are recognised in texts.

    Args:
        model: the contents of the file.
        special: its ids without a text of their own.
        sentinels: how many.
        config: of ``tokenizer_config.json``; kept for `transformer export`.
    """

    kind = "sentencepiece.model"

    def __init__(
        self,
        model: bytes,
        special: SpecialIds,
        sentinels: int = 0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.special, self.sentinels = model, special, sentinels
        self.config = dict(config or {})
        self.begins_texts = bool(self.config.get("add_bos_token")) and special.begin >= 0
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._pieces = self._processor.get_piece_size()

    @classmethod
    def from_file(cls, path: str | Path, settings: Mapping[str, Any]) -> "SentencePieceFile":
        """Reads the file; T5's ``spiece.model`` gets its 100 sentinels, or as many as
        ``tokenizer_config.json`` says in ``extra_ids``.

        Args:
            path: of the file.
            settings: of the model's ``config.json``.

        Raises:
            UserError: the file is damaged.
        """
        path = Path(path)
        processor, config = _load(path), tokenizer_config(path.parent)
        sentinels = config.get("extra_ids", 100 if path.name == "spiece.model" else 0)

        def id_of(token: str) -> int | None:
            found = processor.piece_to_id(token)
            return found if processor.id_to_piece(found) == token else None

        size = processor.get_piece_size() + sentinels
        special = find_special(settings, config, id_of, size)
        return cls(path.read_bytes(), special, sentinels, config)

    @classmethod
    def from_state(
        cls, model: str, special: Sequence[Any], sentinels: int, config: dict[str, Any]
    ) -> "SentencePieceFile":
        return cls(base64.b64decode(model), special_from_state(special), sentinels, config)

    @property
    def vocab_size(self) -> int:
        return self._pieces + self.sentinels

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        if not self.sentinels:
            return self._processor.encode(list(texts))
        return [self._with_sentinels(text) for text in texts]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_sources(texts)

    def _with_sentinels(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in _SENTINEL.split(text):
            number = int(part[10:-1]) if _SENTINEL.fullmatch(part) else self.sentinels
            if number < self.sentinels:
                ids.append(self.vocab_size - 1 - number)
            else:
                ids += self._processor.encode(part)
        return ids

    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str:
        parts: list[str] = []
        run: list[int] = []
        for token in [*ids, self._pieces]:
            if token < self._pieces:
                run.append(token)
                continue
            parts.append(self._processor.decode(run))
            parts.append(self._piece(token))
            run = []
        return " ".join(filter(None, parts[:-1]))

    def _piece(self, token: int) -> str:
        if token >= self._pieces:
            return f"<extra_id_{self.vocab_size - 1 - token}>"
        return self._processor.id_to_piece(token)

    def _state(self) -> dict[str, Any]:
        return {
            "model": base64.b64encode(self.model).decode("ascii"),
            "special": list(self.special),
            "sentinels": self.sentinels,
            "config": self.config,
        }


class Marian(Tokenizer):
    """Marian's: one sentencepiece model for each side, and one vocabulary of their pieces.

    A model of several target languages is told which by a first word such as ``>>fra<<``.

    Args:
        models: the contents of ``source.spm`` and ``target.spm``.
        vocabulary: the pieces by id.
        special: ids without a text of their own.
        config: of ``tokenizer_config.json``; kept for `transformer export`.
    """

    kind = "marian"

    def __init__(
        self,
        models: tuple[bytes, bytes],
        vocabulary: Sequence[str],
        special: SpecialIds,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.models, self.vocabulary, self.special = models, list(vocabulary), special
        self.config = dict(config or {})
        self._ids = {piece: i for i, piece in enumerate(self.vocabulary)}
        self._unknown = self._ids["<unk>"]
        self._sides = {
            side: sentencepiece.SentencePieceProcessor(model_proto=model)
            for side, model in zip(("source", "target"), models, strict=True)
        }

    @classmethod
    def from_folder(cls, folder: str | Path, settings: Mapping[str, Any]) -> "Marian":
        """Reads ``source.spm``, ``target.spm`` and ``vocab.json``.

        Args:
            folder: where they are.
            settings: of the model's ``config.json``.

        Raises:
            UserError: a file is missing or damaged.
        """
        folder = Path(folder)
        pieces = read_json(folder / "vocab.json")
        if sorted(pieces.values()) != list(range(len(pieces))) or "<unk>" not in pieces:
            raise UserError(
                f"{folder / 'vocab.json'}: expected pieces, <unk> among them, with the ids "
                f"0 to {len(pieces) - 1}"
            )
        files = folder / "source.spm", folder / "target.spm"
        for file in files:
            _load(file)
        config = tokenizer_config(folder)
        special = find_special(settings, config, pieces.get, len(pieces))
        source, target = (file.read_bytes() for file in files)
        return cls((source, target), sorted(pieces, key=pieces.__getitem__), special, config)

    @classmethod
    def from_state(
        cls,
        models: list[str],
        vocabulary: list[str],
        special: Sequence[Any],
        config: dict[str, Any],
    ) -> "Marian":
        source, target = map(base64.b64decode, models)
        return cls((source, target), vocabulary, special_from_state(special), config)

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = []
        for text in texts:
            code = _LANGUAGE.match(text)
            if code and code[0] in self._ids:
                rest = self._encode([text[code.end() :]], "source")[0]
                encoded.append([self._ids[code[0]], *rest])
            else:
                encoded += self._encode([text], "source")
        return encoded

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self._encode(texts, "target")

    def _encode(self, texts: Sequence[str], side: str) -> list[list[int]]:
        pieces = self._sides[side].encode(list(texts), out_type=str)
        return [[self._ids.get(piece, self._unknown) for piece in line] for line in pieces]

    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str:
        return self._sides[side].decode([self.vocabulary[i] for i in ids])

    def _piece(self, token: int) -> str:
        return self.vocabulary[token]

    def _state(self) -> dict[str, Any]:
        return {
            "models": [base64.b64encode(model).decode("ascii") for model in self.models],
            "vocabulary": self.vocabulary,
            "special": list(self.special),
            "config": self.config,
        }


def _load(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except Exception as error:  # the library raises several types
        raise UserError(f"{path}: expected a sentencepiece model") from error
