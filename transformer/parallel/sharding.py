"""Where the arrays of a run lie: parameters, optimizer state and batches."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
import optax
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from transformer.errors import UserError
from transformer.functional.partition import Axes, Placing
from transformer.models.build import Model, init_params
from transformer.modules.parameters import noting_axes
from transformer.parallel.mesh import attention_kernel
from transformer.parallel.rules import RULES, MeshAxes

# What fills up a batch whose rows the devices cannot share evenly, where it is not 0.
_EMPTY = {name: -1 for name in ("ids", "labels", "follows", "starts", "ends")}


def parameter_axes(model: Model) -> tuple[dict[str, Axes], dict[str, jax.ShapeDtypeStruct]]:
    """Path -> the names of each parameter's axes, and path -> its shape; nothing is allocated."""
    with noting_axes() as names:
        params = jax.eval_shape(partial(init_params, model), jax.random.key(0))
    shapes: dict[str, Any] = flatten_dict(params, sep="/")
    return names, shapes


class Sharding:
    """A mesh, and the rules by which a network's arrays lie on it.

    Args:
        mesh: the devices, or no more than the sides of the mesh, to plan with.
        rules: see `RULES`.
    """

    def __init__(self, mesh: Mesh | AbstractMesh, rules: Mapping[str, MeshAxes] = RULES) -> None:
        self.mesh, self.rules = mesh, rules

    @cached_property
    def placing(self) -> Placing | None:
        """What `transformer.functional.partition` is to do; nothing on a single CPU."""
        kernel = attention_kernel(self.mesh)
        if self.mesh.size == 1 and kernel is None:
            return None
        return Placing(self._place, self.batch_shards, self._by_shard, kernel)

    def _place(self, array: jax.Array, axes: Axes) -> jax.Array:
        uneven = self._uneven(axes, array.shape)
        return jax.lax.with_sharding_constraint(array, self.named(_without(axes, uneven)))

    def _by_shard(self, function: Callable, inputs: tuple[Axes, ...], output: Axes) -> Callable:
        def call(*arrays: jax.Array | None) -> Any:
            shapes = [
                (axes, array.shape)
                for axes, array in zip(inputs, arrays, strict=True)
                if array is not None
            ]
            uneven = set[str]().union(*(self._uneven(*shape) for shape in shapes))
            return jax.shard_map(
                function,
                mesh=self.mesh,
                in_specs=tuple(self.spec(_without(axes, uneven)) for axes in inputs),
                out_specs=self.spec(_without(output, uneven)),
                check_vma=False,  # Pallas does not say how a result varies over the mesh.
            )(*arrays)

        return call

    def _uneven(self, axes: Axes, shape: tuple[int, ...]) -> set[str]:
        """Axes of an activation that the mesh does not divide, such as the rows of one sentence
        that is translated: they stay in one piece."""
        self.spec(axes)  # whether they all have a rule
        sizes = zip(axes, shape, strict=True)
        return {name for name, size in sizes if name and size % self._parts(name)}

    @property
    def batch_shards(self) -> int:
        """In how many parts a batch is split."""
        return self._parts("batch")

    def spec(self, axes: Axes) -> PartitionSpec:
        """Where an array lies whose axes have these names.

        Raises:
            UserError: a name without a rule, which would silently be left in one piece.
        """
        for name in axes:
            if name is not None and name not in self.rules:
                known = ", ".join(self.rules)
                raise UserError(f"axis {name!r}: no rule says where it lies; expected {known}")
        return PartitionSpec(*(self.rules[name] or None if name else None for name in axes))

    def sides(self, axes: Axes) -> list[MeshAxes]:
        """For each axis the sides of the mesh, those of 1 left out, over which it is split."""
        self.spec(axes)
        return [
            tuple(side for side in self.rules[name] if self.mesh.shape[side] > 1) if name else ()
            for name in axes
        ]

    def shard_shape(self, axes: Axes, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one device's part."""
        return tuple(
            size // (self._parts(name) if name else 1)
            for name, size in zip(axes, shape, strict=True)
        )

    def named(self, axes: Axes) -> NamedSharding:
        """As `spec`, with the mesh."""
        return NamedSharding(self.mesh, self.spec(axes))

    @property
    def everywhere(self) -> NamedSharding:
        """A copy on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def parameters(self, model: Model) -> Any:
        """A `NamedSharding` for each parameter of a network.

        Raises:
            UserError: an axis that the mesh does not divide; names the parameter.
        """
        names, shapes = parameter_axes(model)
        for path, axes in names.items():
            try:
                self._check(path, axes, shapes[path].shape)
            except UserError as error:
                raise UserError(f"parameter {path}: {error}") from error
        parts, config = self._parts("heads"), model.config
        for heads, name in ((config.num_heads, "num_heads"), (config.kv_heads, "num_kv_heads")):
            if heads % parts:
                raise UserError(
                    f"model.{name} = {heads}: expected a multiple of mesh.tensor = {parts}"
                )
        return unflatten_dict({path: self.named(names[path]) for path in shapes}, sep="/")

    def _check(self, path: str, axes: Axes, shape: tuple[int, ...]) -> None:
        self.spec(axes)
        for name, size in zip(axes, shape, strict=True):
            parts = self._parts(name) if name else 1
            if size % parts:
                sides = " x ".join(f"mesh.{side} = {self.mesh.shape[side]}" for side in
                                   self.rules[str(name)])  # fmt: skip
                raise UserError(
                    f"axis {name!r} of {size}, in the shape {shape}: expected a multiple of {sides}"
                )

    def _parts(self, name: str) -> int:
        return math.prod(self.mesh.shape[side] for side in self.rules[name])

    def optimizer_state(
        self, optimizer: optax.GradientTransformation, parameters: Any, shapes: Any
    ) -> Any:
        """Where the state of an optimizer lies: moments with their parameters, the rest everywhere.

        Args:
            optimizer: what `shapes` are of.
            parameters: a `NamedSharding` for each parameter.
            shapes: of the optimizer's state.
        """
        return optax.tree.map_params(
            optimizer,
            lambda _, place: place,
            shapes,
            parameters,
            transform_non_params=lambda _: self.everywhere,
        )

    def put(self, batch: Mapping[str, Any], accumulate: int = 1) -> dict[str, jax.Array]:
        """A batch on the devices, its rows in equal parts (see `with_empty_rows`).

        Of several hosts each gives the whole batch, or its `rows` of it and all ``ids``, which stay
        where they are.
        """
        place = self.named(("batch",))
        arrays = {name: np.asarray(array) for name, array in batch.items() if name != "ids"}
        count = len(batch["ids"]) if "ids" in batch else len(next(iter(arrays.values())))
        places = self._own_places(count, accumulate)
        if places is None:
            filled = with_empty_rows(arrays, self.batch_shards, accumulate)
            return {name: jax.device_put(array, place) for name, array in filled.items()}
        parts = dict(zip(self._own_shards, np.split(places, len(self._own_shards)), strict=True))
        size, there = len(places) // len(parts), places >= 0

        def put(name: str, array: np.ndarray) -> jax.Array:
            if len(array) == count:
                array = array[places[there]]
            own = np.full((len(places), *array.shape[1:]), _EMPTY.get(name, 0), array.dtype)
            own[there] = array
            by_shard = dict(zip(parts, np.split(own, len(parts)), strict=True))
            shape = (size * self.batch_shards, *array.shape[1:])

            def part(index: Any) -> np.ndarray:
                return by_shard[(index[0].start or 0) // size]

            return jax.make_array_from_callback(shape, place, part)

        return {name: put(name, array) for name, array in arrays.items()}

    @cached_property
    def _own_shards(self) -> list[int]:
        """Which parts of a batch the devices of this process have."""
        places = self.named(("batch",)).addressable_devices_indices_map((self.batch_shards,))
        return sorted({index[0].start or 0 for index in places.values() if index is not None})

    def rows(self, count: int, accumulate: int = 1) -> slice | np.ndarray:
        """The rows of a batch of `count` that the devices of this process have a part in."""
        places = self._own_places(count, accumulate)
        return slice(None) if places is None else places[places >= 0]

    def _own_places(self, count: int, accumulate: int) -> np.ndarray | None:
        """The row of the batch in each place of this process's parts, -1: none; None: all parts."""
        if isinstance(self.mesh, AbstractMesh) or not self.mesh.is_multi_process:
            return None
        numbers = {"ids": np.arange(count)}
        filled = with_empty_rows(numbers, self.batch_shards, accumulate)["ids"]
        return filled.reshape(self.batch_shards, -1)[self._own_shards].ravel()

    def placed_shapes(
        self, batch: Mapping[str, Any], accumulate: int = 1
    ) -> dict[str, jax.ShapeDtypeStruct]:
        """What `put` would return, without its values: nothing is put on a device."""
        place = self.named(("batch",))
        filled = with_empty_rows(batch, self.batch_shards, accumulate)
        return {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)
            for name, array in filled.items()
        }


