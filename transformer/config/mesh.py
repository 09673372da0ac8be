"""How the devices share the work."""

from dataclasses import dataclass

from transformer.config.require import require


@dataclass(frozen=True)
class MeshConfig:
    """A grid of all devices; the product of its sides is their number. What is learnt does not
    depend on it."""

    data: int = -1
    """Groups of devices that each hold all parameters and take a share of each batch (data
    parallel); -1: as many as there are devices left by the others."""
    fsdp: int = 1
    """Devices of a group that share its parameters and optimizer state too, and gather them layer
    by layer (fully sharded data parallel; ZeRO stage 3, Rajbhandari et al. 2020)."""
    tensor: int = 1
    """Devices that share the heads, the feed-forward layer's width and the vocabulary (tensor
    parallel; Shoeybi et al. 2019)."""

    def __post_init__(self) -> None:
        for name in ("fsdp", "tensor"):
            value = getattr(self, name)
            require(value >= 1, f"mesh.{name}", value, "at least 1")
        require(self.data == -1 or self.data >= 1, "mesh.data", self.data, "-1, or at least 1")
