"""Which processes train together."""

from dataclasses import dataclass

from transformer.config.require import require


@dataclass(frozen=True)
class HostsConfig:
    """The processes of one training, each with devices of its own, on one machine or on many.

    Under Slurm, Open MPI, on Cloud TPU and on GKE they find each other; elsewhere give coordinator,
    count and index."""

    coordinator: str | None = None
    """HOST:PORT, a free port of the machine where process 0 runs, such as 10.0.0.1:8476; None: as
    the cluster says, where there is one."""
    count: int | None = None
    """How many processes there are; 1: this one alone, whatever the cluster says."""
    index: int | None = None
    """The number of this process, from 0 on."""
    timeout: int = 60
    """Seconds after which a process that is not heard of is taken for dead, and all others end."""

    def __post_init__(self) -> None:
        require(self.count is None or self.count >= 1, "hosts.count", self.count, "at least 1")
        require(self.timeout >= 1, "hosts.timeout", self.timeout, "at least 1")
        if self.coordinator is None:
            for name, single in (("count", (None, 1)), ("index", (None, 0))):
                value = getattr(self, name)
                expected = f"HOST:PORT, because hosts.{name} = {value}"
                require(value in single, "hosts.coordinator", None, expected)
            return
        host, _, port = self.coordinator.rpartition(":")
        valid = bool(host) and port.isdecimal() and 0 < int(port) < 1 << 16
        require(valid, "hosts.coordinator", self.coordinator, "HOST:PORT, such as 10.0.0.1:8476")
        why = "because hosts.coordinator is given"
        require(self.count is not None, "hosts.count", None, f"how many processes there are, {why}")
        require(self.index is not None, "hosts.index", None, f"the number of this process, {why}")
        index, count = self.index or 0, self.count or 1
        require(
            0 <= index < count, "hosts.index", index, f"0 to {count - 1}, as hosts.count = {count}"
        )
