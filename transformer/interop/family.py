"""What a family of published models is: settings and one table of names, read both ways."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.interop.settings import Settings
from transformer.models.build import build_model, init_params

Shape = tuple[int, ...]
Get = Callable[[str], np.ndarray]

_SHOWN = 5
"""Differences that a message lists."""


class Row(NamedTuple):
    """One tensor of theirs, and what it is here.

    Attributes:
        theirs: its name.
        ours: path of a parameter; of several, side by side on the last axis in one tensor.
        layout: "same"; "transposed", as PyTorch keeps a linear layer's weight, ``[out, in]``;
            "row", ``[1, V]`` of our ``[V]``.
        unused: rows at the beginning of their table that no model ever reads; written as 0.
        optional: the tensor may be missing; the parameter is drawn anew then.
    """

    theirs: str
    ours: tuple[str, ...]
    layout: Literal["same", "transposed", "row"] = "same"
    unused: int = 0
    optional: bool = False

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        """Of their tensor, from those of our parameters."""
        parts = [shapes[path] for path in self.ours]
        joint = (*parts[0][:-1], sum(part[-1] for part in parts))
        if self.unused:
            joint = (self.unused + joint[0], *joint[1:])
        return {"same": joint, "transposed": joint[::-1], "row": (1, *joint)}[self.layout]

    def read(self, theirs: np.ndarray, shapes: Mapping[str, Shape]) -> dict[str, np.ndarray]:
        """Their tensor as our parameters."""
        joint = {"same": theirs, "transposed": theirs.T, "row": theirs.reshape(-1)}[self.layout]
        joint = joint[self.unused :]
        ends = np.cumsum([shapes[path][-1] for path in self.ours])[:-1]
        return dict(zip(self.ours, np.split(joint, ends, axis=-1), strict=True))

    def write(self, ours: Mapping[str, np.ndarray]) -> np.ndarray:
        """Our parameters as their tensor, contiguous."""
        parts = [ours[path] for path in self.ours]
        joint = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        if self.unused:
            joint = np.concatenate(
                [np.zeros_like(joint, shape=(self.unused, *joint.shape[1:])), joint]
            )
        theirs = {"same": joint, "transposed": joint.T, "row": joint[None]}[self.layout]
        return np.ascontiguousarray(theirs)


def linear(theirs: str, ours: str, *, bias: bool) -> list[Row]:
    """PyTorch's `nn.Linear`."""
    rows = [Row(f"{theirs}.weight", (f"{ours}/kernel",), "transposed")]
    return [*rows, Row(f"{theirs}.bias", (f"{ours}/bias",))] if bias else rows


def norm(theirs: str, ours: str, *, bias: bool) -> list[Row]:
    """Layer norm, or RMS norm, which has no bias."""
    rows = [Row(f"{theirs}.weight", (f"{ours}/scale",))]
    return [*rows, Row(f"{theirs}.bias", (f"{ours}/bias",))] if bias else rows


def output(config: ModelConfig) -> list[Row]:
    """The matrix of the logits, unless it is the embeddings'."""
    return [] if config.tie_embeddings else [Row("lm_head.weight", ("embedding/output",))]