def sharing(mesh: Mesh) -> Sharding | None:
    """How a mesh shares the work; None where one device without a kernel of its own does all."""
    sharding = Sharding(mesh)
    return sharding if sharding.placing is not None else None


def _without(axes: Axes, names: set[str]) -> Axes:
    return tuple(None if name in names else name for name in axes)


def spread(tree: Any, places: Any) -> Any:
    """Arrays that each host has whole, where they shall lie: a sharding for each."""

    def put(x: Any, place: jax.sharding.Sharding) -> jax.Array:
        if place.is_fully_addressable:
            return jax.device_put(x, place)
        array = np.asarray(x)
        return jax.make_array_from_callback(array.shape, place, lambda index: array[index])

    return jax.tree.map(put, tree, places)


def copied(tree: Any) -> Any:
    """Each array, or where it lies on several hosts a copy of the whole in this one's memory."""
    return jax.tree.map(
        lambda x: x if x.is_fully_addressable else process_allgather(x, tiled=True), tree
    )


def with_empty_rows(
    batch: Mapping[str, Any], parts: int, accumulate: int = 1
) -> dict[str, np.ndarray]:
    """A batch with empty rows at the end, so that there is a multiple of `parts`.

    So a batch itself does not depend on the mesh. Of each of `accumulate` micro-batches.
    """

    def fill(name: str, array: np.ndarray) -> np.ndarray:
        micro = array.reshape(accumulate, -1, *array.shape[1:])
        widths = [(0, 0), (0, -micro.shape[1] % parts)] + [(0, 0)] * (array.ndim - 1)
        filled = np.pad(micro, widths, constant_values=_EMPTY.get(name, 0))
        return filled.reshape(-1, *array.shape[1:])

    return {name: fill(name, np.asarray(array)) for name, array in batch.items()}
