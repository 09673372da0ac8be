"""The models of hf.npz and hf_encoders.npz as tensors by name."""

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests import golden
from transformer.config import ModelConfig
from transformer.interop.families import family_of
from transformer.interop.family import Family
from transformer.interop.settings import Settings

CASES = golden.load("hf")
ENCODERS = golden.load("hf_encoders")
EVERY = CASES | ENCODERS


class Published(NamedTuple):
    """One case: see make_hf.py and make_hf_encoders.py."""

    family: Family
    config: ModelConfig
    settings: dict[str, Any]
    tensors: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]
    arrays: golden.Golden

    def ours(self, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
        """Tensors, or their gradients, as a tree of ours."""
        params = self.family.from_theirs(self.config, tensors.__getitem__)
        return jax.tree.map(jnp.asarray, params)


def published(case: str) -> Published:
    """A model by the package's own reading of its settings."""
    arrays = EVERY[case]
    settings = json.loads(str(arrays["config"]["json"]))
    shapes = json.loads(str(arrays["config"]["shapes"]))
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])[:-1]

    def split(part: str) -> dict[str, np.ndarray]:
        flat = np.split(arrays[part]["all"], ends)
        return {
            name: piece.reshape(shape)
            for piece, (name, shape) in zip(flat, shapes.items(), strict=True)
        }

    tensors = split("param")
    family = family_of(Settings(settings))
    config = family.read(Settings(settings), tensors)
    return Published(family, config, settings, tensors, split("grad_param"), arrays)
