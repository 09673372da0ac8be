"""PyTorch's own parameter names and layouts as ours (published models: `transformer.interop`).

Everything here only renames, splits and transposes, so gradients convert as weights do.
PyTorch keeps a linear layer's weight as [out, in]; ours is [in, out].
"""

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Tree = dict[str, Any]


def torch_attention(arrays: Arrays, prefix: str) -> Tree:
    """`nn.MultiheadAttention`, whether its three input projections are stored as one or not."""
    if f"{prefix}.in_proj_weight" in arrays:
        weights = np.split(arrays[f"{prefix}.in_proj_weight"], 3)
    else:
        weights = [arrays[f"{prefix}.{name}_proj_weight"] for name in "qkv"]
    tree: Tree = {
        name: {"kernel": weight.T}
        for name, weight in zip(("query", "key", "value"), weights, strict=True)
    }
    if f"{prefix}.in_proj_bias" in arrays:
        biases = np.split(arrays[f"{prefix}.in_proj_bias"], 3)
        for name, bias in zip(("query", "key", "value"), biases, strict=True):
            tree[name]["bias"] = bias
    return tree | {"out": linear(arrays, f"{prefix}.out_proj")}


def torch_layer(arrays: Arrays, prefix: str) -> Tree:
    """`nn.TransformerEncoderLayer` or `nn.TransformerDecoderLayer`."""
    cross = f"{prefix}.multihead_attn.in_proj_weight" in arrays
    tree = {
        "self_attention": torch_attention(arrays, f"{prefix}.self_attn"),
        "self_attention_norm": norm(arrays, f"{prefix}.norm1"),
        "feed_forward": {
            "up": linear(arrays, f"{prefix}.linear1"),
            "down": linear(arrays, f"{prefix}.linear2"),
        },
        "feed_forward_norm": norm(arrays, f"{prefix}.norm{3 if cross else 2}"),
    }
    if cross:
        tree["cross_attention"] = torch_attention(arrays, f"{prefix}.multihead_attn")
        tree["cross_attention_norm"] = norm(arrays, f"{prefix}.norm2")
    return tree


def torch_stack(arrays: Arrays, prefix: str, layers: int) -> Tree:
    """`nn.TransformerEncoder` or `nn.TransformerDecoder`, with or without a final norm."""
    tree = {f"layer_{i}": torch_layer(arrays, f"{prefix}.layers.{i}") for i in range(layers)}
    if f"{prefix}.norm.weight" in arrays:
        tree["final_norm"] = norm(arrays, f"{prefix}.norm")
    return tree


def linear(arrays: Arrays, prefix: str) -> Tree:
    tree = {"kernel": arrays[f"{prefix}.weight"].T}
    if f"{prefix}.bias" in arrays:
        tree["bias"] = arrays[f"{prefix}.bias"]
    return tree


def norm(arrays: Arrays, prefix: str) -> Tree:
    return {"scale": arrays[f"{prefix}.weight"], "bias": arrays[f"{prefix}.bias"]}
