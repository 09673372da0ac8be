"""Machines that are not at hand; what needs their compilers is marked `plan`."""

import pytest

from transformer.config import MeshConfig
from transformer.errors import UserError
from transformer.parallel.chips import CHIPS
from transformer.parallel.mesh import make_mesh
from transformer.parallel.topology import target_of


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v5e", r"--plan v5e: expected a chip and the sides of a slice, such as v5e:16x16"),
        ("v9:2x2", r"chip 'v9'; expected one of v4, v5e, v5p, v6e, tpu7x, a100, h100, h200"),
        ("v5e:7x9", r"no slice has these sides; expected 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16"),
        ("v4:2x2", r"no slice has these sides; expected 2x2x1, .* 4,096 chips at most"),
        ("v5p:4x4x6", "three multiples of 4, 6,144 chips at most"),
        ("v5p:16x16x28", "6,144 chips at most"),
        ("v5e:2x4:0", "expected at least one slice"),
        ("h100:8", "expected 1 x hosts x GPUs of a host, as in h100:1x8x8"),
    ],
)
def test_machines_that_nobody_rents(name, message):
    with pytest.raises(UserError, match=message):
        target_of(name)


@pytest.mark.plan
@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("v4:2x2x2", 8),  # both cores of a chip are one device
        ("v5e:16x16", 256),
        ("v5e:2x4:2", 16),
        ("v5p:4x4x8", 128),
        ("v6e:8x8", 64),
        ("tpu7x:2x2x1", 8),  # of which two are a chip
        ("a100:1x1x8", 8),
        ("h100:1x8x8", 64),
        ("h200:1x2x8", 16),
    ],
)
def test_machines_as_their_compilers_describe_them(name, devices):
    target = target_of(name)
    assert len(target.devices) == devices
    chip = CHIPS[name.split(":")[0]]
    assert target.chip is chip
    if chip.platform == "tpu":
        assert target.devices[0].device_kind in chip.kinds


@pytest.mark.plan
@pytest.mark.parametrize(
    ("name", "sides"),
    [("v6e:8x8", (1, 16, 4)), ("v5p:8x8x16", (1, 512, 2)), ("v5p:4x4x4", (2, 32, 1))],
)
def test_a_mesh_may_split_the_sides_of_a_slice(name, sides):
    mesh = make_mesh(MeshConfig(*sides), target_of(name).devices)
    assert mesh.devices.shape == sides
    assert len(set(mesh.devices.flat)) == mesh.size
