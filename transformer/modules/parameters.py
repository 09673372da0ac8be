"""Parameters whose axes have names."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from flax import linen as nn

from transformer.functional.partition import Axes

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
    if names is not None:
        names["/".join((*module.path, name))] = axes
    return module.param(name, init, shape)


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
