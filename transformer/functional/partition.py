"""Where activations lie on a mesh of devices, said by the names of their axes.

A network names the axes of what it computes; what a name means on the mesh at hand is said by
whoever traces it (`transformer.parallel`). Without a mesh the names mean nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from jaxtyping import Array

Axes = tuple[str | None, ...]
"""A name for each axis of an array; None: in one piece on every device."""

T = TypeVar("T", bound=Array)


class Placing(NamedTuple):
    """What the names mean.

    Attributes:
        place: constrains an array whose axes have these names.
        batch_shards: in how many parts the batch lies.
    """

    place: Callable[[Array, Axes], Array]
    batch_shards: int


_PLACING: ContextVar[Placing | None] = ContextVar("placing", default=None)


@contextmanager
def placing(means: Placing | None) -> Iterator[None]:
    """Gives names a meaning for what is traced meanwhile."""
    token = _PLACING.set(means)
    try:
        yield
    finally:
        _PLACING.reset(token)


def constrain(x, *axes: str | None):
    """`x`, laid out over the mesh by the names of its axes; unchanged without a mesh."""
    means = _PLACING.get()
    return x if means is None else means.place(x, axes)


def batch_shards() -> int:
    """In how many equal parts the rows of a batch lie on different devices."""
    means = _PLACING.get()
    return 1 if means is None else means.batch_shards
