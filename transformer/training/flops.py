"""Floating-point operations of a training step: by formula, and by counting in a program.

Only matrix products count, as is usual (Kaplan et al. 2020, section 2.1; Chowdhery et al. 2022,
appendix B): a multiplication and an addition are two operations, the backward pass takes twice
those of the forward pass, and a mask saves nothing. What a program computes again to save memory
is not part of the model's operations, so utilisation by them can be compared between programs.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
from jax.extend import core

from transformer.config import Config, ModelConfig
from transformer.models.build import build_model, init_params
from transformer.parallel.chips import chip_of
from transformer.training.heads import Batch
from transformer.training.losses import loss_sums


def step_flops(config: Config, batch: Batch) -> int:
    """The model's operations in one training step on a batch, padding included, by formula.

    For a decoder of N parameters but for its tables this is ``6 N`` a token, ``6 D V`` for its
    logits and ``12 L A T`` for attention, A being the width of all heads.
    """
    c, inputs = config.model, batch["inputs"]
    rows, length = math.prod(inputs.shape[:-1]), inputs.shape[-1]
    dim, tokens = c.model_dim, rows * length
    if c.architecture == "encoder_decoder":
        source = batch["source"].shape[1]
        forward = _stack(c, rows, source) + _stack(c, rows, length, source)
    else:
        forward = _stack(c, rows, length)
    pooled = 2 * rows * dim * dim if c.architecture == "encoder" else 0
    match c.head:
        case "language_model":
            targets = batch["targets"].size
            forward += 2 * targets * dim * (c.vocab_size or 0)
            if c.architecture == "encoder":
                forward += 2 * targets * dim * dim
            if c.next_sentence:
                forward += pooled + 2 * rows * dim * 2
        case "token_labels":
            forward += 2 * tokens * dim * (c.num_classes or 0)
        case "span":
            forward += 2 * tokens * dim * 2
        case _:
            forward += pooled + 2 * rows * dim * (c.num_classes or 1)
            if c.architecture == "decoder" and config.train.lm_weight:
                forward += 2 * tokens * dim * (c.vocab_size or 0)
    return 3 * forward


def _stack(config: ModelConfig, rows: int, length: int, memory: int | None = None) -> int:
    """The forward pass of a stack; with cross-attention to a memory of that length."""
    queries = config.num_heads * config.head_dim
    keys = config.kv_heads * config.head_dim
    tokens, dim = rows * length, config.model_dim
    matrices = 3 if config.activation in ("geglu", "swiglu") else 2
    layer = 2 * tokens * dim * (2 * queries + 2 * keys + matrices * config.ff_dim)
    layer += 4 * tokens * length * queries
    if memory is not None:
        layer += 2 * dim * (tokens * 2 * queries + rows * memory * 2 * keys)
        layer += 4 * tokens * memory * queries
    return config.num_layers * layer


def count_flops(program: core.Jaxpr | core.ClosedJaxpr) -> int:
    """The operations of all matrix products in a traced program, on all devices together.

    The turns of a loop all count, of a choice the most expensive branch, of a loop that decides
    itself when it ends one turn, and of a kernel what it says of itself, or else its body at each
    place of its grid.
    """
    jaxpr = program.jaxpr if isinstance(program, core.ClosedJaxpr) else program
    return sum(_count(equation) for equation in jaxpr.eqns)


def _count(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        return 2 * depth * math.prod(equation.outvars[0].aval.shape)
    if name.startswith("dot_product_attention"):  # cuDNN's: query, key, ... [B, T, N, H]
        (batch, length, heads, dim), (_, keys, *_) = (x.aval.shape for x in equation.invars[:2])
        products = 5 if "bwd" in name else 2
        return products * 2 * batch * heads * length * keys * dim
    bodies = [count_flops(body) for body in _bodies(params)]
    if not bodies:
        return 0
    if name == "cond":
        return max(bodies)
    if name == "scan":
        return params["length"] * sum(bodies)
    if name == "shard_map":
        return params["mesh"].size * sum(bodies)
    if name == "pallas_call":
        if (estimate := params.get("cost_estimate")) is not None:
            return int(estimate.flops)
        grid = [side for side in params["grid_mapping"].grid if isinstance(side, int)]
        return math.prod(grid) * sum(bodies)
    return sum(bodies)


def _bodies(params: Mapping[str, Any]) -> list[Any]:
    """The programs inside an equation, each once."""
    found = []
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, core.Jaxpr | core.ClosedJaxpr):
                found.append(item)
    return found


def counted_step_flops(config: Config, batch: Batch) -> int:
    """`step_flops` by counting the products of the network as its equations have it: with whole
    attention, and with nothing computed twice."""
    model = build_model(dataclasses.replace(config.model, attention="plain"))

    def loss(params: Any, batch: Batch) -> jax.Array:
        key = jax.random.key(0)
        return loss_sums(model, params, batch, 0.0, key, config.train.lm_weight).loss

    params = jax.eval_shape(partial(init_params, model), jax.random.key(0))
    arrays = {name: array for name, array in batch.items() if name != "ids"}
    return count_flops(jax.make_jaxpr(jax.grad(loss))(params, arrays))


def utilization(flops: float, devices: Sequence[jax.Device]) -> dict[str, float]:
    """Model FLOPs utilisation as ``mfu`` (Chowdhery et al. 2022, appendix B), in [0, 1].

    Args:
        flops: the model's operations a second, on all devices.
        devices: alike; where their peak is not known, as of a CPU, nothing is returned.
    """
    chip = chip_of(devices[0])
    return {} if chip is None else {"mfu": flops / (chip.flops * len(devices))}
