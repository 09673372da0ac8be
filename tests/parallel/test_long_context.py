"""Attention of long rows, forward and backward, compiled for accelerators that are not there."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from transformer.config import MeshConfig
from transformer.functional import Mask, attend
from transformer.functional.partition import placing
from transformer.parallel.hlo import Program, read_program
from transformer.parallel.mesh import make_mesh
from transformer.parallel.sharding import Sharding
from transformer.parallel.topology import target_of

pytestmark = pytest.mark.plan
HEADS, DIMS = 8, 128


def compiled(
    machine: str, length: int, sides: tuple[int, int, int] = (1, 1, 1), **options: Any
) -> tuple[int, Program]:
    """Bytes besides arguments and results on a device, and the program; one row a device."""
    devices = target_of(machine).devices
    mesh = make_mesh(MeshConfig(*sides), devices[: sides[0] * sides[1] * sides[2]])
    sharding = Sharding(mesh)
    axes = "batch", None, "heads", None

    def loss(query, key, value):
        mask = Mask.self_attention(None, jnp.arange(length)[None], causal=True)
        with placing(sharding.placing):
            output = attend(query, key, value, mask=mask, **options)
        return output.astype(jnp.float32).sum()

    shape = sharding.batch_shards, length, HEADS * sides[2], DIMS
    x = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding.named(axes))
    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    program = gradients.lower(x, x, x).compile()
    memory: Any = program.memory_analysis()
    results = 3 * 2 * length * HEADS * DIMS
    return memory.peak_memory_in_bytes - 2 * results, read_program(str(program.as_text()))


def test_a_tpus_kernel_takes_memory_linear_in_length():
    """Of 4,096, 32,768 and 131,072 tokens; the plain path takes a GiB of the first already."""
    peaks = []
    for length in (4096, 32768, 131072):
        peak, program = compiled("v5e:2x2", length)
        assert program.kernels == {"tpu_custom_call": 3}  # forward, and backward in two
        peaks.append(peak / length)
    assert max(peaks) < 1.5 * peaks[0], peaks
    assert compiled("v5e:2x2", 4096, implementation="plain")[0] > 15 * 4096 * peaks[0]


def test_each_tpu_runs_the_kernel_on_its_share():
    one, _ = compiled("v5e:2x2", 4096)
    peak, program = compiled("v5e:2x2", 4096, (2, 1, 2))
    assert program.kernels == {"tpu_custom_call": 3} and not program.collectives
    assert peak == pytest.approx(one, rel=0.1)


def test_a_gpus_kernel_takes_memory_linear_in_length():
    peaks = []
    for length in (4096, 32768, 131072):
        peak, program = compiled("h100:1x1x4", length)
        assert sum(program.kernels.values()) == 2
        peaks.append(peak / length)
    assert max(peaks) < 1.5 * peaks[0], peaks
    _, program = compiled("h100:1x1x4", 4096, (2, 1, 2))
    assert sum(program.kernels.values()) == 2 and not program.collectives
    assert compiled("h100:1x1x4", 4096, implementation="plain")[0] > 15 * 4096 * peaks[0]
