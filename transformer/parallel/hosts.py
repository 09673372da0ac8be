"""Several processes that train one model: how they meet, agree, and end together.

A host is one process with the devices that it alone feeds. All hosts run the same program on the
same settings, so each decides alike what follows from these; what only one of them can know, a
signal or a file that is missing, is told to all before anything is done about it. Every function
here that tells something is called by all hosts, in the same order.
"""

import glob
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer.config import HostsConfig
from transformer.errors import UserError

T = TypeVar("T")

_SIGHT = 20.0
"""Seconds that a network file system may take to show one host what another wrote."""


def connect(config: HostsConfig) -> None:
    """Meets the other processes, if there are any; to be called before JAX is first used.

    Raises:
        UserError: they are not to be reached.
    """
    explicit = config.coordinator is not None
    if jax.distributed.is_initialized() or config.count == 1 or not (explicit or announced()):
        return
    try:
        jax.distributed.initialize(
            config.coordinator,
            config.count,
            config.index,
            cluster_detection_method="deactivate" if explicit else None,
            heartbeat_timeout_seconds=config.timeout,
            shutdown_timeout_seconds=config.timeout,
        )
    except Exception as error:  # JAX's, and those of what it asks: sockets, metadata, Kubernetes.
        reason = str(error).split("\n")[0]
        where = f"hosts.coordinator = {config.coordinator!r}" if explicit else "hosts.coordinator"
        hint = "" if explicit else " (--hosts.count 1 trains alone)"
        raise UserError(f"{where}: cannot meet the other processes: {reason}{hint}") from error


def announced() -> bool:
    """Whether the surroundings say that this is one of several processes.

    JAX finds out more about them, but counts a single process too, and waits long for the answer
    of a cloud where there is none.
    """
    say = os.environ.get
    if "SLURM_STEP_NODELIST" in os.environ:
        return int(say("SLURM_NTASKS", "1")) > 1
    if size := say("OMPI_COMM_WORLD_SIZE"):
        return int(size) > 1
    if int(say("MEGASCALE_NUM_SLICES") or 1) > 1:
        return True
    if workers := say("TPU_PROCESS_ADDRESSES") or say("TPU_WORKER_HOSTNAMES"):  # GKE
        return "," in workers
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "JOB_COMPLETION_INDEX" in os.environ
    # Of a Cloud TPU the machine's metadata tell, which only such a machine has.
    chips = glob.glob("/dev/accel*") + glob.glob("/dev/vfio/[0-9]*")
    return bool(chips) and "TPU_SKIP_MDS_QUERY" not in os.environ and _has_libtpu()


def _has_libtpu() -> bool:
    from importlib.util import find_spec

    return find_spec("libtpu") is not None


def several() -> bool:
    """Whether there are other hosts."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def index() -> int:
    """The number of this host, from 0 on."""
    return jax.process_index() if several() else 0


def count() -> int:
    """How many hosts there are."""
    return jax.process_count() if several() else 1


def first() -> bool:
    """Whether this is the host that writes and says what one alone has to."""
    return index() == 0


def leave(code: int) -> None:
    """Ends this process at once, if there are others: at a usual exit it would wait for them.

    So they lose it, and end too.
    """
    if several():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def gather(value: Any) -> list[Any]:
    """What each host has, JSON types, by its number."""
    if not several():
        return [value]
    data = b"" if value is None else json.dumps(value).encode()
    sizes = multihost_utils.process_allgather(np.array(len(data), np.int32))
    if not sizes.max():
        return [None] * len(sizes)
    table = multihost_utils.process_allgather(_padded(data, sizes.max()))
    rows = zip(table, sizes, strict=True)
    return [json.loads(row[:size].tobytes()) if size else None for row, size in rows]


def from_first(value: T) -> T:
    """What host 0 has, JSON types; what the others give is not looked at."""
    if not several():
        return value
    data = json.dumps(value).encode() if first() else b""
    size = multihost_utils.broadcast_one_to_all(np.array(len(data), np.int32))
    found = multihost_utils.broadcast_one_to_all(_padded(data, size))
    return json.loads(found[:size].tobytes())


def _padded(data: bytes, size: int) -> np.ndarray:
    """A row of one of few lengths, each of which JAX compiles a program for."""
    row = np.zeros(max(256, 1 << (int(size) - 1).bit_length()), np.uint8)
    row[: len(data)] = np.frombuffer(data, np.uint8)
    return row


@contextmanager
def together() -> Iterator[None]:
    """What a `UserError` within this on any host becomes one on all; host 0 says it.

    What every host does within must not need the others.
    """
    mine: UserError | None = None
    try:
        yield
    except UserError as error:
        if not several():
            raise
        mine = error
    found = gather(mine and [str(mine), mine.exit_code])
    errors = [(host, *error) for host, error in enumerate(found) if error]
    if errors:
        host, text, code = errors[0]
        everywhere = len({error[1] for error in errors}) == 1 and len(errors) == len(found)
        error = mine or UserError("")
        error.args = (text if everywhere or host == 0 else f"host {host}: {text}",)
        error.exit_code, error.shared = code, True
        raise error


def require_shared(directory: Path) -> None:
    """Checks that all hosts see the same directory.

    Raises:
        UserError: one does not; on all of them.
    """
    if not several():
        return
    name = from_first(f".host-{secrets.token_hex(8)}")
    mark = directory / name
    with together():
        try:
            if first():
                directory.mkdir(parents=True, exist_ok=True)
                mark.touch()
        except OSError as error:
            raise UserError(f"cannot write in {directory}: {error.strerror}") from error
    with together():
        deadline = time.monotonic() + _SIGHT
        while not mark.exists():
            if time.monotonic() > deadline:
                raise UserError(
                    f"{directory}: not the directory of host 0; expected one that all hosts share"
                )
            time.sleep(0.1)
            # Reading a directory is what makes a network file system look again.
            if directory.is_dir():
                os.listdir(directory)
    if first():
        mark.unlink(missing_ok=True)


class Votes:
    """Tells all hosts of a signal that any was sent, at the same step and without waiting.

    The largest number is found by a program of its own on the devices, which runs after the steps
    that were started before.
    """

    def __init__(self) -> None:
        mesh = Mesh(np.array(jax.devices()), ("devices",))
        self._each = NamedSharding(mesh, PartitionSpec("devices"))
        self._max = jax.jit(lambda x: x.max(), out_shardings=NamedSharding(mesh, PartitionSpec()))

    def __call__(self, number: int) -> jax.Array:
        """The largest of all hosts' numbers: an int32 scalar on the devices."""
        mine = np.full(1, number, np.int32)
        shape = (self._each.mesh.size,)
        return self._max(jax.make_array_from_callback(shape, self._each, lambda _: mine))


class LostHost(UserError):
    """Another host is gone: training cannot go on."""

    exit_code = 1


@contextmanager
def losing(what_now: Callable[[], str]) -> Iterator[None]:
    """Within this an error of JAX, which is that another host does not answer, is a `LostHost`.

    Args:
        what_now: says what is to be done.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not several() or "RESOURCE_EXHAUSTED" in str(error):
            raise
        reason = str(error).split("\n")[0]
        raise LostHost(f"another host is gone; {what_now()} ({reason})") from error
