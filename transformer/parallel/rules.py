"""What the named axes of a network mean on the mesh.

Every strategy is this one table: a mesh of sides data, fsdp and tensor, of which those that are
1 do nothing. So fully sharded and tensor parallel training are combined by giving both sides.
"""

from collections.abc import Mapping

MeshAxes = tuple[str, ...]
"""Axes of the mesh, over whose product an array's axis is split; (): it is in one piece."""

RULES: Mapping[str, MeshAxes] = {
    # Parameters.
    "layers": (),  # each device has its part of every layer, and takes them one by one
    "vocab": ("tensor",),
    "embed": ("fsdp",),  # gathered when a layer needs it, spread again after
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "mlp": ("tensor",),
    "norm": (),
    # Activations, whose "heads", "kv_heads" and "mlp" are those of the parameters.
    "batch": ("data", "fsdp"),
    "length": (),
    "activation": (),
}
"""Name of an axis -> where it is split."""
