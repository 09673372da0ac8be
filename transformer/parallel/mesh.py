"""The grid of devices."""

from collections.abc import Sequence

import jax
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh

from transformer.config import MeshConfig
from transformer.errors import UserError
from transformer.functional.partition import Kernel

AXES = ("data", "fsdp", "tensor")
"""Outer to inner: neighbours talk most, so that the innermost axis gets the fastest links."""


_KERNELS: dict[str, Kernel] = {"tpu": "splash", "gpu": "cudnn", "cuda": "cudnn"}


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """All devices as a grid ``[data, fsdp, tensor]``.

    Args:
        config: the sides.
        devices: None: all there are, in an order that suits the links between them. Of several
            slices of a TPU, between which links are slow, each has whole groups of the side `data`.

    Raises:
        UserError: the product of the sides is not the number of devices, or the slices do not
            divide `data`.
    """
    chips = jax.devices() if devices is None else devices
    count = len(chips)
    inner = config.fsdp * config.tensor
    data = max(1, count // inner) if config.data == -1 else config.data
    if data * inner != count:
        shown = f"mesh.data x fsdp x tensor = {config.data} x {config.fsdp} x {config.tensor}"
        expected = f"a product of {count}, the number of devices"
        raise UserError(f"{shown}: expected {expected}")
    shape = data, config.fsdp, config.tensor
    slices = len({getattr(chip, "slice_index", 0) for chip in chips})
    if slices > 1:
        if data % slices:
            raise UserError(f"mesh.data = {data}: expected a multiple of {slices}, as many slices")
        grid = mesh_utils.create_hybrid_device_mesh(
            (data // slices, *shape[1:]), (slices, 1, 1), chips, allow_split_physical_axes=True
        )
    else:
        # `jax.make_mesh` refuses sides that split an axis of the chips' torus.
        grid = mesh_utils.create_device_mesh(shape, chips, allow_split_physical_axes=True)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def abstract_mesh(config: MeshConfig) -> AbstractMesh:
    """The sides of a mesh whose devices are not at hand; ``data = -1`` is taken for 1."""
    return AbstractMesh((max(1, config.data), config.fsdp, config.tensor), AXES)


def attention_kernel(mesh: Mesh | AbstractMesh) -> Kernel | None:
    """What the mesh's devices compute attention of long rows with; None: no kernel of their own."""
    if isinstance(mesh, AbstractMesh):
        return None
    return _KERNELS.get(mesh.devices.flat[0].platform)


def describe(mesh: Mesh | AbstractMesh) -> str:
    """Such as "8 devices: data 2 x fsdp 4 x tensor 1"."""
    sides = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    return f"{mesh.size} devices: {sides}"
