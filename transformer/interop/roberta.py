"""RoBERTa (Liu et al. 2019), XLM-R and CamemBERT: BERT with other positions and heads."""

from collections.abc import Collection
from typing import Any, ClassVar

from transformer.config import ModelConfig
from transformer.interop.bert import Bert
from transformer.interop.family import Row, linear, norm
from transformer.interop.settings import Settings


class Roberta(Bert):
    """``RobertaForMaskedLM`` and its kin: no next sentence, and one type of token.

    Positions are counted from the padding's id + 1, so the rows up to it are read by no token.
    """

    name = "roberta"
    also = ("xlm-roberta", "camembert")
    architecture = "RobertaModel"
    prefix = "roberta."
    stem = "Roberta"
    stems = ("Roberta", "XLMRoberta", "Camembert")
    heads: ClassVar = {rest: head for rest, head in Bert.heads.items() if rest != "ForPreTraining"}

    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        settings.only("type_vocab_size", 1)
        config = super().read(settings, names)
        if config.head == "language_model":
            settings.only("hidden_act", "gelu", default="gelu")  # its head knows no other
        return config

    def _read_positions(self, s: Settings) -> dict[str, Any]:
        found = super()._read_positions(s)
        pad = s.get("pad_token_id", 1)
        if found["max_positions"] <= pad + 1:
            raise s.refuse("max_position_embeddings", f"more than pad_token_id + 1 = {pad + 1}")
        return found | {"pad_id": pad, "max_positions": found["max_positions"] - pad - 1}

    def write(self, config: ModelConfig) -> dict[str, Any]:
        values = super().write(config) | {"type_vocab_size": 1}
        values["max_position_embeddings"] += config.pad_id + 1
        return values

    def _position_rows(self, config: ModelConfig, embeddings: str) -> list[Row]:
        rows = super()._position_rows(config, embeddings)
        return [row._replace(unused=config.pad_id + 1) for row in rows]

    def _head_rows(self, config: ModelConfig, prefix: str) -> list[Row]:
        if config.head in ("classification", "regression"):
            return [
                *linear("classifier.dense", "pooler", bias=True),
                *linear("classifier.out_proj", "classifier", bias=True),
            ]
        return super()._head_rows(config, prefix)

    def _masked_rows(self, config: ModelConfig) -> list[Row]:
        rows = [
            *linear("lm_head.dense", "transform", bias=True),
            *norm("lm_head.layer_norm", "transform_norm", bias=True),
            Row("lm_head.bias", ("embedding/output_bias",)),
        ]
        if not config.tie_embeddings:
            rows.append(Row("lm_head.decoder.weight", ("embedding/output",)))
        return rows

    def copies(self, config: ModelConfig) -> dict[str, str]:
        return self._copies(config, "lm_head") if config.head == "language_model" else {}
