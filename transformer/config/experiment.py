"""All settings of an experiment: from Python files, to and from JSON."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformer.config.data import DataConfig, Objective
from transformer.config.decoding import DecodeConfig
from transformer.config.hosts import HostsConfig
from transformer.config.mesh import MeshConfig
from transformer.config.model import Head, ModelConfig
from transformer.config.require import require
from transformer.config.training import OptimizerConfig, TrainConfig
from transformer.errors import UserError, did_you_mean_file


@dataclass(frozen=True)
class Config:
    """One experiment: what `configs/*.py` define and the command line changes."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    hosts: HostsConfig = field(default_factory=HostsConfig)

    def __post_init__(self) -> None:
        if self.leaves_model:
            return
        objective, architecture = self.data.objective, self.model.architecture
        known = _ARCHITECTURES[objective]
        require(
            architecture in known,
            "model.architecture",
            architecture,
            f"{' or '.join(map(repr, known))}, because data.objective = {objective!r}, or no "
            "settings of the model and train.init_from",
        )
        head = head_of(objective)
        require(
            self.model.head in ("language_model", "none", head),
            "model.head",
            self.model.head,
            f"{head!r}, because data.objective = {objective!r}",
        )
        paired = objective == "masked_language_model" and self.data.next_sentence
        require(
            paired or not self.model.next_sentence,
            "model.next_sentence",
            self.model.next_sentence,
            "False, because data.next_sentence = False"
            if objective == "masked_language_model"
            else f"False, because data.objective = {objective!r}",
        )
        require(
            not paired or self.model.segment_types != 1,
            "model.segment_types",
            self.model.segment_types,
            "2, or 0 for none, because data.next_sentence = True",
        )
        require(
            self.train.best_by == "loss" or objective in SCORES,
            "train.best_by",
            self.train.best_by,
            f"'loss', because data.objective = {objective!r}",
        )
        longest = self.model.max_positions
        if (name := _LENGTHS.get(objective)) and longest is not None:
            length = getattr(self.data, name)
            expected = f"at most model.max_positions = {longest}"
            require(length <= longest, f"data.{name}", length, expected)
        if self.model.positions == "learned" and architecture == "encoder_decoder":
            self._check_lengths(longest or 0)

    def _check_lengths(self, longest: int) -> None:
        """Beyond the table of an encoder-decoder's positions a device would take its last row."""
        limit = f"model.max_positions = {longest}"
        if self.data.objective == "translation":  # the end symbol is not counted
            length = self.data.max_length
            require(length < longest, "data.max_length", length, f"below {limit}")
        else:
            length = self.data.block_length
            require(length <= longest, "data.block_length", length, f"at most {limit}")
        length, extra = self.decode.max_source_length, self.decode.extra_length
        expected = f"at most {limit}, with decode.extra_length = {extra}"
        require(length + extra <= longest, "decode.max_source_length", length, expected)

    @property
    def leaves_model(self) -> bool:
        """Whether the model is that of ``train.init_from``, as no setting of it is given."""
        return self.train.init_from is not None and self.model == ModelConfig()


# Which networks can learn it.
_ARCHITECTURES = {
    "translation": ("encoder_decoder",),
    "span_corruption": ("encoder_decoder",),
    "language_model": ("decoder",),
    "answers": ("decoder",),
    "masked_language_model": ("encoder",),
    "classification": ("decoder", "encoder"),
    "regression": ("encoder",),
    "token_labels": ("encoder",),
    "multiple_choice": ("encoder",),
    "spans": ("encoder",),
}


SCORES = {
    "classification": "accuracy",
    "regression": "pearson",
    "token_labels": "f1",
    "multiple_choice": "accuracy",
    "spans": "f1",
}
"""What a task with labels is judged by, by its objective: a name among its metrics."""


def head_of(objective: Objective) -> Head:
    """What a model that learns `objective` has at its end."""
    match objective:
        case "spans":
            return "span"
        case "classification" | "regression" | "token_labels" | "multiple_choice":
            return objective
        case _:
            return "language_model"


# What sets the length of a row.
_LENGTHS = {
    "language_model": "block_length",
    "masked_language_model": "block_length",
    "answers": "max_length",
    "classification": "max_length",
    "regression": "max_length",
    "token_labels": "max_length",
    "multiple_choice": "max_length",
    "spans": "max_length",
}
_SECTIONS: dict[str, Any] = {f.name: f.default_factory for f in dataclasses.fields(Config)}


def to_dict(config: Config) -> dict[str, Any]:
    """`config` as nested dicts of JSON types."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_dict(values: dict[str, Any]) -> Config:
    """The inverse of `to_dict`; an unknown section or setting is a `UserError`."""
    for name in values:
        require(name in _SECTIONS, "section", name, f"one of {', '.join(_SECTIONS)}")
    sections = {}
    for name, kind in _SECTIONS.items():
        known = {f.name for f in dataclasses.fields(kind)}
        given = dict(values.get(name, {}))
        for key, value in given.items():
            require(key in known, f"{name}.{key}", value, f"one of {', '.join(sorted(known))}")
            if isinstance(value, list):
                given[key] = tuple(value)
        sections[name] = kind(**given)
    return Config(**sections)


def load(path: str | Path) -> Config:
    """The `config` that a Python file such as ``configs/base.py`` defines.

    Raises:
        UserError: the file is missing, fails to run, or defines no `config`.
    """
    path = Path(path)
    if not path.is_file():
        near = did_you_mean_file(path, "*.py", str(path.parent / "{}"))
        raise UserError(f"--config {path}: no such file{near}")
    scope: dict[str, Any] = {"__name__": "config", "__file__": str(path)}
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"--config {path}: {type(error).__name__}: {error}") from error
    config = scope.get("config")
    if not isinstance(config, Config):
        raise UserError(
            f"--config {path}: expected a variable `config` of type transformer.config.Config"
        )
    return config
