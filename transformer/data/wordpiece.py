"""WordPiece vocabularies (Devlin et al. 2019): ``vocab.txt``, and a ``tokenizer.json`` from it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformer.errors import UserError

CONTROLS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
"""What the tokens without a text are called, unless ``tokenizer_config.json`` says otherwise."""

_LONGEST_WORD = 100
"""Characters; a longer word is unknown, as in the published code."""


def read_vocabulary(text: str) -> list[str]:
    """The tokens of a ``vocab.txt``, one a line; a token's id is its line's number, from 0.

    Raises:
        UserError: a token stands there twice; names the line.
    """
    lines = text.split("\n")
    tokens = [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
    first: dict[str, int] = {}
    for number, token in enumerate(tokens, start=1):
        if (before := first.setdefault(token, number)) != number:
            raise UserError(
                f"line {number}: {token!r} is on line {before} already: expected every token once"
            )
    return tokens


def write_vocabulary(values: Mapping[str, Any]) -> str | None:
    """The ``vocab.txt`` of a ``tokenizer.json``; None if that is no WordPiece with ids 0, 1, ...

    Args:
        values: of the file.
    """
    if values["model"].get("type") != "WordPiece":
        return None
    ids = dict(values["model"]["vocab"])
    ids |= {token["content"]: token["id"] for token in values.get("added_tokens", ())}
    tokens = sorted(ids, key=ids.__getitem__)
    whole = [ids[token] for token in tokens] == list(range(len(tokens)))
    # A line break in a token (there is none in a trained one) would be two lines.
    return "".join(f"{token}\n" for token in tokens) if whole and _one_a_line(tokens) else None


def wordpiece_json(tokens: Sequence[str], config: Mapping[str, Any]) -> str:
    """The ``tokenizer.json`` that splits texts as BERT's published code does.

    Args:
        tokens: by id; those that go on inside a word begin with "##".
        config: of ``tokenizer_config.json``: `do_lower_case` (true unless given), `strip_accents`
            (as lower case), `tokenize_chinese_chars` (true) and other names of the control tokens.

    Raises:
        UserError: a control token is not among the tokens, or a setting is not implemented.
    """
    if config.get("do_basic_tokenize") is False:
        raise UserError("do_basic_tokenize = False: expected True (nothing else is implemented)")
    ids = {token: i for i, token in enumerate(tokens)}
    names = control_names(config)
    if missing := [name for name in names.values() if name not in ids]:
        raise UserError(
            f"no {', '.join(missing)} among the {len(ids):,} tokens: expected "
            f"{', '.join(names.values())}"
        )
    begin, end = names["cls_token"], names["sep_token"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": ids[name], "content": name, **flags, "special": True}
                for name in sorted(names.values(), key=ids.__getitem__)
            ],
            "normalizer": {
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
                "strip_accents": config.get("strip_accents"),
                "lowercase": config.get("do_lower_case", True),
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "BertProcessing",
                "sep": [end, ids[end]],
                "cls": [begin, ids[begin]],
            },
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece",
                "unk_token": names["unk_token"],
                "continuing_subword_prefix": "##",
                "max_input_chars_per_word": _LONGEST_WORD,
                "vocab": ids,
            },
        },
        ensure_ascii=False,
    )


def wordpiece_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """What ``tokenizer_config.json`` says of how a ``tokenizer.json`` splits, as BERT's."""
    normalizer = values.get("normalizer") or {}
    if normalizer.get("type") != "BertNormalizer":
        return {}
    return {
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    }


def control_names(config: Mapping[str, Any]) -> dict[str, str]:
    """What each of `CONTROLS` is called by a ``tokenizer_config.json``."""
    names = {}
    for role, usual in CONTROLS.items():
        named = config.get(role) or usual
        names[role] = named.get("content", usual) if isinstance(named, Mapping) else str(named)
    return names


def _one_a_line(tokens: Sequence[str]) -> bool:
    return not any("\n" in token or "\r" in token for token in tokens)
