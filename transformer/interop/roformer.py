"""RoFormer (Su et al. 2021): BERT whose queries and keys are turned by their positions."""

from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from transformer.config import ModelConfig
from transformer.interop.bert import Bert
from transformer.interop.family import Get, Row
from transformer.interop.settings import Settings


class RoFormer(Bert):
    """``RoFormerForMaskedLM``, ``RoFormerModel`` and those heads that are BERT's.

    Its classifiers of sequences have another activation, so they are not read. There is no
    pooler. Rotary pairs are neighbours there, and half a head apart here.
    """

    name = "roformer"
    architecture = "RoFormerModel"
    prefix = "roformer."
    ignored = ("embed_positions.weight",)
    stem = "RoFormer"
    stems = ("RoFormer",)
    heads: ClassVar = {
        "ForMaskedLM": "language_model",
        "ForTokenClassification": "token_labels",
        "ForQuestionAnswering": "span",
        "Model": "none",
    }

    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        settings.only("rotary_value", False, default=False)
        size = settings.size("hidden_size")
        settings.only("embedding_size", size, default=size)
        return super().read(settings, names)

    def _read_positions(self, s: Settings) -> dict[str, Any]:
        return {
            "pad_id": s.get("pad_token_id", 0),
            "positions": "rotary",
            "max_positions": s.size("max_position_embeddings", 1536),
        }

    def write(self, config: ModelConfig) -> dict[str, Any]:
        values = {"embedding_size": config.model_dim, "rotary_value": False}
        # Its sinusoids are a table: of a model without a limit as long as the published one's.
        values["max_position_embeddings"] = config.max_positions or 1536
        return super().write(config) | values

    def _position_rows(self, config: ModelConfig, embeddings: str) -> list[Row]:
        return []

    def _head_rows(self, config: ModelConfig, prefix: str) -> list[Row]:
        return [] if config.head == "none" else super()._head_rows(config, prefix)

    def from_theirs(
        self, config: ModelConfig, get: Get, missing: Collection[str] = ()
    ) -> dict[str, Any]:
        theirs = np.arange(config.model_dim).reshape(config.num_heads, -1, 2)
        order = theirs.transpose(0, 2, 1).reshape(-1)  # of each head first the even ones
        return _turned(super().from_theirs(config, get, missing), order)

    def to_theirs(self, config: ModelConfig, params: Any) -> dict[str, np.ndarray]:
        ours = np.arange(config.model_dim).reshape(config.num_heads, 2, -1)
        return super().to_theirs(config, _turned(params, ours.transpose(0, 2, 1).reshape(-1)))


def _turned(params: Any, order: np.ndarray) -> dict[str, Any]:
    """Queries and keys, kernels and biases, with their dimensions in another order."""
    flat: dict[str, Any] = dict(flatten_dict(params, sep="/"))
    for path, array in flat.items():
        if path.split("/")[-2] in ("query", "key"):
            flat[path] = np.ascontiguousarray(np.asarray(array)[..., order])
    return unflatten_dict(flat, sep="/")
