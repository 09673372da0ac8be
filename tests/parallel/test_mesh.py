from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from transformer.config import MeshConfig
from transformer.errors import UserError
from transformer.parallel.mesh import abstract_mesh, attention_kernel, describe, make_mesh


def test_a_mesh_of_one_device():
    mesh = make_mesh(MeshConfig())
    assert dict(mesh.shape) == {"data": 1, "fsdp": 1, "tensor": 1}
    assert describe(mesh) == "1 devices: data 1 x fsdp 1 x tensor 1"


def test_a_mesh_of_another_number_of_devices_is_refused():
    message = "mesh.data x fsdp x tensor = -1 x 2 x 3: expected a product of 1, the number of"
    with pytest.raises(UserError, match=message):
        make_mesh(MeshConfig(fsdp=2, tensor=3))
    with pytest.raises(UserError, match="= 4 x 1 x 1: expected a product of 1"):
        make_mesh(MeshConfig(data=4), jax.devices()[:1])


def test_a_mesh_to_plan_with_needs_no_devices():
    mesh = abstract_mesh(MeshConfig(-1, 16, 4))
    assert dict(mesh.shape) == {"data": 1, "fsdp": 16, "tensor": 4}


def test_the_kernel_of_attention_is_that_of_the_mesh():
    def kernel(platform):
        devices: Any = np.array([SimpleNamespace(platform=platform)])
        mesh: Any = SimpleNamespace(devices=devices)
        return attention_kernel(mesh)

    assert [kernel(name) for name in ("tpu", "gpu", "cpu")] == ["splash", "cudnn", None]
    assert attention_kernel(make_mesh(MeshConfig())) is None
    assert attention_kernel(abstract_mesh(MeshConfig(8))) is None


class Chip:
    """What a device tells of its place."""

    platform, device_kind, process_index = "cpu", "made up", 0

    def __init__(self, number: int, slice_index: int) -> None:
        self.id, self.slice_index = number, slice_index


def test_groups_that_talk_most_lie_on_one_slice():
    chips: Any = [Chip(number, number // 4) for number in range(8)]
    mesh = make_mesh(MeshConfig(data=4, fsdp=2), chips)
    slices = np.vectorize(lambda chip: chip.slice_index)(mesh.devices)
    assert slices[..., 0].tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]
    assert len({chip.id for chip in mesh.devices.flat}) == 8
    with pytest.raises(UserError, match=r"mesh.data = 1: expected a multiple of 2, as many slices"):
        make_mesh(MeshConfig(tensor=8), chips)
