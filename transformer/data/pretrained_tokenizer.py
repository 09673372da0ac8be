"""The tokenizers of published models: a ``tokenizer.json``, a ``vocab.txt``, and none at all."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from transformer.data.tokenizer import Encoded, SpecialIds, Tokenizer
from transformer.data.wordpiece import control_names, read_vocabulary, wordpiece_json
from transformer.errors import UserError

CONFIG_FILE = "tokenizer_config.json"
_COMPANIONS = ("special_tokens_map.json", CONFIG_FILE)

# What the tokens are called where no file says it.
_NAMES = {
    "pad_token": ("<pad>", "[PAD]", "<|pad|>"),
    "bos_token": ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>"),
    "eos_token": ("</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>"),
    "unk_token": ("<unk>", "[UNK]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
}


class PretrainedTokenizer(Tokenizer):
    """The vocabulary of a ``tokenizer.json``, as the library `tokenizers` reads it.

    Names of control tokens (padding, begin, end, unknown, mask) in a text are text. Other added
    tokens, such as T5's sentinels or the marks of a chat, are recognised in texts.

    Attributes:
        mask: the id that stands for a hidden token (BERT's [MASK]); -1: none.

    Args:
        text: the contents of the file.
        special: its ids without a text of their own.
        config: of ``tokenizer_config.json``; kept for `transformer export`.

    Raises:
        UserError: the package `tokenizers` is missing, or `text` is no ``tokenizer.json``.
    """

    kind = "tokenizer.json"

    def __init__(self, text: str, special: SpecialIds, config: Mapping[str, Any] | None = None):
        self.text, self.special, self.config = text, special, dict(config or {})
        control = {special.pad, special.begin, special.end, *special.never}
        self._model = _parse(text, control)
        self.mask = _named("mask_token", self.config, self._model.token_to_id)
        if self.mask not in {-1, *control}:
            self._model = _parse(text, {self.mask, *control})
        self._model.encode_special_tokens = True
        self._size = _size(self._model)
        first = self._model.encode("a", add_special_tokens=True).ids[:1]
        asked = bool(self.config.get("add_bos_token")) or first == [special.begin]
        self.begins_texts = special.begin >= 0 and asked
        pair = self._model.encode("a", "b", add_special_tokens=True).ids
        self.separators = max(1, pair.count(special.end) - 1)

    @classmethod
    def from_file(cls, path: str | Path, settings: Mapping[str, Any] | None = None):
        """Reads a ``tokenizer.json``, or a ``vocab.txt`` of WordPiece; the files beside it say
        which ids are special.

        Args:
            path: of the file.
            settings: of the model's ``config.json``, which go first.

        Raises:
            UserError: the file is missing or damaged, a ``vocab.txt`` lacks a control token, or
                `tokenizers` is not installed.
        """
        path = Path(path)
        text, config = read_text(path), tokenizer_config(path.parent)
        try:
            if path.suffix == ".txt":
                config = control_names(config) | config
                text = wordpiece_json(read_vocabulary(text), config)
            model = _parse(text)
            settings = {**(settings or {}), **_generation_ends(path.parent)}
            special = find_special(settings, config, model.token_to_id, _size(model))
            return cls(text, special, config)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @classmethod
    def from_state(
        cls, text: str, special: Sequence[Any], config: dict[str, Any]
    ) -> "PretrainedTokenizer":
        return cls(text, special_from_state(special), config)

    @property
    def vocab_size(self) -> int:
        return self._size

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._model.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_sources(texts)

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        encodings = self._model.encode_batch(list(texts), add_special_tokens=False)
        return [Encoded(encoding.ids, encoding.offsets) for encoding in encodings]

    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str:
        return self._model.decode(ids, skip_special_tokens=False)

    def _piece(self, token: int) -> str:
        return self._model.id_to_token(token) or f"<{token}>"

    def _state(self) -> dict[str, Any]:
        return {"text": self.text, "special": list(self.special), "config": self.config}


class TokenIds(Tokenizer):
    """For a model that has no tokenizer: a text is token ids separated by spaces, "5 0 2".

    Raises:
        UserError: on encoding, a word that is no id below `size`.
    """

    kind = "ids"

    def __init__(self, size: int, special: SpecialIds) -> None:
        self.size, self.special = size, special

    @classmethod
    def from_state(cls, size: int, special: Sequence[Any]) -> "TokenIds":
        return cls(size, special_from_state(special))

    @property
    def vocab_size(self) -> int:
        return self.size

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._id(word) for word in text.split()] for text in texts]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encode_sources(texts)

    def _id(self, word: str) -> int:
        if not (word.isascii() and word.isdigit() and int(word) < self.size):
            raise UserError(
                f"{word!r}: expected token ids from 0 to {self.size - 1}, separated by spaces "
                "(the model came without a tokenizer)"
            )
        return int(word)

    def _join(self, ids: list[int], side: Literal["source", "target"]) -> str:
        return " ".join(map(str, ids))

    def _piece(self, token: int) -> str:
        return str(token)

    def _state(self) -> dict[str, Any]:
        return {"size": self.size, "special": list(self.special)}


def find_special(
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
    id_of: Callable[[str], int | None],
    size: int,
) -> SpecialIds:
    """The special ids by what the files of a published model say, the first of:

    ``config.json`` (``eos_token_id``; of several the first, the others are `also_ends`; ids beyond
    the vocabulary, which untouched defaults are, name nothing), ``tokenizer_config.json``
    (``eos_token``), the usual names. BERT's begin and end are its ``cls_token`` and
    ``sep_token``. Rows are filled up with the end where there is no padding (with 0 where there
    is neither), and begin with it where there is no begin; the outputs of encoder-decoders begin
    with ``decoder_start_token_id``, or as T5's and Marian's with padding.

    Args:
        settings: of the model's ``config.json``.
        config: of ``tokenizer_config.json``.
        id_of: the id of a token, None if there is no such token.
        size: ids from here on do not exist.
    """

    def given(name: str) -> list[int]:
        known = settings.get(f"{name}_id")
        known = known if isinstance(known, list) else [known]
        return [i for i in known if isinstance(i, int) and 0 <= i < size]

    def by_id(role: str) -> int:
        return next(iter(given(role)), -1)

    def by_name(role: str) -> int:
        return _named(role, config, id_of) if config.get(role) is not None else -1

    def by_usual_name(role: str) -> int:
        return _named(role, {}, id_of) if config.get(role) is None else -1

    def look_up(*roles: str) -> int:
        """What is said of any of them goes before what another is usually called."""
        found = (look(role) for look in (by_id, by_name, by_usual_name) for role in roles)
        return next((i for i in found if i >= 0), -1)

    end, mask = look_up("eos_token", "sep_token"), look_up("mask_token")
    begin, pad, unknown = map(look_up, ("decoder_start_token", "pad_token", "unk_token"))
    if begin < 0:
        begin = pad if settings.get("is_encoder_decoder") else look_up("bos_token", "cls_token")
    if begin < 0:
        begin = end
    ends = given("eos_token")
    never = sorted({pad, begin, unknown, mask} - {end, *ends, -1})
    pad = pad if pad >= 0 else max(end, 0)
    return SpecialIds(pad, begin, end, tuple(never), also_ends=tuple(ends[1:]))


def _generation_ends(folder: Path) -> dict[str, Any]:
    """What ends an output by ``generation_config.json``, where chat models say it."""
    path = folder / "generation_config.json"
    found = read_json(path).get("eos_token_id") if path.is_file() else None
    return {} if found is None else {"eos_token_id": found}


def special_from_state(values: Sequence[Any]) -> SpecialIds:
    """The inverse of ``list(special)`` after a journey through JSON."""
    pad, begin, end, never, *others = values
    return SpecialIds(pad, begin, end, tuple(never), *map(tuple, others))


def tokenizer_config(folder: Path) -> dict[str, Any]:
    """What ``special_tokens_map.json`` and ``tokenizer_config.json`` say, the latter first."""
    found: dict[str, Any] = {}
    for name in _COMPANIONS:
        if (folder / name).is_file():
            found |= read_json(folder / name)
    return found


def read_text(path: Path) -> str:
    """A text file in UTF-8.

    Raises:
        UserError: it is missing or no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected text in UTF-8") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        UserError: it is missing or holds something else.
    """
    try:
        values = json.loads(read_text(path))
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: expected JSON ({error})") from error
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object, found {type(values).__name__}")
    return values


def _size(model: Any) -> int:
    """Ids of a tokenizer of the library: there may be gaps between them."""
    return 1 + max(model.get_vocab(with_added_tokens=True).values(), default=-1)


def _named(role: str, config: Mapping[str, Any], id_of: Callable[[str], int | None]) -> int:
    """The id of a token by the name of ``tokenizer_config.json``, or a usual one; -1: none."""
    named = config.get(role)
    named = named.get("content") if isinstance(named, dict) else named
    texts = _NAMES.get(role, ()) if named is None else (named,)
    return next((i for i in map(id_of, texts) if i is not None), -1)


def _parse(text: str, control: Iterable[int] | None = None) -> Any:
    """The tokenizer of a file; where `control` is given see `_with_control_tokens`."""
    try:
        import tokenizers
    except ImportError as error:
        raise UserError(
            'the package tokenizers is missing: pip install "transformer[hf]"'
        ) from error
    try:
        if control is not None:
            text = _with_control_tokens(text, control)
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises no narrower type
        raise UserError(f"expected a tokenizer.json ({error})") from error


def _with_control_tokens(text: str, control: Iterable[int]) -> str:
    """The file with these added tokens marked special and no others, not cut and not padded.

    The library leaves exactly those alone that are marked special.
    """
    ids, values = set(control), json.loads(text)
    for token in values.get("added_tokens", ()):
        token["special"] = token["id"] in ids
    return json.dumps(values | {"truncation": None, "padding": None})
