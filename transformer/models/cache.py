"""What a decoder remembers of the tokens it has read."""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from transformer.config import ModelConfig
from transformer.functional.partition import constrain
from transformer.modules.attention import KeysValues

T = TypeVar("T")


class DecoderCache(NamedTuple):
    """Keys and values with the positions and segments of their tokens, S = capacity.

    Every leaf leads with the batch axis. Where a token lies in the cache says nothing about
    its position, so rows of different lengths, padded on either side, share one cache.

    Attributes:
        layers: of each decoder layer, `KeysValues`.
        positions: int ``[B, S]``.
        segments: int ``[B, S]``; 0: padding, or nothing yet.
    """

    layers: tuple[KeysValues, ...]
    positions: Any
    segments: Any

    @classmethod
    def empty(cls, config: ModelConfig, batch: int, capacity: int) -> "DecoderCache":
        """Room for `capacity` tokens of `batch` rows; `cache_bytes` says how much memory."""
        c = config
        room = jnp.zeros((batch, c.kv_heads, capacity, c.head_dim), c.dtype)
        layers = tuple(KeysValues(room.swapaxes(2, 3), room) for _ in range(c.num_layers))
        places = jnp.zeros((batch, capacity), jnp.int32)
        return spread(cls(layers, places, places))

    def fork(self, rows, capacity: int) -> "DecoderCache":
        """The given rows ``[r]`` (a row may occur again), with room for `capacity` tokens."""

        def copy(leaf, axis):
            widths = [(0, 0)] * leaf.ndim
            widths[axis] = (0, capacity - leaf.shape[axis])
            return jnp.pad(leaf[rows], widths)

        return spread(
            DecoderCache(
                tuple(KeysValues(copy(kv.key, 3), copy(kv.value, 2)) for kv in self.layers),
                copy(self.positions, 1),
                copy(self.segments, 1),
            )
        )

    def note(self, positions, segments, index) -> "DecoderCache":
        """`self` with the tokens ``[B, T]`` entered at ``index``; the caller checks they fit."""

        def put(old, new):
            new = jnp.broadcast_to(new, (len(old), new.shape[1])).astype(old.dtype)
            return jax.lax.dynamic_update_slice_in_dim(old, new, index, axis=1)

        return self._replace(
            positions=put(self.positions, positions), segments=put(self.segments, segments)
        )


def spread(cache: T) -> T:
    """A cache, laid out over the mesh: rows in parts, and of keys and values the heads too."""

    def place(part: Any) -> Any:
        if isinstance(part, KeysValues):
            return part.constrained()
        return constrain(part, "batch", *[None] * (part.ndim - 1))

    return jax.tree.map(place, cache, is_leaf=lambda part: isinstance(part, KeysValues))


def cache_bytes(config: ModelConfig, batch: int, capacity: int, source: int = 0) -> int:
    """Memory of decoding: ``B S (2 L K H bytes + 8)``, plus ``B S' (2 L K H bytes + 4)``.

    The first is that of `DecoderCache.empty`: 2 for keys and values, bytes of an activation (4 or
    2), and two int32 a token. The second an encoder-decoder's, with `source` tokens S' a row.
    """
    c = config
    vectors = 2 * c.num_layers * c.kv_heads * c.head_dim * jnp.dtype(c.dtype).itemsize
    return batch * (capacity * (vectors + 8) + (source * (vectors + 4) if source else 0))
