"""Makes hf.npz: tiny models of Hugging Face's library with random weights, a case a family.

    python tests/golden/make_hf.py      # transformers 5.24.0, torch 2.13.0 (CPU), numpy

Same storage as in make_torch_layers.py: float32 draws, float64 arithmetic (but for what the
library takes in float32 whatever it is given: RMS norms, rotary angles), "case/part/name". All
parameters of a case lie in one vector, in the order of `config/shapes`; `config/json` is the
model's ``config.json``. `output/logits` is one forward pass,
`output/cached` the logits of a prompt of `PROMPT` tokens and then of one token a step with the
library's cache (OpenAI GPT has none there). Rows of decoder-only models are padded on the left,
rows of a source on the right. Both outputs mean nothing, and cotangents are 0, at padding.
"""

# pyright: reportMissingImports=false

import json
from typing import Any

import numpy as np
import torch
from make_torch_layers import draw, randomise, save, to_numpy
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

VOCAB, LAYERS, PROMPT = 29, 2, 4
PADDING = (0, 2)
"""Of each row of a decoder-only model, on the left."""
INPUTS = [[5, 7, 11, 13, 17, 19, 23], [0, 0, 28, 3, 3, 26, 8]]
SOURCE = [[5, 7, 11, 13, 17, 19, 23, 28, 27, 4, 1], [26, 8, 8, 21, 6, 9, 28, 1, 0, 0, 0]]
TARGET = [[0, 12, 4, 4, 26, 9, 10], [0, 27, 10, 22, 14, 25, 16]]

NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

Arrays = dict[str, np.ndarray]


def decoder(case: str, model: PreTrainedModel) -> Arrays:
    """A decoder-only model on a batch padded on the left."""
    inputs = torch.tensor(INPUTS)
    positions = torch.arange(inputs.shape[1])[None] - torch.tensor(PADDING)[:, None]
    real = (positions >= 0).long()
    positions = positions.clamp(min=0)

    def forward(start: int, stop: int, cache: Any = None) -> Any:
        return model(
            input_ids=inputs[:, start:stop],
            position_ids=positions[:, start:stop],
            attention_mask=real[:, :stop],
            **({"past_key_values": cache, "use_cache": cache is not None} if cache else {}),
        )

    arrays = {"inputs": inputs, "positions": positions, "segments": real}
    cached = None if case == "gpt1" else step_by_step(forward, inputs.shape[1], real.bool())
    return record(case, model, arrays, forward(0, inputs.shape[1]).logits, cached, real)


def encoder_decoder(case: str, model: PreTrainedModel) -> Arrays:
    """An encoder-decoder; its targets begin with padding, as T5's and Marian's do."""
    source, inputs = torch.tensor(SOURCE), torch.tensor(TARGET)
    encoded = model.get_encoder()(input_ids=source, attention_mask=source != 0)

    def forward(start: int, stop: int, cache: Any = None) -> Any:
        return model(
            encoder_outputs=encoded,
            attention_mask=source != 0,
            decoder_input_ids=inputs[:, start:stop],
            **({"past_key_values": cache, "use_cache": True} if cache else {}),
        )

    cached = step_by_step(forward, inputs.shape[1], torch.ones_like(inputs).bool())
    arrays = {"source": source, "inputs": inputs}
    return record(case, model, arrays, forward(0, inputs.shape[1]).logits, cached)


def step_by_step(forward: Any, length: int, real: Tensor) -> Tensor:
    """Logits with the library's cache; they equal those without."""
    with torch.no_grad():
        first = forward(0, PROMPT)
        parts, cache = [first.logits], first.past_key_values
        for t in range(PROMPT, length):
            parts.append(forward(t, t + 1, cache).logits)
        cached = torch.cat(parts, dim=1)
        whole = forward(0, length).logits
    assert (cached - whole)[real].abs().max() < 1e-5
    return cached


def record(
    case: str,
    model: PreTrainedModel,
    inputs: dict[str, Tensor],
    logits: Tensor,
    cached: Tensor | None,
    real: Tensor | None = None,
) -> Arrays:
    """Names every array, those of the gradient included."""
    cotangent = draw(*logits.shape)
    if real is not None:
        cotangent = cotangent * real[..., None]
    stored = named(case, model, inputs, {"logits": logits}, {"logits": cotangent})
    return stored | ({} if cached is None else {f"{case}/output/cached": to_numpy(cached)})


