"""From a Hugging Face folder to a checkpoint, and back."""

import dataclasses
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from transformer.config import Config, DataConfig, DecodeConfig, ModelConfig, to_dict
from transformer.config.data import Objective
from transformer.config.model import Head
from transformer.data.pretrained_tokenizer import read_json
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.interop.folder import read_model, write_model
from transformer.interop.settings import Settings
from transformer.interop.tokenizer_files import ids_as_text, read_tokenizer, write_tokenizer
from transformer.training.checkpoint import last_meta, load_for_inference
from transformer.training.meta import Meta
from transformer.training.saving import Checkpoints
from transformer.training.state import TrainState

TokenizerChoice = Literal["folder", "ids"]


# What a model with each head learns.
_OBJECTIVES: dict[Head, Objective] = {
    "language_model": "masked_language_model",
    "none": "masked_language_model",
    "classification": "classification",
    "regression": "regression",
    "token_labels": "token_labels",
    "multiple_choice": "multiple_choice",
    "span": "spans",
}
_NO_FILES = ("(the model was imported)",)
"""Stands for the files it was trained on, which nobody has."""
_SENTENCES = "sentence_bert_config.json"
"""Says to how many tokens a model of sentences cuts them."""


class Imported(NamedTuple):
    """What `import_model` wrote.

    Attributes:
        config: the settings in the checkpoint.
        drawn: tensors that the folder lacks: their layer is drawn at random, as a new head.
    """

    config: Config
    drawn: list[str]


class Exported(NamedTuple):
    """What `export_model` wrote.

    Attributes:
        architecture: the class there.
        tokenizer_files: of the tokenizer; none where its kind has no file there.
    """

    architecture: str
    tokenizer_files: list[Path]


def import_model(
    folder: str | Path, workdir: str | Path, tokenizer: TokenizerChoice = "folder"
) -> Imported:
    """Writes a published model as the checkpoint of step 0.

    Args:
        folder: with ``config.json``, tensors and tokenizer files.
        workdir: without checkpoints; it is made.
        tokenizer: that of the folder, or texts are token ids separated by spaces.

    Raises:
        UserError: see `read_model` and `read_tokenizer`; the workdir has checkpoints.
    """
    workdir = Path(workdir)
    found = last_meta(workdir / "checkpoints")
    if found is not None:
        raise UserError(
            f"--workdir {workdir}: has a checkpoint of step {found.step}: expected none"
        )
    model = read_model(folder)
    if tokenizer == "ids":
        chosen = ids_as_text(model.settings, model.config.vocab_size or 0)
    else:
        chosen = read_tokenizer(folder, model.settings, model.config)
    network = model.config
    if network.architecture == "encoder_decoder":
        # Where config.json does not say it, the tokenizer's files do.
        network = dataclasses.replace(network, pad_id=chosen.special.pad)
    config = _experiment(network, model.settings, Path(folder))
    state = TrainState(jnp.zeros((), jnp.int32), model.params, ())
    meta = Meta(0, to_dict(config), chosen.to_json(), fingerprint="imported")
    with Checkpoints(workdir / "checkpoints", keep=1) as checkpoints:
        checkpoints.save(state, meta)
        checkpoints.wait()
    return Imported(config, model.drawn)


def export_model(checkpoint: str | Path, folder: str | Path, step: str = "best") -> Exported:
    """Writes a checkpoint as a Hugging Face folder, weights in float32.

    Args:
        checkpoint: a workdir, or one checkpoint's folder.
        folder: it is made, and must be empty.
        step: which checkpoint, see `load_for_inference`.

    Raises:
        UserError: no family describes the model, or the folder has files.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"--to {folder}: expected a new or empty directory")
    loaded = load_for_inference(checkpoint, step)
    tokenizer = Tokenizer.from_json(loaded.tokenizer)
    model, labels = loaded.config.model, loaded.config.data.labels
    family = write_model(folder, model, loaded.params, tokenizer.special, labels)
    return Exported(family.class_name(model), write_tokenizer(folder, tokenizer, family.name))


def _experiment(model: ModelConfig, settings: dict[str, Any], folder: Path) -> Config:
    """The settings of an imported model: what it can read and write at most."""
    if model.architecture == "encoder":
        return Config(model, _encoder_data(model, settings, folder))
    if model.architecture == "decoder":
        block = min(DataConfig.block_length, model.max_positions or DataConfig.block_length)
        return Config(model, DataConfig("language_model", block_length=block))
    longest = DecodeConfig.max_source_length
    decode = DecodeConfig(max_source_length=min(longest, model.max_positions or longest))
    return Config(model, decode=decode)


def _encoder_data(model: ModelConfig, settings: dict[str, Any], folder: Path) -> DataConfig:
    objective = _OBJECTIVES[model.head]
    longest = min(DataConfig.block_length, model.max_positions or DataConfig.block_length)
    if (folder / _SENTENCES).is_file():
        said = Settings(read_json(folder / _SENTENCES), str(folder / _SENTENCES))
        longest = min(longest, said.size("max_seq_length", longest))
    if objective == "masked_language_model":
        return DataConfig(objective, block_length=longest)
    columns = ("text", "choice", "choice", "label")
    return DataConfig(
        objective,
        train=_NO_FILES,
        columns=columns if objective == "multiple_choice" else DataConfig.columns,
        max_length=longest,
        question_length=max(1, min(DataConfig.question_length, longest - 5)),
        labels=tuple(Settings(settings).labels()) if model.num_classes else (),
    )
