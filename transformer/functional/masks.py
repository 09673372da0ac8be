"""Who may attend to whom: described by positions and segments, drawn only where needed."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mask:
    """A mask as a rule rather than a ``T x S`` array.

    A query may attend to a key if every rule that is given allows it:

    * ``causal``: ``key_position <= query_position``. Positions, not indices, are
      compared, so the rule also holds for T != S (a prompt, then single steps).
    * ``window`` w: ``|query_position - key_position| < w``.
    * segments: both lie in the same segment, and the segment is not 0 (padding).
      Without ``query_segments`` every key outside padding is visible. Of a single
      segment a boolean says as much (False = padding).

    Causal, T = S = 4, the third key being padding (rows are queries)::

        1 . . .
        1 1 . .
        1 1 . .
        1 1 . 1

    Attributes:
        query_positions: int ``[B or 1, T]``, needed by ``causal`` and ``window``.
        key_positions: int ``[B or 1, S]``, likewise.
        query_segments: int or bool ``[B, T]``, or None.
        key_segments: int or bool ``[B, S]``, or None.
        causal: hide the future.
        window: width of the visible band, or None.
        consecutive: queries and keys are the same tokens, and within a segment their positions
            differ as their indices do, so that kernels, which know indices only, may be used.
    """

    query_positions: Any = None
    key_positions: Any = None
    query_segments: Any = None
    key_segments: Any = None
    causal: bool = dataclasses.field(default=False, metadata={"static": True})
    window: int | None = dataclasses.field(default=None, metadata={"static": True})
    consecutive: bool = dataclasses.field(default=False, metadata={"static": True})

    @classmethod
    def self_attention(
        cls,
        segments: Int[Array, "B T"] | Bool[Array, "B T"] | None,
        positions: Int[Array, "#B T"] | None = None,
        *,
        causal: bool = False,
        window: int | None = None,
    ) -> "Mask":
        """Queries and keys are the same tokens.

        Args:
            segments: None: all tokens are of one, and none is padding.
            positions: one apart from each token to the next of its segment; None: 0, 1, 2, ...
                (for which `segments` must be given).
            causal: hide the future.
            window: width of the visible band, or None.
        """
        if positions is None and segments is not None and (causal or window is not None):
            positions = jnp.arange(segments.shape[1])[None]
        return cls(positions, positions, segments, segments, causal, window, True)

    @classmethod
    def cross_attention(cls, key_segments: Int[Array, "B S"] | Bool[Array, "B S"]) -> "Mask":
        """Every query sees every key outside padding (segment 0)."""
        return cls(key_segments=key_segments)

    @property
    def by_index(self) -> bool:
        """Whether the rules can be told from indices and segments, without the positions."""
        banded = self.causal or self.window is not None
        return self.consecutive or not (banded or self.query_segments is not None)

    def seeing(self) -> Bool[Array, "b t"]:
        """Which queries see any key at all, where `by_index`; b and t are 1 where all are alike."""
        if self.consecutive and self.query_segments is not None:
            return self.query_segments > 0
        if not self.consecutive and self.key_segments is not None:
            return (self.key_segments > 0).any(axis=1, keepdims=True)
        return jnp.ones((1, 1), bool)

    def dense(self) -> Bool[Array, "b 1 t s"]:
        """The mask drawn whole, True = may attend; b, t and s are 1 where no rule varies."""
        return self.block()

    def block(
        self,
        queries: tuple[Any, int] | None = None,
        keys: tuple[Any, int] | None = None,
    ) -> Bool[Array, "b 1 t s"]:
        """The part of the mask for some queries and keys.

        Args:
            queries: (first query, number of queries), the first may be traced; None: all.
            keys: (first key, number of keys), likewise.

        Returns:
            bool ``[B or 1, 1, t, s]``, with t or s 1 where no rule depends on it.
        """
        query_positions = _part(self.query_positions, queries)
        key_positions = _part(self.key_positions, keys)
        query_segments = _part(self.query_segments, queries)
        key_segments = _part(self.key_segments, keys)
        allowed = jnp.ones((1, 1, 1, 1), bool)
        if self.causal or self.window is not None:
            if query_positions is None or key_positions is None:
                raise ValueError(
                    "a causal or windowed Mask needs query_positions and key_positions"
                )
            distance = query_positions[:, None, :, None] - key_positions[:, None, None, :]
            if self.causal:
                allowed &= distance >= 0
            if self.window is not None:
                allowed &= jnp.abs(distance) < self.window
        if key_segments is not None:
            keys_of_rows = key_segments[:, None, None, :]
            allowed &= keys_of_rows > 0
            if query_segments is not None:
                allowed &= query_segments[:, None, :, None] == keys_of_rows
        return allowed


def _part(vector: Shaped[Array, "b n"] | None, part: tuple[Any, int] | None):
    if vector is None or part is None:
        return vector
    start, size = part
    return jax.lax.dynamic_slice_in_dim(vector, start, size, axis=1)