def named(
    case: str,
    model: PreTrainedModel,
    inputs: dict[str, Tensor],
    outputs: dict[str, Tensor],
    cotangents: dict[str, Tensor],
) -> Arrays:
    """Every array by its name, those of the gradient of sum(output * cotangent) included."""
    torch.stack([(outputs[name] * cotangents[name]).sum() for name in outputs]).sum().backward()
    arrays: dict[str, Tensor] = {}
    for name, output in outputs.items():
        arrays[f"{case}/output/{name}"] = output
        arrays[f"{case}/cotangent/{name}"] = cotangents[name]
    for name, value in inputs.items():
        arrays[f"{case}/input/{name}"] = value.int()
    parameters = dict(model.named_parameters())
    if hasattr(model, "final_logits_bias"):
        parameters["final_logits_bias"] = model.final_logits_bias
    used = {name: value for name, value in parameters.items() if value.grad is not None}
    arrays[f"{case}/param/all"] = torch.cat([value.flatten() for value in used.values()])
    arrays[f"{case}/grad_param/all"] = torch.cat([value.grad.flatten() for value in used.values()])
    stored = {name: to_numpy(value) for name, value in arrays.items()}
    assert all(np.isfinite(value).all() for value in stored.values())
    config = model.config.to_dict() | {"architectures": [type(model).__name__]}
    shapes = {name: list(value.shape) for name, value in used.items()}
    return stored | {
        f"{case}/config/json": np.array(json.dumps(config)),
        f"{case}/config/shapes": np.array(json.dumps(shapes)),
    }


def gpt1() -> PreTrainedModel:
    config = OpenAIGPTConfig(
        vocab_size=VOCAB, n_positions=13, n_embd=15, n_layer=LAYERS, n_head=3, **NO_DROPOUT
    )
    return OpenAIGPTLMHeadModel(config)


def gpt2() -> PreTrainedModel:
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=13,
        n_embd=15,
        n_inner=19,
        n_layer=LAYERS,
        n_head=3,
        bos_token_id=1,
        eos_token_id=1,
        **NO_DROPOUT,
    )
    return GPT2LMHeadModel(config)


def llama() -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=20,
        intermediate_size=23,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        max_position_embeddings=13,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        rms_norm_eps=1e-5,
    )
    return LlamaForCausalLM(config)


def t5(version: str) -> PreTrainedModel:
    config = T5Config(
        vocab_size=VOCAB,
        d_model=13,
        d_kv=5,
        d_ff=17,
        num_layers=LAYERS,
        num_heads=3,
        decoder_start_token_id=0,
        feed_forward_proj="relu" if version == "1.0" else "gated-gelu",
        tie_word_embeddings=version == "1.0",
        dropout_rate=0.0,
    )
    model = T5ForConditionalGeneration(config)
    if version == "1.1":  # the library ties them until a file is read that has both
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


def marian() -> PreTrainedModel:
    config = MarianConfig(
        vocab_size=VOCAB,
        d_model=9,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=11,
        decoder_ffn_dim=11,
        activation_function="swish",
        dropout=0.0,
        scale_embedding=True,
        max_position_embeddings=37,
        pad_token_id=0,
        eos_token_id=1,
        forced_eos_token_id=1,
        decoder_start_token_id=0,
    )
    model = MarianMTModel(config)
    model.final_logits_bias.data = draw(1, VOCAB)
    model.final_logits_bias.requires_grad_(True)
    return model


def main() -> None:
    torch.manual_seed(2019)
    arrays: Arrays = {}
    for case, model in (("gpt1", gpt1()), ("gpt2", gpt2()), ("llama", llama())):
        arrays |= decoder(case, prepared(model))
    for case, model in (("t5_1.0", t5("1.0")), ("t5_1.1", t5("1.1")), ("marian", marian())):
        arrays |= encoder_decoder(case, prepared(model))
    save("hf", arrays)


def prepared(model: PreTrainedModel) -> PreTrainedModel:
    """In float64, with every parameter drawn anew and dropout off.

    Padding, with which Marian's targets begin, gets the gradient that torch would leave out.
    """
    randomise(model)
    for name, parameter in model.named_parameters():
        if name.endswith("Attention.q.weight"):  # T5 keeps the scale of attention here
            parameter.data.copy_((parameter / model.config.d_kv**0.5).float())
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    return model.eval()


if __name__ == "__main__":
    main()
