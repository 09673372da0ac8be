"""Text to token ids and back; a tokenizer travels as JSON inside the checkpoint."""

import base64
import hashlib
import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import sentencepiece

from transformer.config import DataConfig
from transformer.errors import UserError

PAD, UNK, BOS, EOS = range(4)
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


class SpecialIds(NamedTuple):
    """Ids that mean no text; the tokenizers of other programs have other ones.

    Attributes:
        pad: fills up rows; never looked at.
        begin: what a target, or a document, begins with (T5's is its padding, GPT-2's its end);
            -1: the vocabulary has none (GPT-1).
        end: what a sequence ends with; -1: the vocabulary has none.
        never: ids that no output may hold.
        also_ends: other ids that end an output, such as the end of a turn of a chat.
    """

    pad: int
    begin: int
    end: int
    never: tuple[int, ...]
    also_ends: tuple[int, ...] = ()


class Encoded(NamedTuple):
    """The ids of a text, without begin and end, and the characters of the text that each of them
    stands for: its first, and its last + 1."""

    ids: list[int]
    offsets: list[tuple[int, int]]


UNKNOWN_TEXT = "⁇"

# The unigram algorithm's result depends on its number of threads, so that is fixed.
_TRAINER_THREADS = 2
# Sentencepiece leaves out training lines longer than this many bytes.
_TRAINER_LINE_BYTES = 65_536
# Lines the vocabulary is learned from at most; beyond, evenly spaced ones are taken.
_TRAINER_LINES = 4_000_000


def check_ids(ids: Iterable[int], vocab_size: int) -> None:
    """Refuses ids outside the vocabulary, which gathers on a device clamp silently.

    Raises:
        UserError: an id is negative or at least `vocab_size`; the message names it.
    """
    for position, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise UserError(
                f"token id {token} at position {position}: expected 0 to {vocab_size - 1} "
                f"(a vocabulary of {vocab_size})"
            )


class Tokenizer(ABC):
    """One vocabulary for both sides; ids 0 to 3 are padding, unknown, begin and end unless
    `special` says otherwise."""

    kind: str
    special = SpecialIds(PAD, BOS, EOS, never=(PAD, UNK, BOS))
    begins_texts = False
    """Whether its model expects the begin id before every text, as Llama does."""
    separators = 1
    """End symbols between the two texts of a pair: RoBERTa's has two."""
    mask = -1
    """The id that stands for a hidden token (BERT's [MASK]); -1: there is none."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, specials included."""

    @abstractmethod
    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without begin and end."""

    @abstractmethod
    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without begin and end."""

    @abstractmethod
    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str: ...

    @abstractmethod
    def _piece(self, token: int) -> str: ...

    @abstractmethod
    def _state(self) -> dict[str, Any]: ...

    def encode_source(self, text: str) -> list[int]:
        """The ids of `text`, without begin and end."""
        return self.encode_sources([text])[0]

    def encode_target(self, text: str) -> list[int]:
        """The ids of `text`, without begin and end."""
        return self.encode_targets([text])[0]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        """As `encode_sources`, with the characters that each id stands for.

        Raises:
            UserError: this kind of tokenizer does not know them.
        """
        raise UserError(
            f"a tokenizer of kind {self.kind!r} does not say where in a text its tokens are: "
            "expected a WordPiece vocabulary or a tokenizer.json"
        )

    def decode_source(self, ids: Iterable[int]) -> str:
        """The text of `ids`; padding, begin and end are left out, unknown becomes "⁇".

        Raises:
            UserError: an id outside the vocabulary.
        """
        return self._join(self._checked(ids, skip=self._silent), "source")

    def decode_target(self, ids: Iterable[int]) -> str:
        """As `decode_source`, for the target side."""
        return self._join(self._checked(ids, skip=self._silent), "target")

    @property
    def _silent(self) -> tuple[int, ...]:
        """Padding, begin and end; where rows are filled up with a token of the text, not that."""
        pad, begin, end, never, _ = self.special
        return (pad, begin, end) if pad in never else (begin, end)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """What each id stands for, specials included: labels for pictures and logs.

        Raises:
            UserError: an id outside the vocabulary.
        """
        return [self._piece(i) for i in self._checked(ids)]

    def to_json(self) -> dict[str, Any]:
        """JSON types from which `from_json` makes an equal tokenizer."""
        return {"kind": self.kind, **self._state()}

    @staticmethod
    def from_json(values: dict[str, Any]) -> "Tokenizer":
        """The inverse of `to_json`.

        Raises:
            UserError: `values` describe no tokenizer.
        """
        from transformer.data.byte_tokenizer import Bytes
        from transformer.data.extended_tokenizer import ExtendedTokenizer
        from transformer.data.pretrained_sentencepiece import Marian, SentencePieceFile
        from transformer.data.pretrained_tokenizer import PretrainedTokenizer, TokenIds
        from transformer.data.symbols import Symbols

        state = {key: value for key, value in values.items() if key != "kind"}
        classes = (SentencePiece, Symbols, Bytes, ExtendedTokenizer)
        classes += (PretrainedTokenizer, SentencePieceFile, Marian, TokenIds)
        kinds = {kind.kind: kind for kind in classes}
        if values.get("kind") not in kinds:
            raise UserError(f"tokenizer kind {values.get('kind')!r}: expected {' or '.join(kinds)}")
        return kinds[values["kind"]].from_state(**state)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides how text is encoded."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def _checked(self, ids: Iterable[int], skip: tuple[int, ...] = ()) -> list[int]:
        checked = [int(i) for i in ids]
        check_ids(checked, self.vocab_size)
        return [i for i in checked if i not in skip]


