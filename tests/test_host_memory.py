"""Memory between two runs of a program."""

import subprocess
import sys

_PROGRAM = """
import resource, sys
import jax, jax.numpy as jnp
from transformer.host_memory import keep_freed_memory

changed = sys.argv[1] == "keep" and keep_freed_memory()

@jax.jit
def run(x):
    for _ in range(3):  # each value is needed after a reduction of it: 192 MB in all
        x = x * x.sum()
    return x.sum()

x = jnp.ones(2**24)
def faults():
    for _ in range(3):
        run(x).block_until_ready()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(changed, -faults() + faults())
"""


def page_faults(argument: str) -> tuple[bool, int]:
    output = subprocess.run(
        [sys.executable, "-c", _PROGRAM, argument], capture_output=True, text=True, check=True
    ).stdout
    changed, faults = output.split()
    return changed == "True", int(faults)


def test_a_program_run_again_finds_the_memory_of_its_last_run():
    """A training step spent a third of its time in page faults: 12,000 a step."""
    changed, faults = page_faults("keep")
    if changed:
        assert faults < 1000
        assert page_faults("leave")[1] > 3 * 2**26 // 4096
