"""Attention by JAX's own kernel for TPU, "splash" (a block-sparse flash attention).

Dao et al. 2022 and 2023, on the grid of the blocks in which a static mask shows anything. Memory
is linear in T and S: forward keeps the output and a log-sum-exp a query.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jaxtyping import Array, Float

from transformer.functional.masks import Mask

LANES = 128
"""Of a TPU's vector registers: blocks are multiples of it."""


def splash_attention(
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"],
    value: Float[Array, "B S K Hv"],
    *,
    mask: Mask | None = None,
    scale: float,
    interpret: bool = False,
) -> Float[Array, "B T N Hv"]:
    """Equals the plain path of `transformer.functional.attend` to rounding.

    Arguments as there, with a mask of rules `by_index`; lengths are padded to whole blocks.

    Args:
        query: ``[B, T, N, H]``.
        key: ``[B, S, K, H]``.
        value: ``[B, S, K, Hv]``.
        mask: what each query may see.
        scale: factor on the logits.
        interpret: run the kernel step by step on any device, to test its numbers.
    """
    mask = mask or Mask()
    (rows, length, heads, _), width = query.shape, key.shape[1]
    queries, keys = _block(length), _block(width)
    kernel = _kernel(
        _padded(length, queries),
        _padded(width, keys),
        mask.causal,
        mask.window,
        heads,
        (queries, keys),
        interpret,
    )
    segments = _segments(mask, rows, length, width, queries, keys)

    def heads_first(x: Any, block: int):
        return _pad(x, block).swapaxes(1, 2)

    scaled = (query * jnp.asarray(scale, jnp.float32)).astype(query.dtype)
    output = jax.vmap(kernel)(
        heads_first(scaled, queries), heads_first(key, keys), heads_first(value, keys), segments
    )
    output = output.swapaxes(1, 2)[:, :length]
    # The kernel gives a query that sees nothing the mean of all values.
    return jnp.where(mask.seeing()[..., None, None], output, 0)


def _segments(mask: Mask, rows: int, length: int, width: int, queries: int, keys: int) -> Any:
    """Of padded queries and keys; None where all see all. The kernel compares them, no more."""
    query, key = mask.query_segments, mask.key_segments
    if key is None and width % keys == 0:
        return None
    if key is None and mask.causal and width == length:
        return None  # keys that fill up the last block come after every query
    if key is None:
        key = jnp.ones((rows, width), jnp.int32)
    if query is None:  # sees all but padding, so segments are one and the same
        key, query = key > 0, jnp.ones((rows, length), jnp.int32)
    return splash.SegmentIds(
        _pad(query, queries).astype(jnp.int32), _pad(key, keys).astype(jnp.int32)
    )


def _block(length: int) -> int:
    """Tokens a block: as many as 512 where they lengthen the row by less than an eighth."""
    for block in (512, 256):
        if _padded(length, block) - length <= length // 8:
            return block
    return LANES


def _padded(length: int, block: int) -> int:
    return length + -length % block


def _pad(array, block: int):
    missing = -array.shape[1] % block
    return jnp.pad(array, [(0, 0), (0, missing)] + [(0, 0)] * (array.ndim - 2))


@dataclass(frozen=True)
class _Band(masks.Mask):
    """The static part of a mask, as the kernel wants it: a rule, and what a block of it shows.

    The kernel's tables say of each block whether all, some or none of it is visible. Looking at
    every entry takes a minute for 131,072 tokens, so a block that is all alike is a single entry.
    """

    queries: int
    keys: int
    causal: bool
    window: int | None

    @property
    def shape(self) -> tuple[int, int]:
        return self.queries, self.keys

    def __getitem__(self, block: tuple[slice, slice]) -> np.ndarray:
        rows, columns = block
        smallest, largest = rows.start - columns.stop + 1, rows.stop - 1 - columns.start
        low, high = self._distances
        if low <= smallest and largest <= high:
            return np.ones((1, 1), bool)
        if largest < low or high < smallest:
            return np.zeros((1, 1), bool)
        queries, keys = np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop)
        return self.sees(queries[:, None], keys[None])

    @property
    def _distances(self) -> tuple[int, int]:
        """The least and the most that the index of a query exceeds those of the keys it sees."""
        most = self.queries + self.keys if self.window is None else self.window - 1
        return (0 if self.causal else -most), most

    def sees(self, query, key):
        """Of indices, arrays that broadcast."""
        low, high = self._distances
        return (query - key >= low) & (query - key <= high)


class _ComputedBand(_Band):
    """A band that shows not all, and whose blocks the kernel computes rather than loads."""

    @property
    def q_sequence(self) -> np.ndarray:
        """The queries' indices, of which the kernel hands blocks to `mask_function`."""
        return np.arange(self.queries, dtype=np.int32)

    @property
    def mask_function(self):
        return self.sees


@lru_cache(maxsize=32)
def _kernel(
    length: int,
    width: int,
    causal: bool,
    window: int | None,
    heads: int,
    blocks: tuple[int, int],
    interpret: bool,
) -> Any:
    kind = _ComputedBand if causal or window is not None else _Band
    band = kind(length, width, causal, window)
    queries, keys = blocks
    sizes = splash.BlockSizes(
        block_q=queries,
        block_kv=keys,
        block_q_dkv=queries,
        block_kv_dkv=keys,
        block_q_dq=queries,
        block_kv_dq=keys,
        # The fused kernel keeps a partial gradient of the queries for each block of keys.
        use_fused_bwd_kernel=False,
    )
    with jax.ensure_compile_time_eval():
        kernel = splash.make_splash_mha(
            masks.MultiHeadMask([band] * heads),
            block_sizes=sizes,
            head_shards=1,
            q_seq_shards=1,
            interpret=interpret,
        )
    # Kept from one trace to the next, so no arrays of a device.
    return jax.tree.map(np.asarray, kernel)
