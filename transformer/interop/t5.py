"""T5 (Raffel et al. 2020), 1.0 and 1.1, and mT5, which is as T5 1.1."""

from collections.abc import Collection
from typing import Any

from transformer.config import ModelConfig
from transformer.interop.family import Family, Row, linear, norm, of_layers, output
from transformer.interop.settings import Settings

_ACTIVATIONS = {
    "relu": "relu",
    "gated-gelu": "geglu",
    "gated-silu": "swiglu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
}
_NAMES = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}


class T5(Family):
    """``T5ForConditionalGeneration``."""

    name = "t5"
    also = ("mt5",)
    architecture = "T5ForConditionalGeneration"
    # An unused table of old files; that of the decoder's self-attention ends otherwise.
    ignored = (".EncDecAttention.relative_attention_bias.weight",)

    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        s = settings
        layers, heads = s.size("num_layers"), s.size("num_heads")
        s.only("num_decoder_layers", layers, default=layers)
        s.only("relative_attention_num_buckets", 32, default=32)
        s.only("relative_attention_max_distance", 128, default=128)
        model_dim, attention_dim = s.size("d_model"), s.size("d_kv") * heads
        tied = s.get("tie_word_embeddings", True)
        # Recent files of version 1.1 say "tied" whatever they hold, and the scaling apart.
        scaled = s.get("scale_decoder_outputs", tied)
        tied &= scaled or "lm_head.weight" not in names
        dropout = s.get("dropout_rate", 0.1)
        return ModelConfig(
            num_layers=layers,
            model_dim=model_dim,
            ff_dim=s.size("d_ff"),
            num_heads=heads,
            attention_dim=None if attention_dim == model_dim else attention_dim,
            vocab_size=s.size("vocab_size"),
            pad_id=s.get("pad_token_id", 0),
            positions="relative",
            activation=s.choice("feed_forward_proj", _ACTIVATIONS, "relu"),
            norm="rms",
            norm_placement="pre",
            norm_epsilon=s.get("layer_norm_epsilon", 1e-6),
            ff_bias=False,
            scale_attention=False,
            tie_embeddings=tied,
            embedding_scaling="output" if scaled else "none",
            initializer="t5",
            dropout=dropout,
            attention_dropout=dropout,
            ff_dropout=dropout,
        )

    def write(self, config: ModelConfig) -> dict[str, Any]:
        return {
            "vocab_size": config.vocab_size,
            "d_model": config.model_dim,
            "d_kv": config.head_dim,
            "d_ff": config.ff_dim,
            "num_layers": config.num_layers,
            "num_decoder_layers": config.num_layers,
            "num_heads": config.num_heads,
            "relative_attention_num_buckets": 32,
            "relative_attention_max_distance": 128,
            "dropout_rate": config.dropout,
            "layer_norm_epsilon": config.norm_epsilon,
            "feed_forward_proj": _NAMES.get(config.activation, "relu"),
            "is_encoder_decoder": True,
            "pad_token_id": config.pad_id,
            "tie_word_embeddings": config.tie_embeddings,
            "scale_decoder_outputs": config.embedding_scaling == "output",
        }

    def rows(self, config: ModelConfig) -> list[Row]:
        ups = {"wi": "up"}
        if config.activation in ("geglu", "swiglu"):
            ups = {"wi_0": "gate", "wi_1": "up"}

        def stack(side: str) -> list[Row]:
            attentions = {"SelfAttention": "self_attention"}
            if side == "decoder":
                attentions["EncDecAttention"] = "cross_attention"

            def layer(i: int) -> list[Row]:
                block, ours = f"{side}.block.{i}.layer", f"{side}/layer_{i}"
                rows = []
                for j, (name, path) in enumerate(attentions.items()):
                    rows += norm(f"{block}.{j}.layer_norm", f"{ours}/{path}_norm", bias=False)
                    for role in ("query", "key", "value", "out"):
                        theirs = f"{block}.{j}.{name}.{role[0]}"
                        rows += linear(theirs, f"{ours}/{path}/{role}", bias=False)
                last = f"{block}.{len(attentions)}"
                rows += norm(f"{last}.layer_norm", f"{ours}/feed_forward_norm", bias=False)
                for theirs, role in (ups | {"wo": "down"}).items():
                    path = f"{ours}/feed_forward/{role}"
                    rows += linear(f"{last}.DenseReluDense.{theirs}", path, bias=False)
                return rows

            first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            return [
                Row(first, (f"{side}/relative_bias/embedding",)),
                *of_layers(config.num_layers, layer),
                *norm(f"{side}.final_layer_norm", f"{side}/final_norm", bias=False),
            ]

        return [
            Row("shared.weight", ("embedding/embedding",)),
            *stack("encoder"),
            *stack("decoder"),
            *output(config),
        ]

    def copies(self, config: ModelConfig) -> dict[str, str]:
        names = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
        if config.tie_embeddings:
            names.append("lm_head.weight")
        return dict.fromkeys(names, "shared.weight")
