"""Makes torch_attention, torch_layers, torch_stack_post and torch_stack_pre (.npz).

    python tests/golden/make_torch_layers.py       # torch 2.13.0 (CPU), numpy

PyTorch's own attention, layers and stacks. Weights and inputs are drawn in float32 from a fixed
seed; PyTorch then computes in float64, so the stored outputs and gradients are exact to float32
rounding. An array is stored as "case/part/name", the parts being `param`, `input`, `mask`,
`output`, `cotangent`, `grad_param` and `grad_input`. The loss whose gradients these are is
sum(output * cotangent); a cotangent is 0 at padded positions, where the output means nothing.
Masks are PyTorch's, inverted: True = attend.
"""

# pyright: reportMissingImports=false

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
BATCH, TARGET, SOURCE = 2, 7, 11
HEADS, HEAD_DIM, FF_DIM, LAYERS = 3, 5, 19, 2
MODEL_DIM = HEADS * HEAD_DIM
KEY_DIM, VALUE_DIM = 13, 17
TARGET_LENGTHS, SOURCE_LENGTHS = (7, 5), (8, 11)

Arrays = dict[str, np.ndarray]


def draw(*shape: int) -> Tensor:
    """Normal values that float32 holds exactly, as float64."""
    return torch.randn(*shape, dtype=torch.float32).double()


def valid(lengths: tuple[int, ...], size: int) -> Tensor:
    """[B, size], True at the first `lengths[b]` positions."""
    return torch.arange(size)[None] < torch.tensor(lengths)[:, None]


def causal(size: int) -> Tensor:
    """[size, size], True at and below the diagonal."""
    return torch.ones(size, size, dtype=torch.bool).tril()


def randomise(module: nn.Module) -> nn.Module:
    """Every parameter drawn anew: initial zeros and ones would hide a swapped or unused one."""
    for name, parameter in module.double().named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim == 2:
            value = draw(*parameter.shape) / parameter.shape[1] ** 0.5
        else:
            mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
            value = mean + 0.3 * draw(*parameter.shape)
        parameter.data.copy_(value.float())
    return module


def record(
    case: str,
    modules: dict[str, nn.Module],
    inputs: dict[str, Tensor],
    masks: dict[str, Tensor],
    forward: Callable[..., Tensor],
    real: Tensor | None = None,
) -> Arrays:
    """Runs `forward(**inputs)` with gradients and names every array; `real` [B, T] marks the
    positions of the output that count."""
    for value in inputs.values():
        value.requires_grad_(True)
    output = forward(**inputs)
    cotangent = draw(*output.shape)
    if real is not None:
        cotangent = cotangent * real[..., None]
    (output * cotangent).sum().backward()

    arrays = {f"{case}/output/output": output, f"{case}/cotangent/output": cotangent}
    for name, value in inputs.items():
        arrays |= {f"{case}/input/{name}": value, f"{case}/grad_input/{name}": value.grad}
    for name, value in masks.items():
        arrays[f"{case}/mask/{name}"] = value
    for prefix, module in modules.items():
        for name, value in module.named_parameters(prefix):
            arrays |= {f"{case}/param/{name}": value, f"{case}/grad_param/{name}": value.grad}
    return {name: to_numpy(value) for name, value in arrays.items()}


def to_numpy(value: Tensor) -> np.ndarray:
    array = value.detach().numpy()
    return array.astype(np.float32) if array.dtype == np.float64 else array


def scaled_dot_product(case: str, query_heads: int, kv_heads: int, value_dim: int) -> Arrays:
    """`scaled_dot_product_attention` itself, with a mask and heads in PyTorch's order [B,N,T,H]."""
    inputs = {
        "query": draw(BATCH, query_heads, TARGET, HEAD_DIM),
        "key": draw(BATCH, kv_heads, SOURCE, HEAD_DIM),
        "value": draw(BATCH, kv_heads, SOURCE, value_dim),
    }
    mask = torch.rand(BATCH, 1, TARGET, SOURCE) < 0.6
    mask[..., 3] = True

    def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=query_heads != kv_heads
        )

    return record(case, {}, inputs, {"attend": mask}, forward)


def attention(
    case: str, cross: bool, bias: bool, use_causal: bool, use_padding: bool, **dims: int
) -> Arrays:
    """`nn.MultiheadAttention`: self-attention over the target, or target over source."""
    module = randomise(nn.MultiheadAttention(MODEL_DIM, HEADS, bias=bias, batch_first=True, **dims))
    inputs = {"query": draw(BATCH, TARGET, MODEL_DIM)}
    size, lengths = (SOURCE, SOURCE_LENGTHS) if cross else (TARGET, TARGET_LENGTHS)
    masks = {}
    if use_padding:
        masks["key_valid"] = valid(lengths, size)
    if use_causal:
        masks["causal"] = causal(TARGET)
    if "vdim" in dims and dims["vdim"] != dims["kdim"]:
        inputs |= {"key": draw(BATCH, size, dims["kdim"]), "value": draw(BATCH, size, dims["vdim"])}
    elif cross:
        inputs |= {"key": draw(BATCH, size, dims.get("kdim", MODEL_DIM))}

    def forward(query: Tensor, key: Tensor | None = None, value: Tensor | None = None) -> Tensor:
        key = query if key is None else key
        return module(
            query,
            key,
            key if value is None else value,
            key_padding_mask=~masks["key_valid"] if use_padding else None,
            attn_mask=~masks["causal"] if use_causal else None,
            need_weights=False,
        )[0]

    real = masks["key_valid"] if use_padding and not cross else None
    return record(case, {"attention": module}, inputs, masks, forward, real)


