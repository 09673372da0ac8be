"""The published models as settings; `tests/models/test_presets.py` counts their parameters.

    from transformer.models.presets import PRESETS
    config = Config(model=PRESETS["gpt2-medium"], ...)

Sizes are rows of tables as the papers print them; what a family has in common stands above its
table. Attention implementation, type and dropout are changed with `dataclasses.replace`.
"""

from typing import Any

from transformer.config import ModelConfig

_TRANSFORMER: dict[str, Any] = {"vocab_size": 37_000}
# Vaswani et al. 2017, table 3; the English-German vocabulary.
#    name                 N      d_model  d_ff   heads  dropout
_TRANSFORMERS = {
    "transformer-base": (6, 512, 2048, 8, 0.1),
    "transformer-big": (6, 1024, 4096, 16, 0.3),
}

_GPT: dict[str, Any] = {
    "architecture": "decoder",
    "positions": "learned",
    "activation": "gelu_tanh",
    "norm_epsilon": 1e-5,
    "attention_bias": True,
    "embedding_scaling": "none",
    "dropout": 0.1,
    "attention_dropout": 0.1,
}
_GPT1 = _GPT | {"vocab_size": 40_478, "max_positions": 512, "initializer": "normal"}
_GPT2 = _GPT | {
    "vocab_size": 50_257,
    "max_positions": 1024,
    "norm_placement": "pre",
    "initializer": "scaled_normal",
}
# Brown et al. 2020, section 2.1. Layers alternate dense and locally banded attention; the width
# of the band is not published: 128 is the stride of the work it refers to, for text (Child et al.
# 2019). No dropout is mentioned. XL is as the table prints it, though its 1.3 billion parameters
# would be those of 16 heads.
_GPT3 = _GPT2 | {
    "max_positions": 2048,
    "local_window": 128,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
# Radford et al. 2018, section 4.1; Radford et al. 2019, table 2; Brown et al. 2020, table 2.1.
#    name               layers  d_model  heads  head_dim
_GPTS = {
    "gpt1": (_GPT1, 12, 768, 12, 64),
    "gpt2": (_GPT2, 12, 768, 12, 64),
    "gpt2-medium": (_GPT2, 24, 1024, 16, 64),
    "gpt2-large": (_GPT2, 36, 1280, 20, 64),
    "gpt2-xl": (_GPT2, 48, 1600, 25, 64),
    "gpt3-small": (_GPT3, 12, 768, 12, 64),
    "gpt3-medium": (_GPT3, 24, 1024, 16, 64),
    "gpt3-large": (_GPT3, 24, 1536, 16, 96),
    "gpt3-xl": (_GPT3, 24, 2048, 24, 128),
    "gpt3-2.7b": (_GPT3, 32, 2560, 32, 80),
    "gpt3-6.7b": (_GPT3, 32, 4096, 32, 128),
    "gpt3-13b": (_GPT3, 40, 5140, 40, 128),
    "gpt3-175b": (_GPT3, 96, 12_288, 96, 128),
}

_T5: dict[str, Any] = {
    "vocab_size": 32_128,
    "positions": "relative",
    "norm": "rms",
    "norm_placement": "pre",
    "ff_bias": False,
    "scale_attention": False,
    "initializer": "t5",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "ff_dropout": 0.1,
}
_T5_1_0 = _T5 | {"embedding_scaling": "output"}
_T5_1_1 = _T5 | {"activation": "geglu", "tie_embeddings": False, "embedding_scaling": "none"}
# Raffel et al. 2020, section 3.7; the published checkpoints of version 1.1.
#    name                layers  d_model  d_ff   heads  head_dim
_T5S = {
    "t5-small": (_T5_1_0, 6, 512, 2048, 8, 64),
    "t5-base": (_T5_1_0, 12, 768, 3072, 12, 64),
    "t5-large": (_T5_1_0, 24, 1024, 4096, 16, 64),
    "t5-3b": (_T5_1_0, 24, 1024, 16_384, 32, 128),
    "t5-11b": (_T5_1_0, 24, 1024, 65_536, 128, 128),
    "t5-1.1-small": (_T5_1_1, 8, 512, 1024, 6, 64),
    "t5-1.1-base": (_T5_1_1, 12, 768, 2048, 12, 64),
    "t5-1.1-large": (_T5_1_1, 24, 1024, 2816, 16, 64),
    "t5-1.1-xl": (_T5_1_1, 24, 2048, 5120, 32, 64),
    "t5-1.1-xxl": (_T5_1_1, 24, 4096, 10_240, 64, 64),
}

_LLAMA: dict[str, Any] = {
    "architecture": "decoder",
    "positions": "rotary",
    "activation": "swiglu",
    "norm": "rms",
    "norm_placement": "pre",
    "norm_epsilon": 1e-5,
    "ff_bias": False,
    "tie_embeddings": False,
    "embedding_scaling": "none",
    "initializer": "normal",
    "dropout": 0.0,
}
_LLAMA_2 = _LLAMA | {"vocab_size": 32_000, "max_positions": 4096}
_LLAMA_3 = _LLAMA | {"vocab_size": 128_256, "max_positions": 8192, "rotary_theta": 500_000.0}
# Touvron et al. 2023 (Llama 2), Zhang et al. 2024 (TinyLlama), Grattafiori et al. 2024 (Llama 3).
#    name               layers  d_model  d_ff    heads  kv_heads
_LLAMAS = {
    "tinyllama-1.1b": (_LLAMA_2 | {"max_positions": 2048}, 22, 2048, 5632, 32, 4),
    "llama2-7b": (_LLAMA_2, 32, 4096, 11_008, 32, 32),
    "llama2-13b": (_LLAMA_2, 40, 5120, 13_824, 40, 40),
    "llama2-70b": (_LLAMA_2, 80, 8192, 28_672, 64, 8),
    "llama3-8b": (_LLAMA_3, 32, 4096, 14_336, 32, 8),
}

_BERT: dict[str, Any] = {
    "architecture": "encoder",
    "vocab_size": 30_522,
    "next_sentence": True,
    "positions": "learned",
    "max_positions": 512,
    "segment_types": 2,
    "activation": "gelu",
    "norm_epsilon": 1e-12,
    "attention_bias": True,
    "output_bias": True,
    "embedding_scaling": "none",
    "embedding_norm": True,
    "initializer": "normal",
    "dropout": 0.1,
    "attention_dropout": 0.1,
}
_ROBERTA = _BERT | {
    "vocab_size": 50_265,
    "next_sentence": False,
    "pad_id": 1,
    "segment_types": 1,
    "norm_epsilon": 1e-5,
}
# The published Chinese model.
_ROFORMER = _BERT | {
    "vocab_size": 50_000,
    "next_sentence": False,
    "positions": "rotary",
    "max_positions": 1536,
}
# Devlin et al. 2019, section 3, with the uncased vocabulary; Turc et al. 2019, table 1; Liu et al.
# 2019; Su et al. 2021. Four times as wide inside, and 64 dimensions a head.
#    name              layers  d_model
_BERTS = {
    "bert-tiny": (_BERT, 2, 128),
    "bert-mini": (_BERT, 4, 256),
    "bert-small": (_BERT, 4, 512),
    "bert-medium": (_BERT, 8, 512),
    "bert-base": (_BERT, 12, 768),
    "bert-large": (_BERT, 24, 1024),
    "roberta-base": (_ROBERTA, 12, 768),
    "roberta-large": (_ROBERTA, 24, 1024),
    "roformer-base": (_ROFORMER, 12, 768),
}


def _presets() -> dict[str, ModelConfig]:
    found = {}
    for name, (layers, dim, ff_dim, heads, dropout) in _TRANSFORMERS.items():
        found[name] = ModelConfig(
            "encoder_decoder", layers, dim, ff_dim, heads, dropout=dropout, **_TRANSFORMER
        )
    for name, (family, layers, dim, heads, head_dim) in _GPTS.items():
        found[name] = _model(family, layers, dim, 4 * dim, heads, head_dim)
    for name, (family, layers, dim, ff_dim, heads, head_dim) in _T5S.items():
        found[name] = _model(family, layers, dim, ff_dim, heads, head_dim)
    for name, (family, layers, dim, ff_dim, heads, kv_heads) in _LLAMAS.items():
        groups = {} if kv_heads == heads else {"num_kv_heads": kv_heads}
        found[name] = _model(family | groups, layers, dim, ff_dim, heads, dim // heads)
    for name, (family, layers, dim) in _BERTS.items():
        found[name] = _model(family, layers, dim, 4 * dim, dim // 64, 64)
    return found


def _model(
    family: dict[str, Any], layers: int, dim: int, ff_dim: int, heads: int, head_dim: int
) -> ModelConfig:
    return ModelConfig(
        **family,
        num_layers=layers,
        model_dim=dim,
        ff_dim=ff_dim,
        num_heads=heads,
        attention_dim=None if heads * head_dim == dim else heads * head_dim,
    )


PRESETS: dict[str, ModelConfig] = _presets()
"""Name -> settings."""
