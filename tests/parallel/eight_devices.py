"""Run as a program, on eight devices that a CPU pretends to have; prints what it finds as JSON.

One process, because each costs seconds to start, and because a process has one number of devices.
"""

import json
import sys
from pathlib import Path

import jax

jax.config.update("jax_num_cpu_devices", 8)

from tests.parallel import decoding_cases  # noqa: E402
from tests.parallel.cases import CASES, compare, compare_kernel, inspect_step, train_on  # noqa: E402


def main(folder: Path) -> None:
    """Everything, on standard output."""
    found = {f"{name} {sides}": compare(name, sides) for name, sides in CASES}
    losses = train_on((2, 2, 2), folder, 4)
    results = {
        "cases": found,
        "step": inspect_step(),
        "losses": losses,
        "kernel": compare_kernel((2, 2, 2)),
        "decoded": decoding_cases.everything(),
    }
    print("JSON", json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
