"""Marian (Junczys-Dowmunt et al. 2018): the original Transformer as OPUS-MT publishes it."""

from collections.abc import Collection
from typing import Any

import numpy as np

from transformer.config import ModelConfig
from transformer.interop.family import Family, Row, linear, norm, of_layers, output
from transformer.interop.settings import Settings

_ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
}
_ATTENTIONS = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}


class Marian(Family):
    """``MarianMTModel``."""

    name = "marian"
    architecture = "MarianMTModel"
    prefix = "model."
    ignored = (".embed_positions.weight",)

    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        s = settings
        layers, heads = s.size("encoder_layers"), s.size("encoder_attention_heads")
        ff_dim, vocab_size = s.size("encoder_ffn_dim"), s.size("vocab_size")
        s.only("decoder_layers", layers)
        s.only("decoder_attention_heads", heads)
        s.only("decoder_ffn_dim", ff_dim)
        s.only("decoder_vocab_size", vocab_size, default=vocab_size)
        for name in ("share_encoder_decoder_embeddings", "static_position_embeddings"):
            s.only(name, True, default=True)
        for name in ("normalize_before", "normalize_embedding", "add_final_layer_norm"):
            s.only(name, False, default=False)
        return ModelConfig(
            num_layers=layers,
            model_dim=s.size("d_model"),
            ff_dim=ff_dim,
            num_heads=heads,
            vocab_size=vocab_size,
            pad_id=s.get("pad_token_id", 58100),
            max_positions=s.size("max_position_embeddings", 1024),
            activation=s.choice("activation_function", _ACTIVATIONS, "gelu"),
            norm_epsilon=1e-5,
            attention_bias=True,
            output_bias=True,
            tie_embeddings=s.get("tie_word_embeddings", True),
            embedding_scaling="input" if s.get("scale_embedding", False) else "none",
            dropout=s.get("dropout", 0.1),
            attention_dropout=s.get("attention_dropout", 0.0),
            ff_dropout=s.get("activation_dropout", 0.0),
        )

    def write(self, config: ModelConfig) -> dict[str, Any]:
        sides = {
            f"{side}_{name}": value
            for side in ("encoder", "decoder")
            for name, value in (
                ("layers", config.num_layers),
                ("attention_heads", config.num_heads),
                ("ffn_dim", config.ff_dim),
            )
        }
        names = {ours: theirs for theirs, ours in _ACTIVATIONS.items() if theirs != "silu"}
        return sides | {
            "vocab_size": config.vocab_size,
            "decoder_vocab_size": config.vocab_size,
            "d_model": config.model_dim,
            "max_position_embeddings": config.max_positions or 1024,
            "activation_function": names.get(config.activation, "swish"),
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "activation_dropout": config.ff_dropout,
            "scale_embedding": config.embedding_scaling == "input",
            "static_position_embeddings": True,
            "share_encoder_decoder_embeddings": True,
            "normalize_before": False,
            "is_encoder_decoder": True,
            "pad_token_id": config.pad_id,
            "tie_word_embeddings": config.tie_embeddings,
        }

    def rows(self, config: ModelConfig) -> list[Row]:
        def stack(side: str) -> list[Row]:
            attentions = ("self_attn", "encoder_attn") if side == "decoder" else ("self_attn",)

            def layer(i: int) -> list[Row]:
                theirs, ours = f"model.{side}.layers.{i}", f"{side}/layer_{i}"
                rows = []
                for name in attentions:
                    path = f"{ours}/{_ATTENTIONS[name]}"
                    for role, short in (
                        ("query", "q"),
                        ("key", "k"),
                        ("value", "v"),
                        ("out", "out"),
                    ):
                        rows += linear(f"{theirs}.{name}.{short}_proj", f"{path}/{role}", bias=True)
                    rows += norm(f"{theirs}.{name}_layer_norm", f"{path}_norm", bias=True)
                return [
                    *rows,
                    *linear(f"{theirs}.fc1", f"{ours}/feed_forward/up", bias=True),
                    *linear(f"{theirs}.fc2", f"{ours}/feed_forward/down", bias=True),
                    *norm(f"{theirs}.final_layer_norm", f"{ours}/feed_forward_norm", bias=True),
                ]

            return of_layers(config.num_layers, layer)

        return [
            Row("model.shared.weight", ("embedding/embedding",)),
            *stack("encoder"),
            *stack("decoder"),
            Row("final_logits_bias", ("embedding/output_bias",), "row"),
            *output(config),
        ]

    def copies(self, config: ModelConfig) -> dict[str, str]:
        names = ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"]
        if config.tie_embeddings:
            names.append("lm_head.weight")
        return dict.fromkeys(names, "model.shared.weight")

    def residual_order(self, config: ModelConfig) -> np.ndarray:
        """Marian's position vector holds all sines, then all cosines; the paper's alternates.

        The same permutation of the residual stream in every weight that reads or writes it
        turns one model into the other.
        """
        dim = config.model_dim
        order = np.empty(dim, int)
        order[0::2] = np.arange((dim + 1) // 2)
        order[1::2] = np.arange((dim + 1) // 2, dim)
        return order
