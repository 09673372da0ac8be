"""Where activations lie on a mesh of devices, said by the names of their axes.

A network names the axes of what it computes; what a name means on the mesh at hand is said by
whoever traces it (`transformer.parallel`). Without a mesh the names mean nothing.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, TypeVar

import jax
from jaxtyping import Array

Axes = tuple[str | None, ...]
"""A name for each axis of an array; None: in one piece on every device."""

T = TypeVar("T", bound=Array)

Kernel = Literal["splash", "cudnn"]
"""Attention as an accelerator's own program: on TPU and on GPU."""


class Placing(NamedTuple):
    """What the names mean.

    Attributes:
        place: constrains an array whose axes have these names; an axis that the mesh does not
            divide stays in one piece.
        batch_shards: in how many parts the batch lies.
        by_shard: has each device call a function with its parts of the arguments, given the names
            of their axes and those of the result's.
        kernel: of attention, that the devices have; None: none.
    """

    place: Callable[[Array, Axes], Array]
    batch_shards: int
    by_shard: Callable[[Callable, tuple[Axes, ...], Axes], Callable]
    kernel: Kernel | None


# Part of what jit remembers a program by, so one that was traced for a mesh serves that mesh only.
_PLACING: Any = jax.make_user_context(None)


def placing(means: Placing | None) -> AbstractContextManager[Any]:
    """Gives names a meaning for what is traced meanwhile, inside of jit or around it."""
    return _PLACING(means)


def constrain(x, *axes: str | None):
    """`x`, laid out over the mesh by the names of its axes; unchanged without a mesh."""
    means = _PLACING.value
    return x if means is None else means.place(x, axes)


def on_mesh() -> bool:
    """Whether the names mean anything: whether several devices work on one array."""
    return _PLACING.value is not None


def batch_shards() -> int:
    """In how many equal parts the rows of a batch lie on different devices."""
    means = _PLACING.value
    return 1 if means is None else means.batch_shards


def map_rows(function: Callable, rows: Any) -> Any:
    """As `jax.lax.map` over a batch's rows, but one of each device's at a time.

    Args:
        function: of one row.
        rows: a tree of arrays, whose first axis is a multiple of `batch_shards`.
    """
    parts = batch_shards()
    if parts == 1:
        return jax.lax.map(function, rows)

    def deal(x):
        dealt = x.reshape(parts, -1, *x.shape[1:]).swapaxes(0, 1)
        return constrain(dealt, None, "batch", *[None] * (x.ndim - 1))

    results = jax.lax.map(jax.vmap(function), jax.tree.map(deal, rows))
    return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), results)


def by_shard(function: Callable, inputs: tuple[Axes, ...], output: Axes) -> Callable:
    """`function`, called by each device with its own part of every argument.

    XLA cannot divide a kernel as it does other functions. Unchanged without a mesh.
    """
    means = _PLACING.value
    return function if means is None else means.by_shard(function, inputs, output)


def attention_kernel() -> Kernel | None:
    """That of the devices for which is traced, if they are known to have one."""
    means = _PLACING.value
    return None if means is None else means.kernel
