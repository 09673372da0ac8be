"""A Hugging Face folder: ``config.json``, tensors in safetensors files, tokenizer files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer.config import ModelConfig
from transformer.data.pretrained_tokenizer import read_json
from transformer.data.tokenizer import SpecialIds
from transformer.errors import UserError
from transformer.interop.families import describing, family_of
from transformer.interop.family import Family, Shape
from transformer.interop.settings import Settings, label_settings

CONFIG, TENSORS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_TYPES = ("F64", "F32", "F16", "BF16")


class Model(NamedTuple):
    """A published model.

    Attributes:
        config: its settings as ours.
        params: its parameters as ours, float32.
        settings: its ``config.json``.
        drawn: tensors of a layer that the files do not have, which was drawn at random.
    """

    config: ModelConfig
    params: dict[str, Any]
    settings: dict[str, Any]
    drawn: list[str]


def read_model(folder: str | Path) -> Model:
    """Reads settings and weights.

    Raises:
        UserError: a file is missing or damaged; a setting is not implemented; a tensor is
            missing, unknown, of another shape, or not the copy that it should be.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such directory; expected a Hugging Face folder")
    values = read_json(folder / CONFIG)
    settings = Settings(values, str(folder / CONFIG))
    family = family_of(settings)
    tensors = Tensors(folder)
    config = family.read(settings, tensors.shapes)
    files = family.canonical(config, tensors.shapes)
    family.check(config, {name: tensors.shapes[file] for name, file in files.items()}, folder)
    _check_copies(family, config, files, tensors)
    missing = family.missing(config, files)
    params = family.from_theirs(config, lambda name: tensors.read(files[name]), missing)
    return Model(config, params, values, missing)


def write_model(
    folder: Path,
    config: ModelConfig,
    params: Any,
    special: SpecialIds | None = None,
    labels: Sequence[str] = (),
) -> Family:
    """Writes ``config.json`` and ``model.safetensors``.

    Args:
        folder: where; it is made.
        config: the model's settings.
        params: its parameters.
        special: of its tokenizer, for programs that generate.
        labels: names of the classes.

    Raises:
        UserError: no family describes the model; names a setting.
    """
    family = describing(config)
    safetensors = _safetensors()
    values = {"dtype": "float32", **family.settings(config)}
    if special and config.architecture != "encoder":
        values |= _special_settings(config, special)
    if labels and "id2label" in values:
        values |= label_settings(labels)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    tensors = family.to_theirs(config, params)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        safetensors.numpy.save_file(tensors, folder / TENSORS, metadata={"format": "pt"})
        (folder / CONFIG).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    return family


def _special_settings(config: ModelConfig, special: SpecialIds) -> dict[str, Any]:
    known = {"eos_token_id": special.end, "pad_token_id": special.pad}
    seq2seq = config.architecture == "encoder_decoder"
    known["decoder_start_token_id" if seq2seq else "bos_token_id"] = special.begin
    values: dict[str, Any] = {name: token for name, token in known.items() if token >= 0}
    if special.also_ends:
        values["eos_token_id"] = [special.end, *special.also_ends]
    return values


class Tensors:
    """The tensors of a folder: names and shapes at once, contents one by one.

    Args:
        folder: with ``model.safetensors``, or its parts and their index.

    Raises:
        UserError: a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._library = _safetensors()
        self._file_of: dict[str, Path] = {}
        self.shapes: dict[str, Shape] = {}
        for path in _tensor_files(folder):
            with self._open(path) as file:
                for name in file.keys():  # noqa: SIM118 (the library's file is no mapping)
                    self._file_of[name] = path
                    self.shapes[name] = tuple(file.get_slice(name).get_shape())

    def read(self, name: str) -> np.ndarray:
        """One tensor in float32."""
        path = self._file_of[name]
        with self._open(path) as file:
            kind = file.get_slice(name).get_dtype()
            if kind not in _TYPES:
                raise UserError(
                    f"{path}: {name} is of type {kind}: expected one of {', '.join(_TYPES)} "
                    "(quantised weights are not read)"
                )
            return file.get_tensor(name).astype(np.float32)

    def _open(self, path: Path) -> Any:
        try:
            return self._library.safe_open(path, framework="numpy")
        except FileNotFoundError as error:
            raise UserError(f"{path}: no such file") from error
        except (self._library.SafetensorError, OSError) as error:
            raise UserError(f"{path}: damaged safetensors file ({error})") from error


def _tensor_files(folder: Path) -> list[Path]:
    if (folder / TENSORS).is_file():
        return [folder / TENSORS]
    if (folder / INDEX).is_file():
        parts = read_json(folder / INDEX).get("weight_map")
        if not isinstance(parts, Mapping) or not parts:
            raise UserError(f"{folder / INDEX}: expected a weight_map of tensors and files")
        return [folder / name for name in sorted(set(parts.values()))]
    others = sorted(path.name for path in folder.glob("*.bin"))
    hint = f"; found {', '.join(others)}: convert to safetensors first" if others else ""
    raise UserError(f"{folder}: expected {TENSORS} or {INDEX}{hint}")


def _check_copies(
    family: Family, config: ModelConfig, files: Mapping[str, str], tensors: Tensors
) -> None:
    for copy, original in family.copies(config).items():
        if copy in files and not np.array_equal(
            tensors.read(files[copy]), tensors.read(files[original])
        ):
            raise UserError(
                f"{copy} differs from {original}: expected a copy of it, by config.json "
                "(tie_word_embeddings)"
            )


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise UserError(
            'the package safetensors is missing: pip install "transformer[hf]"'
        ) from error
    return safetensors
