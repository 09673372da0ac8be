"""Many layers of a Transformer, one after another."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import Mask
from transformer.modules.attention import KeysValues
from transformer.modules.block import Block, RelativeBias
from transformer.modules.linear import Norm
from transformer.modules.parameters import stacked_parameters

_POLICIES = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}
"""What is kept of a layer by ``model.remat``."""


class Stack(nn.Module):
    """The layers of an encoder or a decoder; pre-norm ends in a norm of its own.

    The parameters of layer i are ``layer_i``; with ``config.scan_layers`` those of all are
    ``layers``, and lie along a first axis L over which `jax.lax.scan` loops.

    Attributes:
        config: the settings.
        cross: layers attend to a memory too.
        causal: relative positions look back only.
    """

    config: ModelConfig
    cross: bool = False
    causal: bool = False

    def setup(self):
        c = self.config
        if c.scan_layers:
            self.stacked = stacked_parameters(self, "layers", self._fresh_layer, c.num_layers)
        else:
            kind = Block if c.remat == "none" else nn.remat(Block, policy=_POLICIES[c.remat])
            self.layers = [kind(c, self.cross, name=f"layer_{i}") for i in range(c.num_layers)]
        if c.positions == "relative":
            self.relative_bias = RelativeBias(c, self.causal)
        if c.norm_placement == "pre":
            self.final_norm = Norm(c)

    def __call__(
        self,
        x,
        mask,
        *,
        positions: Any = None,
        key_positions: Any = None,
        memories: Any = None,
        memory_mask: Any = None,
        caches: tuple[KeysValues, ...] | None = None,
        index: Any = None,
        train: bool = False,
    ):
        """As `Block`, with a memory and a cache for each layer.

        Where the "hidden" collection is mutable, ``x`` and the output of each layer are sown
        there as ``layers``, unless they are scanned.

        Args:
            x: the residual stream ``[B, T, D]``.
            mask: of self-attention.
            positions: int ``[B or 1, T]``, of the tokens of ``x``; needed where they are rotary
                or relative, and by a local window.
            key_positions: int ``[B or 1, S]``, of the keys in the caches; None: `positions`.
            memories: the encoded source ``[B, S, D]``, or what `project_memory` made of it.
            memory_mask: of cross-attention.
            caches: of each layer.
            index: where in the caches.
            train: apply dropout; needs the "dropout" random stream.

        Returns:
            ``[B, T, D]``, and the caches as written (None without).
        """
        c = self.config
        if key_positions is None:
            key_positions = positions
        bias = None
        if c.positions == "relative":
            bias = self.relative_bias(positions, key_positions)
        masks = [mask]
        if c.local_window is not None:
            masks.append(_within(mask, positions, key_positions, c.local_window))
        drops = train and any((c.dropout, c.attention_dropout, c.ff_dropout))
        dropout_key = self.make_rng("dropout") if drops else None

        def apply(layer, x, i, mask, **of_layer):
            """Layer i, a number that may be traced, as are the keys that follow from it."""
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, i)
            return layer(
                x,
                mask,
                positions=positions,
                bias=bias,
                memory_mask=memory_mask,
                dropout_key=key,
                **of_layer,
            )

        if c.scan_layers and caches is None:
            x, written = self._scan(apply, x, masks, memories), None
        else:
            x, written = self._loop(apply, x, masks, memories, caches, index)
        if c.norm_placement == "pre":
            x = self.final_norm(x)
        return x, written

    def _loop(self, apply, x, masks, memories, caches, index):
        """One layer's operations after another's."""
        written = []
        self._keep(x)
        for i in range(self.config.num_layers):
            x, cache = apply(
                self._layer(i),
                x,
                i,
                masks[i % len(masks)],
                memory=memories[i] if isinstance(memories, tuple) else memories,
                cache=caches[i] if caches else None,
                index=index,
            )
            self._keep(x)
            written.append(cache)
        return x, tuple(written) if caches else None

    def _scan(self, apply, x, masks, memory):
        """A loop of the program, each turn of which takes as many layers as there are masks."""
        c = self.config
        period = len(masks)

        def layer(x, params, i, mask):
            return apply(self._block.bind({"params": params}), x, i, mask, memory=memory)[0]

        if c.remat != "none":
            # In a loop XLA cannot merge what is computed again with what was before.
            layer = jax.checkpoint(layer, policy=_POLICIES[c.remat], prevent_cse=False)

        def turn(x, layers):
            for j, mask in enumerate(masks):
                params, i = _row(layers, j)
                x = layer(x, params, i, mask)
            return x, None

        layers = self.stacked, jnp.arange(c.num_layers)
        grouped = jax.tree.map(lambda p: p.reshape(-1, period, *p.shape[1:]), layers)
        return jax.lax.scan(turn, x, grouped)[0]

    def _layer(self, i: int) -> Block:
        if not self.config.scan_layers:
            return self.layers[i]
        return self._block.bind({"params": _row(self.stacked, i)})

    @property
    def _block(self) -> Block:
        """A layer that is no part of this module, and is given its parameters."""
        return Block(self.config, self.cross, parent=None)

    def _fresh_layer(self, key):
        """Parameters, which do not depend on the tokens."""
        x = jnp.zeros((1, 1, self.config.model_dim), self.config.dtype)
        positions = jnp.zeros((1, 1), jnp.int32)
        return self._block.init(key, x, None, positions=positions, memory=x)["params"]

    def _keep(self, x) -> None:
        if not self.is_initializing():  # or the parameters would come with a sample
            self.sow("hidden", "layers", x)

    def project_memory(self, encoded) -> tuple[KeysValues, ...]:
        """Each layer's keys and values of the encoded source."""
        return tuple(self._layer(i).project_memory(encoded) for i in range(self.config.num_layers))


def _row(stacked, i: int):
    """Layer i's part of what lies in arrays that lead with layers."""
    return jax.tree.map(lambda array: array[i], stacked)


def _within(mask, positions, key_positions, window: int):
    """`mask`, a rule or an array, with keys `window` or more positions away hidden."""
    if isinstance(mask, Mask):
        return dataclasses.replace(mask, window=window)
    return mask & Mask(positions, key_positions, window=window).dense()
