"""BERT (Devlin et al. 2019): the encoder, its pre-training heads and those of its tasks."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from transformer.config import ModelConfig
from transformer.config.model import Head
from transformer.interop.family import Family, Row, linear, norm, of_layers
from transformer.interop.settings import Settings, label_settings

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_NAMES = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
_DECISION = "cls.seq_relationship.weight"
_LABELLED = ("classification", "token_labels")


class Bert(Family):
    """``BertModel``, ``BertForPreTraining`` and the classes of BERT's tasks.

    Which one a folder holds is said by `architectures` in its ``config.json``; where that is
    missing, by its tensors. The pooler, which papers' checkpoints have and other people's leave
    out, is optional where nothing but `pooled` reads it.

    Attributes:
        stem: what the names of the classes begin with here.
        stems: what they begin with there.
        heads: the rest of each name, and the head.
    """

    name = "bert"
    architecture = "BertModel"
    prefix = "bert."
    # Numbers of positions; the pooler in files of heads that do not read it.
    ignored = ("position_ids", "pooler.dense.weight", "pooler.dense.bias")
    stem: ClassVar[str] = "Bert"
    stems: ClassVar[tuple[str, ...]] = ("Bert",)
    heads: ClassVar[Mapping[str, Head]] = {
        "ForPreTraining": "language_model",
        "ForMaskedLM": "language_model",
        "ForSequenceClassification": "classification",
        "ForTokenClassification": "token_labels",
        "ForMultipleChoice": "multiple_choice",
        "ForQuestionAnswering": "span",
        "Model": "none",
    }

    def read(self, settings: Settings, names: Collection[str]) -> ModelConfig:
        s = settings
        for name in ("is_decoder", "add_cross_attention"):
            s.only(name, False, default=False)
        rest = self._class(s, names)
        head = self.heads[rest]
        labels = len(s.labels()) if head in _LABELLED else None
        if head == "classification":
            if s.values.get("problem_type") == "multi_label_classification":
                raise s.refuse("problem_type", "single_label_classification or regression")
            if labels == 1:
                head, labels = "regression", None
        # The published BERT calls itself a BertForMaskedLM, and has both heads.
        both = "ForPreTraining" in self.heads and head == "language_model"
        follows = both and (rest == "ForPreTraining" or _DECISION in names)
        return ModelConfig(
            architecture="encoder",
            num_layers=s.size("num_hidden_layers"),
            model_dim=s.size("hidden_size"),
            ff_dim=s.size("intermediate_size"),
            num_heads=s.size("num_attention_heads"),
            vocab_size=s.size("vocab_size"),
            head=head,
            num_classes=labels,
            next_sentence=follows,
            segment_types=s.size("type_vocab_size", 2),
            activation=s.choice("hidden_act", ACTIVATIONS, "gelu"),
            norm_epsilon=s.get("layer_norm_eps", 1e-12),
            attention_bias=True,
            output_bias=head == "language_model",
            tie_embeddings=head != "language_model" or s.get("tie_word_embeddings", True),
            embedding_scaling="none",
            embedding_norm=True,
            initializer="normal",
            dropout=s.get("hidden_dropout_prob", 0.1),
            attention_dropout=s.get("attention_probs_dropout_prob", 0.1),
            **self._read_positions(s),
        )

    def _read_positions(self, s: Settings) -> dict[str, Any]:
        s.only("position_embedding_type", "absolute", default="absolute")
        return {
            "pad_id": s.get("pad_token_id", 0),
            "positions": "learned",
            "max_positions": s.size("max_position_embeddings"),
        }

    def _class(self, s: Settings, names: Collection[str]) -> str:
        """The class of a folder without its stem."""
        known = {stem + rest: rest for rest in self.heads for stem in self.stems}
        named = s.values.get("architectures")
        if isinstance(named, list) and named and named[0] in known:
            return known[named[0]]
        guess = self._by_tensors(names) if not named else None
        if guess is None:
            raise s.refuse("architectures", " or ".join(self.stem + rest for rest in self.heads))
        return guess

    def _by_tensors(self, names: Collection[str]) -> str | None:
        if any(name.startswith(("cls.predictions.", "lm_head.")) for name in names):
            return "ForMaskedLM"
        if "qa_outputs.weight" in names:
            return "ForQuestionAnswering"
        # Of a classifier the tensors do not say what it classifies.
        return None if any(name.startswith("classifier.") for name in names) else "Model"

    def class_name(self, config: ModelConfig) -> str:
        head = "classification" if config.head == "regression" else config.head
        fitting = [rest for rest, known in self.heads.items() if known == head]
        if not fitting:
            return self.architecture
        return self.stem + (fitting[0] if config.next_sentence else fitting[-1])

    def write(self, config: ModelConfig) -> dict[str, Any]:
        values = {
            "vocab_size": config.vocab_size,
            "hidden_size": config.model_dim,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": config.num_heads,
            "intermediate_size": config.ff_dim,
            "hidden_act": _NAMES.get(config.activation, "gelu"),
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.attention_dropout,
            "max_position_embeddings": config.max_positions or 512,
            "type_vocab_size": config.segment_types or 2,
            "layer_norm_eps": config.norm_epsilon,
            "pad_token_id": config.pad_id,
            "tie_word_embeddings": config.tie_embeddings,
        }
        if config.head in ("regression", *_LABELLED):
            count = config.num_classes or 1
            values |= label_settings([f"LABEL_{i}" for i in range(count)])
        if config.head == "regression":
            values["problem_type"] = "regression"
        return values

    def rows(self, config: ModelConfig) -> list[Row]:
        prefix = "" if config.head == "none" else self.prefix

        def layer(i: int) -> list[Row]:
            theirs, ours = f"{prefix}encoder.layer.{i}", f"encoder/layer_{i}"
            attention = f"{ours}/self_attention"
            rows = []
            for name in ("query", "key", "value"):
                path = f"{theirs}.attention.self.{name}"
                rows += linear(path, f"{attention}/{name}", bias=True)
            return [
                *rows,
                *linear(f"{theirs}.attention.output.dense", f"{attention}/out", bias=True),
                *norm(f"{theirs}.attention.output.LayerNorm", f"{attention}_norm", bias=True),
                *linear(f"{theirs}.intermediate.dense", f"{ours}/feed_forward/up", bias=True),
                *linear(f"{theirs}.output.dense", f"{ours}/feed_forward/down", bias=True),
                *norm(f"{theirs}.output.LayerNorm", f"{ours}/feed_forward_norm", bias=True),
            ]

        embeddings = f"{prefix}embeddings"
        return [
            Row(f"{embeddings}.word_embeddings.weight", ("embedding/embedding",)),
            *self._position_rows(config, embeddings),
            Row(f"{embeddings}.token_type_embeddings.weight", ("embedding/segments",)),
            *norm(f"{embeddings}.LayerNorm", "embedding/norm", bias=True),
            *of_layers(config.num_layers, layer),
            *self._head_rows(config, prefix),
        ]

    def _position_rows(self, config: ModelConfig, embeddings: str) -> list[Row]:
        return [Row(f"{embeddings}.position_embeddings.weight", ("embedding/positions",))]

    def _head_rows(self, config: ModelConfig, prefix: str) -> list[Row]:
        pooler = linear(f"{prefix}pooler.dense", "pooler", bias=True)
        match config.head:
            case "language_model":
                rows = pooler if config.next_sentence else []
                rows += self._masked_rows(config)
                if config.next_sentence:
                    rows += linear("cls.seq_relationship", "next_sentence", bias=True)
                return rows
            case "span":
                return linear("qa_outputs", "classifier", bias=True)
            case "token_labels":
                return linear("classifier", "classifier", bias=True)
            case "none":
                return [row._replace(optional=True) for row in pooler]
            case _:
                return [*pooler, *linear("classifier", "classifier", bias=True)]

    def _masked_rows(self, config: ModelConfig) -> list[Row]:
        rows = [
            *linear("cls.predictions.transform.dense", "transform", bias=True),
            *norm("cls.predictions.transform.LayerNorm", "transform_norm", bias=True),
            Row("cls.predictions.bias", ("embedding/output_bias",)),
        ]
        if not config.tie_embeddings:
            rows.append(Row("cls.predictions.decoder.weight", ("embedding/output",)))
        return rows

    def copies(self, config: ModelConfig) -> dict[str, str]:
        return self._copies(config, "cls.predictions") if config.head == "language_model" else {}

    def _copies(self, config: ModelConfig, head: str) -> dict[str, str]:
        found = {f"{head}.decoder.bias": f"{head}.bias"}
        if config.tie_embeddings:
            found[f"{head}.decoder.weight"] = f"{self.prefix}embeddings.word_embeddings.weight"
        return found

    def modern(self, name: str) -> str:
        # The names of TensorFlow, in the first files.
        for old, new in (("gamma", "weight"), ("beta", "bias")):
            if name.endswith(f"LayerNorm.{old}"):
                return name.removesuffix(old) + new
        return name
