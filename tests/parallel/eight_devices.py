"""Run as a program, on eight devices that a CPU pretends to have; prints what it finds as JSON.

One process, because each costs seconds to start, and because a process has one number of devices.
"""

import json
import sys
from pathlib import Path

import jax

jax.config.update("jax_num_cpu_devices", 8)

from tests.parallel import cases, decoding_cases  # noqa: E402


def main(folder: Path) -> None:
    """Everything, on standard output."""
    found = {f"{name} {sides}": cases.compare(config, sides) for name, config, sides in cases.CASES}
    losses = cases.train_on((2, 2, 2), folder, 4)
    results = {
        "cases": found,
        "step": cases.inspect_step(),
        "gathers": cases.largest_gathers(),
        "losses": losses,
        "kernel": cases.compare_kernel((2, 2, 2)),
        "decoded": decoding_cases.everything(),
    }
    print("JSON", json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
