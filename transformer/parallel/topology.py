"""Machines that are not at hand, as the compilers describe them: what `Plan` compiles for."""

import math
import os
import re
from typing import Any, NamedTuple

import jax
from jax._src.cudnn import fused_attention_stablehlo
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache

from transformer.errors import UserError
from transformer.parallel.chips import CHIPS, Chip

_FORM = re.compile(r"(\w+):(\d+(?:x\d+)*)(?::(\d+))?")
_EXAMPLES = "such as v5e:16x16, v5p:4x4x8, v5e:16x16:2 (two slices) or h100:1x8x8"

# The shapes in which slices are rented (cloud.google.com/tpu/docs), smallest to largest side.
_FLAT = ["2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"]
_CUBES = ["2x2x1", "2x2x2", "2x2x4", "2x4x4"]
# From 4x4x4 on sides are multiples of 4, up to a pod.
_PODS = {"v4": 4096, "v5p": 6144, "tpu7x": 9216}


class _Gpu(NamedTuple):
    """What XLA asks about a GPU, from NVIDIA's data sheets and programming guide."""

    capability: tuple[int, int]
    cores: int
    shared_memory: int  # of a core; a block may have 1 KiB less
    bandwidth: float
    cache: int
    clock: float
    memory: int


_CUDNN = 91000  # 9.10, as XLA is told below
_GPUS = {
    "a100": _Gpu((8, 0), 108, 164 << 10, 2039e9, 40 << 20, 1.41, 80 << 30),
    "h100": _Gpu((9, 0), 132, 228 << 10, 3352e9, 50 << 20, 1.98, 80 << 30),
    "h200": _Gpu((9, 0), 132, 228 << 10, 4800e9, 50 << 20, 1.98, 141_000_000_000),
}


class Target(NamedTuple):
    """Where a program is compiled for.

    Attributes:
        name: as given.
        chip: the figures of one device.
        devices: all, in the compiler's order.
    """

    name: str
    chip: Chip
    devices: tuple[jax.Device, ...]


def target_of(name: str) -> Target:
    """The machine that is called ``CHIP:SIDES``, or ``CHIP:SIDES:SLICES``.

    Of a TPU SIDES are those of a slice, in chips; of a GPU ``1 x hosts x GPUs of a host``.
    The process is then one that computes on its CPU.

    Raises:
        UserError: there is no such machine, or its compiler is not installed.
    """
    match = _FORM.fullmatch(name)
    if match is None:
        raise UserError(f"--plan {name}: expected a chip and the sides of a slice, {_EXAMPLES}")
    kind, sides, slices = match[1], match[2], int(match[3] or 1)
    if kind not in CHIPS:
        raise UserError(f"--plan {name}: chip {kind!r}; expected one of {', '.join(CHIPS)}")
    jax.config.update("jax_platforms", "cpu")
    make = _tpu if CHIPS[kind].platform == "tpu" else _gpu
    return Target(name, CHIPS[kind], tuple(make(name, kind, sides, slices).devices))


def _tpu(name: str, kind: str, sides: str, slices: int) -> Any:
    _require_sides(name, kind, [int(side) for side in sides.split("x")])
    if slices < 1:
        raise UserError(f"--plan {name}: expected at least one slice")
    # Or libtpu would ask the machine it is on what TPU it has.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("TPU_WORKER_ID", "0")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    options: dict[str, Any] = {"num_slices": slices} if slices > 1 else {}
    if kind == "v4":
        options["chip_config_name"] = "megacore"  # both cores of a chip are one device
    return _described(name, "tpu", topology_name=f"{kind}:{sides}", **options)


def _require_sides(name: str, kind: str, sides: list[int]) -> None:
    """The compiler takes any."""
    ordered = "x".join(map(str, sorted(sides)))
    if kind not in _PODS:
        known = ordered in _FLAT
        expected = ", ".join(_FLAT)
    else:
        most = _PODS[kind]
        cubes = ["x".join(sorted(cube.split("x"))) for cube in _CUBES]
        whole = len(sides) == 3 and all(side % 4 == 0 and side for side in sides)
        known = ordered in cubes or (whole and math.prod(sides) <= most)
        expected = f"{', '.join(_CUBES)}, or three multiples of 4, {most:,} chips at most"
    if not known:
        raise UserError(f"--plan {name}: no slice has these sides; expected {expected}")


def _gpu(name: str, kind: str, sides: str, slices: int) -> Any:
    if len(sides.split("x")) != 3 or slices != 1 or "0" in sides.split("x"):
        raise UserError(f"--plan {name}: expected 1 x hosts x GPUs of a host, as in h100:1x8x8")
    gpu = _GPUS[kind]
    fields: dict[str, Any] = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_core": gpu.shared_memory,
        "threads_per_core_limit": 2048,
        "core_count": gpu.cores,
        "fpus_per_core": 128 if gpu.capability[0] > 8 else 64,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "memory_bandwidth": int(gpu.bandwidth),
        "l2_cache_size": gpu.cache,
        "clock_rate_ghz": gpu.clock,
        "device_memory_size": gpu.memory,
        "shared_memory_per_block_optin": gpu.shared_memory - (1 << 10),
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
    }
    major, minor = gpu.capability
    lines = [f"{field}: {value}" for field, value in fields.items()]
    lines.append(f"cuda_compute_capability {{ major: {major} minor: {minor} }}")
    target = f'gpu_device_info {{ {" ".join(lines)} }} platform_name: "CUDA" '
    target += f'dnn_version_info {{ major: 9 minor: 10 }} device_description_str: "{kind}"'
    described = _described(name, "cuda", topology=sides, target_config=target)
    # JAX asks the cuDNN of the machine it is on for its version, where there need be none; the
    # compiler itself asks nothing of it. The process computes on its CPU only, see `target_of`.
    fused_attention_stablehlo.check_cudnn_version = lambda: _CUDNN
    return described


def _described(name: str, platform: str, **options: Any) -> Any:
    # Programs for machines that are not there are kept, but cannot be read again.
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX reads the setting once
    try:
        return topologies.get_topology_desc(platform=platform, **options)
    except Exception as error:  # of many kinds: no library, no plugin, the compiler's own
        message = str(error).split("\n")[0]
        raise UserError(
            f"--plan {name}: {message}; expected the compilers of the extra plan "
            "(pip install 'transformer[plan]')"
        ) from error
