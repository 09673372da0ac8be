"""Time from the start of the process to the first training step of the quickstart.

python -m benchmarks.startup
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tyro

from transformer.errors import UserError

ROOT = Path(__file__).parents[1]


def main(config: Path = ROOT / "configs" / "quickstart.py") -> None:
    """Prints the seconds with an empty and with a filled cache of compiled programs.

    Args:
        config: what is trained.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("empty", "filled"):
            seconds = _seconds_to_first_step(config, Path(scratch), Path(scratch) / name)
            print(f"{name} cache of compiled programs: {seconds:.1f} s to the first step")


def _seconds_to_first_step(config: Path, cache: Path, workdir: Path) -> float:
    command = [sys.executable, "train.py", "--config", str(config), "--workdir", str(workdir)]
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(cache / "programs"),
        "PYTHONUNBUFFERED": "1",
    }
    began = time.perf_counter()
    with subprocess.Popen(
        [*command, "--train.log-every", "1"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 1/"):
                seconds = time.perf_counter() - began
                process.kill()
                return seconds
    raise UserError(f"{' '.join(command)}: ended with {process.returncode} before its first step")


if __name__ == "__main__":
    tyro.cli(main)
