"""Results of other people's code on tiny inputs, and the scripts that made them."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

Golden = dict[str, dict[str, np.ndarray]]


def load(file: str) -> dict[str, Golden]:
    """The cases of ``file.npz``: case -> part -> name -> array (make_torch_layers.py)."""
    cases: dict[str, Golden] = {}
    with np.load(Path(__file__).parent / f"{file}.npz") as arrays:
        for key, array in arrays.items():
            case, part, name = key.split("/")
            cases.setdefault(case, {}).setdefault(part, {})[name] = array
    return cases


def assert_trees_close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal structure, and leaves within `tolerance`, relative and absolute; says which is not."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    found = jax.tree_util.tree_leaves_with_path(actual)
    for (path, array), reference in zip(found, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(
            array,
            reference,
            rtol=tolerance,
            atol=tolerance,
            err_msg=jax.tree_util.keystr(path),
        )
