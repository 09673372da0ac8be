"""Parameters of layers one by one, and in one array each (``model.scan_layers``)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from transformer.config import ModelConfig


def unrolled(config: ModelConfig) -> ModelConfig:
    """The same network for all but training: layer by layer, with nothing computed twice."""
    return dataclasses.replace(config, scan_layers=False, remat="none")


def with_layers(params: Any, stacked: bool) -> Any:
    """Parameters as a network with ``scan_layers = stacked`` has them, whichever way they came.

    Pure: ``jax.eval_shape`` gives the shapes.

    Args:
        params: a network's, or anything that is made of such trees, as Adam's moments are.
        stacked: each array of a layer with an axis L in front, under ``layers``; else
            ``layer_0``, ``layer_1``, ...
    """
    if isinstance(params, tuple) and hasattr(params, "_fields"):
        return type(params)(*(with_layers(part, stacked) for part in params))
    if isinstance(params, tuple | list):
        return type(params)(with_layers(part, stacked) for part in params)
    if not isinstance(params, Mapping):
        return params
    found, layers = {}, {}
    for name, tree in params.items():
        if name == "layers" and not stacked:
            for i in range(len(jax.tree.leaves(tree)[0])):
                found[f"layer_{i}"] = jax.tree.map(lambda x: x[i], tree)  # noqa: B023
        elif name.startswith("layer_") and stacked:
            layers[int(name.removeprefix("layer_"))] = tree
        else:
            found[name] = with_layers(tree, stacked)
    if layers:
        ordered = [layers[i] for i in range(len(layers))]
        found["layers"] = jax.tree.map(lambda *rows: jnp.stack(rows), *ordered)
    return found
