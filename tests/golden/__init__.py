"""Results of other people's code on tiny inputs, and the scripts that made them."""

from pathlib import Path

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
