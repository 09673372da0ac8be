"""``transformer inspect``."""

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import ClassVar

from transformer import config as configuration
from transformer.commands.base import Command
from transformer.config import Config
from transformer.errors import UserError
from transformer.models.build import build_model
from transformer.parallel.mesh import abstract_mesh
from transformer.parallel.sharding import Sharding, parameter_axes
from transformer.training.checkpoint import load_config


@dataclass(frozen=True)
class Inspect(Config, Command):
    """List the parameters of a model: shapes, names of axes, and how a mesh would share them.

    The mesh need not be there: --mesh.fsdp 16 --mesh.tensor 4 is answered on any machine.
    """

    config: str | None = None
    """A Python file that defines `config`, such as configs/quickstart.py."""
    checkpoint: str | None = None
    """Instead: the --workdir of a training run, or one checkpoint's directory."""

    located_by: ClassVar = ("config", "checkpoint")

    @classmethod
    def defaults(cls, config: str | None = None, checkpoint: str | None = None) -> "Inspect":
        if (config is None) == (checkpoint is None):
            return cls()
        loaded = load_config(str(checkpoint)) if config is None else configuration.load(config)
        return cls(**{f.name: getattr(loaded, f.name) for f in dataclasses.fields(loaded)})

    def run(self) -> int:
        if (self.config is None) == (self.checkpoint is None):
            raise UserError("transformer inspect: expected either --config or --checkpoint")
        if self.model.vocab_size is None:
            raise UserError(
                "model.vocab_size = None: expected the number of ids, which a training run has "
                "from its tokenizer (--model.vocab-size, or --checkpoint)"
            )
        sharding, model = Sharding(abstract_mesh(self.mesh)), build_model(self.model)
        sharding.parameters(model)  # whether the mesh fits
        names, shapes = parameter_axes(model)
        rows = [("parameter", "shape", "axes", "split over", "per device")]
        total = here = 0
        for path in sorted(shapes, key=_natural):
            shape, axes = shapes[path], names[path]
            size = math.prod(sharding.shard_shape(axes, shape.shape)) * shape.dtype.itemsize
            total, here = total + math.prod(shape.shape), here + size
            split = ", ".join("*".join(sides) or "-" for sides in sharding.sides(axes))
            named = ", ".join(name or "-" for name in axes)
            rows.append((path, " x ".join(map(str, shape.shape)), named, split, _bytes(size)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for *cells, size in rows:
            shown = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
            print("  ".join([*shown, size.rjust(widths[-1])]))
        moments = f"with Adam's moments {_bytes(3 * here)}"
        print(f"{total:,} parameters; on each device {_bytes(here)}, {moments}")
        return 0


def _natural(path: str) -> list[str | int]:
    """Layer 2 comes before layer 10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.2f} MB"
