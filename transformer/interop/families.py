"""Which family a published model is of, and which one describes a model of ours."""

import dataclasses
from typing import Any

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.interop.bert import Bert
from transformer.interop.family import Family
from transformer.interop.gpt import GPT1, GPT2
from transformer.interop.llama import Llama
from transformer.interop.marian import Marian
from transformer.interop.roberta import Roberta
from transformer.interop.roformer import RoFormer
from transformer.interop.settings import Settings
from transformer.interop.t5 import T5

FAMILIES: tuple[Family, ...] = (
    *(GPT1(), GPT2(), Llama(), T5(), Marian()),
    *(Roberta(), Bert(), RoFormer()),  # of RoBERTa, BERT could say everything too
)

# What does not change what a model computes from its weights.
_FREE = {"dropout", "attention_dropout", "ff_dropout", "attention", "dtype", "initializer"}


def family_of(settings: Settings) -> Family:
    """The family that ``config.json`` names in `model_type`.

    Raises:
        UserError: it is none of ours.
    """
    types = {name: family for family in FAMILIES for name in (family.name, *family.also)}
    return settings.choice("model_type", types, "missing")


def describing(config: ModelConfig) -> Family:
    """The family whose settings say all that `config` says.

    Raises:
        UserError: there is none; names the setting that the nearest family lacks.
    """
    differences = {family: _lost(family, config) for family in FAMILIES}
    family = min(FAMILIES, key=lambda family: len(differences[family]))
    if lost := differences[family]:
        name, (found, expected) = next(iter(lost.items()))
        raise UserError(
            f"model.{name} = {found!r}: expected {expected!r}, as models of the nearest "
            f"Hugging Face family have ({family.name}, {family.class_name(config)})"
        )
    return family


def _lost(family: Family, config: ModelConfig) -> dict[str, tuple[Any, Any]]:
    """The settings that change on the way to `family` and back: found and expected."""
    before = _essence(config)
    try:
        names = [row.theirs for row in family.rows(config)]
        after = _essence(family.read(Settings(family.settings(config)), names))
    except UserError:  # its shapes are impossible there, say an odd head under rotary positions
        return {name: (value, None) for name, value in before.items()}
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def _essence(config: ModelConfig) -> dict[str, Any]:
    """The settings that decide what a model computes, defaults filled in."""
    filled = dataclasses.replace(
        config,
        attention_dim=config.attention_dim or config.model_dim,
        num_kv_heads=config.kv_heads,
    )
    values = dataclasses.asdict(filled)
    if config.positions != "rotary":
        values["rotary_theta"] = None
    if config.positions != "learned":  # then no more than advice
        values["max_positions"] = None
    if config.architecture == "decoder":
        values["pad_id"] = None
    if config.architecture == "encoder" and config.head != "language_model":
        # Nothing reads the logits of tokens.
        values |= dict.fromkeys(("output_bias", "tie_embeddings", "embedding_scaling"))
    return {name: value for name, value in values.items() if name not in _FREE}
