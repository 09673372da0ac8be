"""Llama (Touvron et al. 2023) and models of its make: rotary, RMS norm, gated SiLU."""

from collections.abc import Collection
from typing import Any

from transformer.config import ModelConfig
from transformer.interop.family import Family, Row, linear, norm, of_layers, output
from transformer.interop.settings import Settings

_ACTIVATIONS = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu_pytorch_tanh": "geglu",
    "gelu_new": "geglu",
}


class Llama(Family):
    """``LlamaForCausalLM``, and ``MistralForCausalLM`` without a sliding window."""

    name = "llama"
    also = ("mistral",)
    architecture = "LlamaForCausalLM"
    prefix = "model."
    ignored = (".rotary_emb.inv_freq",)

    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        s = settings
        s.only("rope_scaling", None)
        s.only("sliding_window", None)
        rope = Settings(s.get("rope_parameters", {}), f"{s.where}: rope_parameters")
        rope.only("rope_type", "default", default="default")
        rope.only("partial_rotary_factor", 1.0, default=1.0)
        model_dim, heads = s.size("hidden_size"), s.size("num_attention_heads")
        kv_heads = s.size("num_key_value_heads", heads)
        attention_dim = s.size("head_dim", model_dim // heads) * heads
        return ModelConfig(
            "decoder",
            num_layers=s.size("num_hidden_layers"),
            model_dim=model_dim,
            ff_dim=s.size("intermediate_size"),
            num_heads=heads,
            attention_dim=None if attention_dim == model_dim else attention_dim,
            num_kv_heads=None if kv_heads == heads else kv_heads,
            vocab_size=s.size("vocab_size"),
            positions="rotary",
            max_positions=s.size("max_position_embeddings", 2048),
            rotary_theta=rope.get("rope_theta", s.get("rope_theta", 10_000.0)),
            activation=s.choice("hidden_act", _ACTIVATIONS, "silu"),
            norm="rms",
            norm_placement="pre",
            norm_epsilon=s.get("rms_norm_eps", 1e-6),
            attention_bias=s.get("attention_bias", False),
            ff_bias=s.get("mlp_bias", False),
            tie_embeddings=s.get("tie_word_embeddings", False),
            embedding_scaling="none",
            initializer="normal",
            dropout=0.0,
            attention_dropout=s.get("attention_dropout", 0.0),
        )

    def write(self, config: ModelConfig) -> dict[str, Any]:
        return {
            "vocab_size": config.vocab_size,
            "hidden_size": config.model_dim,
            "intermediate_size": config.ff_dim,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": config.num_heads,
            "num_key_value_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "hidden_act": "gelu_pytorch_tanh" if config.activation == "geglu" else "silu",
            "max_position_embeddings": config.max_positions or 2048,
            "rms_norm_eps": config.norm_epsilon,
            # Older programs read the first, newer ones the second.
            "rope_theta": config.rotary_theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_theta},
            "attention_bias": config.attention_bias,
            "mlp_bias": config.ff_bias,
            "attention_dropout": config.attention_dropout,
            "tie_word_embeddings": config.tie_embeddings,
        }

    def rows(self, config: ModelConfig) -> list[Row]:
        def layer(i: int) -> list[Row]:
            theirs, ours = f"model.layers.{i}", f"decoder/layer_{i}"
            rows = [
                *norm(f"{theirs}.input_layernorm", f"{ours}/self_attention_norm", bias=False),
                *norm(
                    f"{theirs}.post_attention_layernorm", f"{ours}/feed_forward_norm", bias=False
                ),
            ]
            for name in ("query", "key", "value", "out"):
                path = f"{ours}/self_attention/{name}"
                rows += linear(
                    f"{theirs}.self_attn.{name[0]}_proj", path, bias=config.attention_bias
                )
            for name in ("gate", "up", "down"):
                path = f"{ours}/feed_forward/{name}"
                rows += linear(f"{theirs}.mlp.{name}_proj", path, bias=config.ff_bias)
            return rows

        return [
            Row("model.embed_tokens.weight", ("embedding/embedding",)),
            *of_layers(config.num_layers, layer),
            *norm("model.norm", "decoder/final_norm", bias=False),
            *output(config),
        ]

    def copies(self, config: ModelConfig) -> dict[str, str]:
        return {"lm_head.weight": "model.embed_tokens.weight"} if config.tie_embeddings else {}
