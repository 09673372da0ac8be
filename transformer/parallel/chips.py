"""What accelerators can do, as their makers state it, of each device that JAX lists."""

from typing import Literal, NamedTuple

import jax

_GIB = 2**30


class Chip(NamedTuple):
    """One device. (Of a TPU v7 chip JAX lists two, so that these are halves of a chip's figures.)

    Attributes:
        platform: what it belongs to.
        flops: dense bfloat16 operations a second, at most.
        memory: bytes that a program may use.
        links: bytes a second that the links to other devices carry into it, all together: its
            slice's for a TPU, NVLink's for a GPU.
        kinds: what `jax.Device.device_kind` says.
    """

    platform: Literal["tpu", "gpu"]
    flops: float
    memory: float
    links: float
    kinds: tuple[str, ...]


# Peak and links: cloud.google.com/tpu/docs/system-architecture and NVIDIA's data sheets (dense,
# SXM). A TPU's memory is what its compiler says it has; of a GPU's a process takes three quarters
# unless told otherwise.
CHIPS = {
    "v4": Chip("tpu", 275e12, 30.75 * _GIB, 300e9, ("TPU v4",)),
    "v5e": Chip("tpu", 197e12, 15.75 * _GIB, 200e9, ("TPU v5 lite", "TPU v5e")),
    "v5p": Chip("tpu", 459e12, 95.73 * _GIB, 600e9, ("TPU v5", "TPU v5p")),
    "v6e": Chip("tpu", 918e12, 31.24 * _GIB, 448e9, ("TPU v6 lite", "TPU v6e")),
    "tpu7x": Chip("tpu", 2307e12 / 2, 94.74 * _GIB, 600e9, ("TPU7x",)),
    "a100": Chip("gpu", 312e12, 0.75 * 80e9, 300e9,
                 ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB")),
    "h100": Chip("gpu", 989.4e12, 0.75 * 80e9, 450e9, ("NVIDIA H100 80GB HBM3",)),
    "h200": Chip("gpu", 989.4e12, 0.75 * 141e9, 450e9, ("NVIDIA H200",)),
}  # fmt: skip
"""Name, as in ``--plan v5e:16x16`` -> figures."""


def chip_of(device: jax.Device) -> Chip | None:
    """The figures of a device that is at hand; None: not known, as of any CPU."""
    return next((chip for chip in CHIPS.values() if device.device_kind in chip.kinds), None)