class SentencePiece(Tokenizer):
    """Subwords, shared by source and target (Kudo and Richardson 2018).

    Without normalisation decoding is the exact inverse of encoding, for any text
    but a literal "▁" (U+2581), sentencepiece's own mark for a space: it comes back
    as a space. Characters the vocabulary lacks are spelled in UTF-8 bytes. Names
    of specials in a text, such as "</s>", are text.
    """

    kind = "sentencepiece"

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def from_state(cls, model: str) -> "SentencePiece":
        return cls(base64.b64decode(model))

    @classmethod
    def train(cls, lines: Sequence[str], config: DataConfig) -> "SentencePiece":
        """Learns a vocabulary of exactly `config.vocab_size` pieces from `lines`.

        Raises:
            UserError: the size is impossible with these lines; the message gives the bound.
        """
        stride = -(-len(lines) // _TRAINER_LINES)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(part for line in lines[::stride] for part in line.split("\n")),
                model_writer=model,
                vocab_size=config.vocab_size,
                model_type=config.sentencepiece_type,
                normalization_rule_name=config.normalization,
                remove_extra_whitespaces=False,
                byte_fallback=True,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                unk_surface=UNKNOWN_TEXT,
                num_threads=_TRAINER_THREADS,
                max_sentence_length=_TRAINER_LINE_BYTES,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise UserError(
                f"data.vocab_size = {config.vocab_size}: {_size_problem(str(error))}"
            ) from error
        return cls(model.getvalue())

    @property
    def vocab_size(self) -> int:
        return self._processor.get_piece_size()

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(list(texts))

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_sources(texts)

    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str:
        return self._processor.decode(ids)

    def _piece(self, token: int) -> str:
        return self._processor.id_to_piece(token)

    def _state(self) -> dict[str, Any]:
        return {"model": base64.b64encode(self.model).decode("ascii")}


def _size_problem(message: str) -> str:
    """Sentencepiece's complaint in one line, with the bound it names."""
    if found := re.search(r"value <= (\d+)", message):
        return f"the training text supports at most {found[1]} pieces"
    if found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return f"expected at least {found[1]} (specials, bytes and the text's characters)"
    return f"sentencepiece cannot train: {' '.join(message.split())}"


def train_tokenizer(
    config: DataConfig, sources: Sequence[str], targets: Sequence[str]
) -> Tokenizer:
    """The tokenizer `config` describes, made from the training split.

    Raises:
        UserError: `config.vocab_size` is impossible with these texts.
    """
    match config.tokenizer:
        case "symbols":
            from transformer.data.symbols import Symbols

            return Symbols.train(sources, targets, config)
        case "bytes":
            from transformer.data.byte_tokenizer import Bytes

            return Bytes()
        case "file":
            from transformer.data.pretrained_tokenizer import PretrainedTokenizer

            return PretrainedTokenizer.from_file(str(config.tokenizer_file))
        case "wordpiece":
            from transformer.data.wordpiece_training import train_wordpiece

            return train_wordpiece([*sources, *targets], config)
        case "sentencepiece":
            return SentencePiece.train([*sources, *targets], config)
