"""``transformer launch``."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import tyro

from transformer.commands.base import Command
from transformer.config.require import require
from transformer.errors import UserError

_START = "import sys; from transformer.cli import main; sys.exit(main(sys.argv[1:]))"
_GRACE = 15.0
"""Seconds that the other processes have to end after one has failed, and again after SIGTERM."""


@dataclass(frozen=True)
class Launch(Command):
    """Start several processes on this machine that train together: launch ... -- train ...

    They are numbered from 0 on and given --hosts.* accordingly; when one fails all are ended.
    """

    command: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="train ...")
    ] = ()
    """After "--": train with its options."""
    processes: int = 2
    """How many."""
    devices: int | None = None
    """Of each process: so many of the machine's GPUs, in their order; or so many devices that a
    CPU pretends to have. None: all there are, and of a CPU one."""

    required: ClassVar = ("processes",)

    def run(self) -> int:
        require(self.processes >= 1, "--processes", self.processes, "at least 1")
        require(self.devices is None or self.devices >= 1, "--devices", self.devices, "at least 1")
        name = self.command[0] if self.command else None
        require(name == "train", "transformer launch ... --", name, "'train' and its options")
        coordinator = f"localhost:{free_port()}"

        def start(index: int) -> subprocess.Popen:
            place = [f"--hosts.coordinator={coordinator}", f"--hosts.count={self.processes}"]
            arguments = [*self.command, *place, f"--hosts.index={index}"]
            environment = {**os.environ, **self._devices_of(index)}
            return subprocess.Popen([sys.executable, "-c", _START, *arguments], env=environment)

        return _wait([start(index) for index in range(self.processes)])

    def _devices_of(self, index: int) -> dict[str, str]:
        if self.devices is None:
            return {}
        own = range(index * self.devices, (index + 1) * self.devices)
        return {
            "JAX_NUM_CPU_DEVICES": str(self.devices),
            "JAX_LOCAL_DEVICE_IDS": ",".join(map(str, own)),
        }


def free_port() -> int:
    """Of this machine, which nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def _wait(
    processes: Sequence[subprocess.Popen], clock: Callable[[], float] = time.monotonic
) -> int:
    """The exit code of all, or of the first that failed, after which the others are ended."""

    def forward(number: int, _: object) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    # Ctrl-C reaches them from the terminal as it reaches this one.
    handlers = {signal.SIGTERM: forward, signal.SIGINT: lambda *_: None}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        failed: tuple[int, int] | None = None
        ends: list[tuple[float, Callable[[subprocess.Popen], None]]] = []
        while None in [process.poll() for process in processes]:
            if failed is None:
                failed = next(
                    ((i, p.returncode) for i, p in enumerate(processes) if p.returncode), None
                )
                if failed and not _asked_to_stop(failed[1]):
                    now = time.monotonic()
                    ends = [(now + _GRACE, lambda p: p.terminate()),
                            (now + 2 * _GRACE, lambda p: p.kill())]  # fmt: skip
            while ends and time.monotonic() > ends[0][0]:
                for process in processes:
                    if process.poll() is None:
                        ends[0][1](process)
                ends.pop(0)
            time.sleep(0.05)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
    codes = [(index, process.returncode) for index, process in enumerate(processes)]
    failed = failed or next(((i, code) for i, code in codes if code), None)
    if failed is None:
        return 0
    index, code = failed
    if code < 0:
        raise _Killed(index, len(processes), -code)
    return code


def _asked_to_stop(code: int) -> bool:
    return code in (128 + signal.SIGINT, 128 + signal.SIGTERM)


class _Killed(UserError):
    def __init__(self, index: int, count: int, number: int) -> None:
        name = signal.Signals(number).name
        super().__init__(f"process {index} of {count} was ended by {name}; the others were too")
        self.exit_code = 128 + number
