"""The tokenizer files of a Hugging Face folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer.config import ModelConfig
from transformer.data.pretrained_sentencepiece import Marian, SentencePieceFile
from transformer.data.pretrained_tokenizer import (
    CONFIG_FILE,
    PretrainedTokenizer,
    TokenIds,
    find_special,
)
from transformer.data.tokenizer import SentencePiece, Tokenizer
from transformer.data.wordpiece import wordpiece_settings, write_vocabulary
from transformer.errors import UserError

_SENTENCEPIECE = ("spiece.model", "tokenizer.model")


def read_tokenizer(
    folder: str | Path, settings: Mapping[str, Any], model: ModelConfig
) -> Tokenizer:
    """The tokenizer of ``tokenizer.json``, ``vocab.txt``, Marian's files or a sentencepiece model.

    Args:
        folder: where to look.
        settings: of the model's ``config.json``.
        model: ours.

    Raises:
        UserError: there is none, it is damaged, it has more ids than the model has rows, or a
            token that every sequence of the model's has is not among them.
    """
    tokenizer, file = _read(Path(folder), settings)
    if tokenizer.vocab_size > (model.vocab_size or 0):
        raise UserError(
            f"{file}: {tokenizer.vocab_size} ids: expected at most {model.vocab_size}, "
            "the rows of the model's embedding (vocab_size in config.json)"
        )
    if model.architecture == "encoder_decoder" and min(tokenizer.special[:3]) < 0:
        raise UserError(
            f"{file}: no id found that outputs begin or end with: expected "
            "decoder_start_token_id and eos_token_id in config.json"
        )
    if model.architecture == "encoder":
        _check_controls(tokenizer, file)
        if tokenizer.special.pad != model.pad_id:
            raise UserError(
                f"{file}: padding is id {tokenizer.special.pad}: expected {model.pad_id}, "
                "as in the model (pad_token_id in config.json)"
            )
    return tokenizer


def _check_controls(tokenizer: Tokenizer, file: Path) -> None:
    """What an encoder's rows are made of; a vocabulary without it is another model's."""
    special = tokenizer.special
    found = {
        "[PAD] (pad_token)": special.pad in special.never,
        "[CLS] (cls_token or bos_token)": special.begin not in (-1, special.end),
        "[SEP] (sep_token or eos_token)": special.end >= 0,
        "[MASK] (mask_token)": tokenizer.mask >= 0,
    }
    if missing := [name for name, there in found.items() if not there]:
        raise UserError(f"{file}: no {', '.join(missing)}: expected {', '.join(found)}")


def _special_names(tokenizer: Tokenizer) -> dict[str, str]:
    special = tokenizer.special
    ids = {"pad_token": special.pad, "bos_token": special.begin, "eos_token": special.end}
    if tokenizer.mask >= 0:
        ids = {"pad_token": special.pad, "cls_token": special.begin, "sep_token": special.end}
        ids["mask_token"] = tokenizer.mask
    return {name: tokenizer.pieces([token])[0] for name, token in ids.items() if token >= 0}


def _read(folder: Path, settings: Mapping[str, Any]) -> tuple[Tokenizer, Path]:
    file = folder / "tokenizer.json"
    if file.is_file():
        return PretrainedTokenizer.from_file(file, settings), file
    file = folder / "vocab.txt"
    if file.is_file():
        return _wordpiece(file, settings), file
    file = folder / "source.spm"
    if file.is_file():
        return Marian.from_folder(folder, settings), folder / "vocab.json"
    for name in _SENTENCEPIECE:
        file = folder / name
        if file.is_file():
            return SentencePieceFile.from_file(file, settings), file
    raise UserError(
        f"{folder}: no tokenizer.json, vocab.txt, {', '.join(_SENTENCEPIECE)} or source.spm; "
        "with --tokenizer ids texts are token ids separated by spaces"
    )


def _wordpiece(file: Path, settings: Mapping[str, Any]) -> PretrainedTokenizer:
    if settings.get("model_type") == "roformer":
        raise UserError(
            f"{file}: RoFormer's own tokenizer takes Chinese words whole, as another program finds "
            "them: expected a tokenizer.json"
        )
    return PretrainedTokenizer.from_file(file, settings)


def ids_as_text(settings: Mapping[str, Any], rows: int) -> TokenIds:
    """For a model without tokenizer files; special ids are those that ``config.json`` names."""
    return TokenIds(rows, find_special(settings, {}, lambda _: None, rows))


def write_tokenizer(folder: Path, tokenizer: Tokenizer, family: str) -> list[Path]:
    """Writes what `read_tokenizer` reads.

    A vocabulary learnt here by sentencepiece becomes a ``spiece.model`` for T5, and a
    ``tokenizer.model`` for others but Marian.

    Args:
        folder: which exists.
        tokenizer: of any kind.
        family: the name of the model's family.

    Returns:
        The files; none where the kind has no file in this world.
    """
    contents: dict[str, bytes] = {}
    names: dict[str, Any] = {}
    match tokenizer:
        case PretrainedTokenizer():
            contents["tokenizer.json"] = tokenizer.text.encode()
            # Their library would else take the class of the model, which may split otherwise.
            names = {"tokenizer_class": "PreTrainedTokenizerFast"}
            values = json.loads(tokenizer.text)
            if (vocabulary := write_vocabulary(values)) is not None:
                contents["vocab.txt"] = vocabulary.encode()
                names["tokenizer_class"] = "BertTokenizer"
            names |= wordpiece_settings(values) | _special_names(tokenizer) | tokenizer.config
        case Marian():
            contents["source.spm"], contents["target.spm"] = tokenizer.models
            ids = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
            contents["vocab.json"] = json.dumps(ids, ensure_ascii=False, indent=2).encode()
            names = tokenizer.config
        case SentencePieceFile():
            contents[_SENTENCEPIECE[family != "t5"]] = tokenizer.model
            names = tokenizer.config | {"extra_ids": tokenizer.sentinels}
        case SentencePiece() if family != "marian":
            contents[_SENTENCEPIECE[family != "t5"]] = tokenizer.model
            names = {"extra_ids": 0}
    if names:
        text = json.dumps(names, ensure_ascii=False, indent=2) + "\n"
        contents[CONFIG_FILE] = text.encode()
    try:
        for name, data in contents.items():
            (folder / name).write_bytes(data)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from error
    return [folder / name for name in contents]