def encoder_layer(case: str, norm_first: bool, use_causal: bool) -> Arrays:
    """`nn.TransformerEncoderLayer` with padding, and a causal mask on request."""
    module = randomise(
        nn.TransformerEncoderLayer(
            MODEL_DIM, HEADS, FF_DIM, dropout=0.0, batch_first=True, norm_first=norm_first
        )
    )
    masks = {"key_valid": valid(SOURCE_LENGTHS, SOURCE)}
    if use_causal:
        masks["causal"] = causal(SOURCE)

    def forward(source: Tensor) -> Tensor:
        return module(
            source,
            src_mask=~masks["causal"] if use_causal else None,
            src_key_padding_mask=~masks["key_valid"],
        )

    inputs = {"source": draw(BATCH, SOURCE, MODEL_DIM)}
    return record(case, {"layer": module}, inputs, masks, forward, masks["key_valid"])


def decoder_layer(case: str, norm_first: bool) -> Arrays:
    """`nn.TransformerDecoderLayer`: causal, with padding on both sides."""
    module = randomise(
        nn.TransformerDecoderLayer(
            MODEL_DIM, HEADS, FF_DIM, dropout=0.0, batch_first=True, norm_first=norm_first
        )
    )
    masks = target_and_source_masks()

    def forward(target: Tensor, memory: Tensor) -> Tensor:
        return module(target, memory, **decoder_masks(masks))

    inputs = {
        "target": draw(BATCH, TARGET, MODEL_DIM),
        "memory": draw(BATCH, SOURCE, MODEL_DIM),
    }
    return record(case, {"layer": module}, inputs, masks, forward, masks["target_valid"])


def stack(case: str, norm_first: bool) -> Arrays:
    """`nn.TransformerEncoder` and `nn.TransformerDecoder`; final norms only with `norm_first`."""
    shape = (MODEL_DIM, HEADS, FF_DIM)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}

    def final_norm() -> nn.LayerNorm | None:
        return nn.LayerNorm(MODEL_DIM) if norm_first else None

    encoder = randomise(
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*shape, **options),
            LAYERS,
            norm=final_norm(),
            enable_nested_tensor=False,
        )
    )
    decoder = randomise(
        nn.TransformerDecoder(
            nn.TransformerDecoderLayer(*shape, **options), LAYERS, norm=final_norm()
        )
    )
    masks = target_and_source_masks()

    def forward(source: Tensor, target: Tensor) -> Tensor:
        memory = encoder(source, src_key_padding_mask=~masks["memory_valid"])
        return decoder(target, memory, **decoder_masks(masks))

    modules: dict[str, nn.Module] = {"encoder": encoder, "decoder": decoder}
    inputs = {
        "source": draw(BATCH, SOURCE, MODEL_DIM),
        "target": draw(BATCH, TARGET, MODEL_DIM),
    }
    return record(case, modules, inputs, masks, forward, masks["target_valid"])


def target_and_source_masks() -> dict[str, Tensor]:
    return {
        "target_valid": valid(TARGET_LENGTHS, TARGET),
        "memory_valid": valid(SOURCE_LENGTHS, SOURCE),
        "causal": causal(TARGET),
    }


def decoder_masks(masks: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        "tgt_mask": ~masks["causal"],
        "tgt_key_padding_mask": ~masks["target_valid"],
        "memory_key_padding_mask": ~masks["memory_valid"],
    }


def save(name: str, arrays: Arrays) -> None:
    path = HERE / f"{name}.npz"
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    print(f"{path.name}: {len(arrays)} arrays, {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    torch.manual_seed(2017)
    save(
        "torch_attention",
        scaled_dot_product("core", HEADS, HEADS, VALUE_DIM)
        | scaled_dot_product("core_grouped", 2 * HEADS, HEADS, VALUE_DIM)
        | attention("self", cross=False, bias=True, use_causal=False, use_padding=True)
        | attention("self_causal", cross=False, bias=True, use_causal=True, use_padding=True)
        | attention("self_no_bias", cross=False, bias=False, use_causal=True, use_padding=False)
        | attention("cross", cross=True, bias=True, use_causal=False, use_padding=True)
        | attention("cross_width", True, True, False, True, kdim=KEY_DIM, vdim=KEY_DIM)
        | attention("cross_widths", True, True, False, True, kdim=KEY_DIM, vdim=VALUE_DIM),
    )
    save(
        "torch_layers",
        encoder_layer("encoder_post", norm_first=False, use_causal=False)
        | encoder_layer("encoder_pre", norm_first=True, use_causal=False)
        | encoder_layer("encoder_post_causal", norm_first=False, use_causal=True)
        | encoder_layer("encoder_pre_causal", norm_first=True, use_causal=True)
        | decoder_layer("decoder_post", norm_first=False)
        | decoder_layer("decoder_pre", norm_first=True),
    )
    save("torch_stack_post", stack("stack_post", norm_first=False))
    save("torch_stack_pre", stack("stack_pre", norm_first=True))


if __name__ == "__main__":
    main()