class Family(ABC):
    """Models that Hugging Face's library describes by one kind of ``config.json``.

    Attributes:
        name: `model_type` in the file.
        also: other types of the same make.
        architecture: the class there; where there are several, that of the model without a head.
        prefix: what the names of tensors begin with, unless a bare model was saved.
        ignored: ends of names that are no parameters: masks, wavelengths, sinusoids.
    """

    name: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    architecture: ClassVar[str]
    prefix: ClassVar[str] = ""
    ignored: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        """Their settings as ours.

        Args:
            settings: of ``config.json``.
            names: of the tensors beside it.

        Raises:
            UserError: a setting that is not implemented, or missing; names it.
        """

    @abstractmethod
    def write(self, config: ModelConfig) -> dict[str, Any]:
        """Our settings as theirs, as far as they have them (see `families.describing`)."""

    @abstractmethod
    def rows(self, config: ModelConfig) -> list[Row]:
        """The table of names: every tensor, every parameter, once."""

    @abstractmethod
    def copies(self, config: ModelConfig) -> dict[str, str]:
        """Tensors that repeat another one: name -> the other's name."""

    def class_name(self, config: ModelConfig) -> str:
        """The class of a model with these settings."""
        return self.architecture

    def settings(self, config: ModelConfig) -> dict[str, Any]:
        """The ``config.json`` of a model."""
        names = {"architectures": [self.class_name(config)], "model_type": self.name}
        return names | self.write(config)

    def modern(self, name: str) -> str:
        """The name that recent files have for a tensor with this one."""
        return name

    def residual_order(self, config: ModelConfig) -> np.ndarray | None:
        """Which of their residual dimensions each of ours is; None: the same one."""
        return None

    def from_theirs(
        self, config: ModelConfig, get: Get, missing: Collection[str] = ()
    ) -> dict[str, Any]:
        """Our parameters, as a tree, from their tensors by name.

        Args:
            config: the model's settings.
            get: reads a tensor.
            missing: optional tensors that there are none of. What no tensor gives is drawn anew,
                the same at every call.
        """
        shapes, order = parameter_shapes(config), self.residual_order(config)
        params: dict[str, np.ndarray] = {}
        for row in self.rows(config):
            if row.theirs not in missing:
                params |= row.read(get(row.theirs), shapes)
        for path in sorted(shapes.keys() - params.keys()):
            params[path] = _drawn(path, shapes[path])
        if order is not None:
            params = {path: _reorder(path, array, order) for path, array in params.items()}
        # A file's order is not C's where it was transposed.
        contiguous = {path: np.ascontiguousarray(array) for path, array in params.items()}
        return unflatten_dict(contiguous, sep="/")

    def to_theirs(self, config: ModelConfig, params: Any) -> dict[str, np.ndarray]:
        """The inverse of `from_theirs`; a parameter that they have no place for is left out."""
        flat = {path: np.asarray(array) for path, array in flatten_dict(params, sep="/").items()}
        order = self.residual_order(config)
        if order is not None:
            back = np.argsort(order)
            flat = {path: _reorder(path, array, back) for path, array in flat.items()}
        return {row.theirs: row.write(flat) for row in self.rows(config)}

    def canonical(self, config: ModelConfig, names: Iterable[str]) -> dict[str, str]:
        """Full name -> name in the file, of tensors perhaps saved from the bare model."""
        copies = self.copies(config)
        known = {row.theirs for row in self.rows(config)} | copies.keys()
        found: dict[str, str] = {}
        for name in names:
            modern = self.modern(name)
            full = (modern, self.prefix + modern, modern.removeprefix(self.prefix))
            full = next((name for name in full if name in known), name)
            found[name if full in found else full] = name
        for copy, original in copies.items():
            if copy in found:
                found.setdefault(original, found[copy])
        return found

    def missing(self, config: ModelConfig, found: Collection[str]) -> list[str]:
        """The optional tensors, if none of them is among those found."""
        optional = [row.theirs for row in self.rows(config) if row.optional]
        return [] if any(name in found for name in optional) else optional

    def check(self, config: ModelConfig, found: Mapping[str, Shape], where: object) -> None:
        """Compares the tensors of a file, by canonical name, with the table.

        Raises:
            UserError: tensors are missing, unknown or of another shape; names them.
        """
        shapes, rows = parameter_shapes(config), self.rows(config)
        expected = {row.theirs: row.shape(shapes) for row in rows}
        known = expected | {copy: expected[name] for copy, name in self.copies(config).items()}
        optional = set(self.missing(config, found))
        problems = [
            f"{name}: missing, expected {shape}"
            for name, shape in expected.items()
            if name not in found and name not in optional
        ]
        for name, shape in found.items():
            if name in known and shape != known[name]:
                problems.append(f"{name}: found {shape}, expected {known[name]}")
            elif name not in known and not name.endswith(self.ignored):
                problems.append(f"{name} {shape}: unknown to {self.class_name(config)}")
        if problems:
            more = len(problems) - _SHOWN
            listed = "; ".join(problems[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            raise UserError(f"{where}: tensors do not fit config.json: {listed}")


def parameter_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Path -> shape of every parameter of the network; nothing is allocated."""
    params = jax.eval_shape(partial(init_params, build_model(config)), jax.random.key(0))
    leaves: dict[str, Any] = dict(flatten_dict(params, sep="/"))
    return {path: leaf.shape for path, leaf in leaves.items()}


def of_layers(count: int, rows: Callable[[int], Iterable[Row]]) -> list[Row]:
    """The rows of layers 0, 1, ..."""
    return [row for i in range(count) for row in rows(i)]


def _drawn(path: str, shape: Shape) -> np.ndarray:
    """Of a layer that the file does not have: as a new head is drawn (Devlin et al. 2019)."""
    draw = np.random.default_rng(0).normal(0.0, 0.02, shape).astype(np.float32)
    return np.zeros_like(draw) if path.endswith("bias") else draw


def _reorder(path: str, array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Takes the axis of the residual stream, if the parameter has it, in another order."""
    *_, module, name = path.split("/")
    writes = module in ("out", "down")
    if module == "embedding":
        return array if name == "output_bias" else array[:, order]
    if name == "kernel":
        return array[:, order] if writes else array[order]
    return array[order] if writes or module.endswith("norm") else array
