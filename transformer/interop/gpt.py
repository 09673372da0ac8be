"""GPT-1 (Radford et al. 2018) and GPT-2 (Radford et al. 2019)."""

from collections.abc import Collection
from typing import Any

from transformer.config import ModelConfig
from transformer.interop.family import Family, Row, norm, of_layers, output
from transformer.interop.settings import Settings

_ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# The class calls the approximation "gelu", and knows no other.
_GPT1_ACTIVATIONS = {
    "gelu": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def _conv1d(theirs: str, *ours: str) -> list[Row]:
    """Their linear layer with the kernel as [in, out]; several are side by side in one."""
    return [
        Row(f"{theirs}.weight", tuple(f"{path}/kernel" for path in ours)),
        Row(f"{theirs}.bias", tuple(f"{path}/bias" for path in ours)),
    ]


def _read(settings: Settings) -> dict[str, Any]:
    s = settings
    dropout = s.get("resid_pdrop", 0.1)
    s.only("embd_pdrop", dropout, default=0.1)
    return {
        "architecture": "decoder",
        "num_layers": s.size("n_layer"),
        "model_dim": s.size("n_embd"),
        "num_heads": s.size("n_head"),
        "vocab_size": s.size("vocab_size"),
        "positions": "learned",
        "max_positions": s.size("n_positions"),
        "norm_epsilon": s.get("layer_norm_epsilon", 1e-5),
        "attention_bias": True,
        "tie_embeddings": s.get("tie_word_embeddings", True),
        "embedding_scaling": "none",
        "dropout": dropout,
        "attention_dropout": s.get("attn_pdrop", 0.1),
    }


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.max_positions or 1024,
        "n_embd": config.model_dim,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "layer_norm_epsilon": config.norm_epsilon,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": config.tie_embeddings,
    }


def _name(activation: str, names: dict[str, str]) -> str:
    known = (theirs for theirs, ours in names.items() if ours == activation)
    return next(known, "relu")


class GPT2(Family):
    """``GPT2LMHeadModel``."""

    name = "gpt2"
    architecture = "GPT2LMHeadModel"
    prefix = "transformer."
    ignored = (".attn.bias", ".attn.masked_bias")
    embedding = "wte"
    positions = "wpe"

    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        s = settings
        s.only("scale_attn_by_inverse_layer_idx", False, default=False)
        s.only("add_cross_attention", False, default=False)
        return ModelConfig(
            **_read(s),
            ff_dim=s.size("n_inner", 4 * s.size("n_embd")),
            activation=s.choice("activation_function", _ACTIVATIONS, "gelu_new"),
            norm_placement="pre",
            scale_attention=s.get("scale_attn_weights", True),
            initializer="scaled_normal",
        )

    def write(self, config: ModelConfig) -> dict[str, Any]:
        return _write(config) | {
            "n_inner": config.ff_dim,
            "activation_function": _name(config.activation, _ACTIVATIONS),
            "scale_attn_weights": config.scale_attention,
        }

    def rows(self, config: ModelConfig) -> list[Row]:
        def layer(i: int) -> list[Row]:
            theirs, ours = f"transformer.h.{i}", f"decoder/layer_{i}"
            attention = f"{ours}/self_attention"
            projections = [f"{attention}/{name}" for name in ("query", "key", "value")]
            return [
                *norm(f"{theirs}.ln_1", f"{attention}_norm", bias=True),
                *_conv1d(f"{theirs}.attn.c_attn", *projections),
                *_conv1d(f"{theirs}.attn.c_proj", f"{attention}/out"),
                *norm(f"{theirs}.ln_2", f"{ours}/feed_forward_norm", bias=True),
                *_conv1d(f"{theirs}.mlp.c_fc", f"{ours}/feed_forward/up"),
                *_conv1d(f"{theirs}.mlp.c_proj", f"{ours}/feed_forward/down"),
            ]

        rows = [
            Row(f"transformer.{self.embedding}.weight", ("embedding/embedding",)),
            Row(f"transformer.{self.positions}.weight", ("embedding/positions",)),
            *of_layers(config.num_layers, layer),
        ]
        if config.norm_placement == "pre":
            rows += norm("transformer.ln_f", "decoder/final_norm", bias=True)
        return [*rows, *output(config)]

    def copies(self, config: ModelConfig) -> dict[str, str]:
        name = f"transformer.{self.embedding}.weight"
        return {"lm_head.weight": name} if config.tie_embeddings else {}


class GPT1(GPT2):
    """``OpenAIGPTLMHeadModel``: as GPT-2 but for the places of the norms."""

    name = "openai-gpt"
    architecture = "OpenAIGPTLMHeadModel"
    ignored = (".attn.bias", "position_ids")
    embedding = "tokens_embed"
    positions = "positions_embed"

    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        return ModelConfig(
            **_read(settings),
            ff_dim=4 * settings.size("n_embd"),
            activation=settings.choice("afn", _GPT1_ACTIVATIONS, "gelu"),
            initializer="normal",
        )

    def write(self, config: ModelConfig) -> dict[str, Any]:
        return _write(config) | {"afn": _name(config.activation, _GPT1_ACTIVATIONS)}
