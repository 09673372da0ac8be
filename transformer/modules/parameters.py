"""Parameters whose axes have names."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
from flax import linen as nn

from transformer.functional.partition import Axes, constrain

_NAMES: ContextVar[dict[str, Axes] | None] = ContextVar("names", default=None)


def parameter(
    module: nn.Module, name: str, init: Callable, shape: tuple[int, ...], axes: Axes
) -> Any:
    """Declares a parameter of `module`, and what its axes are called.

    The names are the left column of the tables in `transformer.parallel.rules`.
    """
    if len(axes) != len(shape):
        raise ValueError(f"{name}: {len(axes)} names {axes} for the {len(shape)} axes of {shape}")
    names = _NAMES.get()
    if names is not None and module.is_initializing():
        names["/".join((*module.path, name))] = axes
    # The gradient is constrained with it: a layer's is spread as soon as it is known.
    return constrain(module.param(name, init, shape), *axes)


def stacked_parameters(module: nn.Module, name: str, init: Callable, count: int) -> Any:
    """Declares the parameters of `count` layers alike, each layer a row of a new first axis.

    Args:
        module: declares them, under `name`.
        name: of the whole tree.
        init: makes a single layer's tree from a random key.
        count: layers; the name of their axis is "layers".
    """

    def stacked(key: jax.Array) -> Any:
        outer = _NAMES.get()
        with noting_axes() as single:
            tree = jax.vmap(init)(jax.random.split(key, count))
        if outer is not None:
            for path, axes in single.items():
                outer["/".join((*module.path, name, path))] = ("layers", *axes)
        return tree

    return module.param(name, stacked)


@contextmanager
def noting_axes() -> Iterator[dict[str, Axes]]:
    """Collects path -> names of the axes, of every parameter that is declared meanwhile."""
    token = _NAMES.set({})
    try:
        names = _NAMES.get()
        assert names is not None
        yield names
    finally:
        _NAMES.reset(token)
