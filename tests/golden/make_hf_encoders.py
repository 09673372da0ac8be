"""Makes hf_encoders.npz: tiny BERT, RoBERTa and RoFormer models with random weights, a case a head.

    python tests/golden/make_hf_encoders.py     # transformers 5.24.0, torch 2.13.0 (CPU), numpy

Stored as in make_hf.py. The loss whose gradients these are is the sum over all outputs of
sum(output * cotangent). Rows are padded on the right; tokens at padding have a cotangent of 0.
"""

# pyright: reportMissingImports=false

from typing import Any

import torch
from make_hf import Arrays, named, prepared
from make_torch_layers import draw, save
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RoFormerConfig,
    RoFormerForMaskedLM,
    RoFormerForQuestionAnswering,
)

VOCAB = 29
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "intermediate_size": 19,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "max_position_embeddings": 13,
    **NO_DROPOUT,
}
INPUTS = [[2, 7, 11, 3, 17, 19, 3], [2, 28, 5, 3, 4, -1, -1]]
TYPES = [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 0, 0]]
CHOICES = [
    [[2, 7, 3, 17, 3], [2, 7, 3, 19, 3], [2, 7, 3, 3, -1]],
    [[2, 8, 3, 26, 3], [2, 8, 3, 3, -1], [2, 8, 3, 4, 3]],
]
OUTPUTS = {
    BertForPreTraining: ("prediction_logits", "seq_relationship_logits"),
    BertModel: ("last_hidden_state", "pooler_output"),
    BertForQuestionAnswering: ("start_logits", "end_logits"),
    RoFormerForQuestionAnswering: ("start_logits", "end_logits"),
}
OF_TOKENS = ("prediction_logits", "last_hidden_state", "start_logits", "end_logits")
OF_TOKENS_IN = (BertForTokenClassification, RobertaForMaskedLM, RoFormerForMaskedLM)


def case(name: str, model: PreTrainedModel) -> Arrays:
    """One forward pass of a batch, and the gradient."""
    model = normed(prepared(model))
    choices = isinstance(model, BertForMultipleChoice)
    inputs = torch.tensor(CHOICES if choices else INPUTS)
    real = inputs >= 0
    inputs = torch.where(real, inputs, model.config.pad_token_id)
    types = torch.tensor(TYPES)
    if choices:
        types = (torch.arange(inputs.shape[-1]) > 2).long().expand_as(inputs)
    types = types.clamp(max=model.config.type_vocab_size - 1)
    found = model(input_ids=inputs, token_type_ids=types, attention_mask=real.long())
    outputs = {key: found[key] for key in OUTPUTS.get(type(model), ("logits",))}

    def cotangent(key: str, output: Tensor) -> Tensor:
        drawn = draw(*output.shape)
        if key in OF_TOKENS or isinstance(model, OF_TOKENS_IN):
            return drawn * real.reshape(*real.shape, *[1] * (drawn.ndim - 2))
        return drawn

    cotangents = {key: cotangent(key, output) for key, output in outputs.items()}
    return named(name, model, {"inputs": inputs, "token_types": types}, outputs, cotangents)


def normed(model: PreTrainedModel) -> PreTrainedModel:
    """Scales of norms around 1, as trained ones."""
    for name, parameter in model.named_parameters():
        if name.lower().endswith(("layernorm.weight", "layer_norm.weight")):
            parameter.data.copy_((parameter % 1 + 0.5).float())
    return model


def bert(kind: Any, **changed: Any) -> PreTrainedModel:
    return kind(BertConfig(hidden_size=15, **(SIZES | changed)))


def roberta(kind: Any, **changed: Any) -> PreTrainedModel:
    sizes = SIZES | {"max_position_embeddings": 11, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return kind(RobertaConfig(hidden_size=15, **(sizes | changed)))


def roformer(kind: Any) -> PreTrainedModel:
    return kind(RoFormerConfig(hidden_size=18, embedding_size=18, **SIZES))


def main() -> None:
    torch.manual_seed(2018)
    models = {
        "bert": bert(BertModel),
        "bert_pretraining": bert(BertForPreTraining, num_hidden_layers=2),
        "bert_classes": bert(BertForSequenceClassification, num_labels=5),
        "bert_value": bert(BertForSequenceClassification, num_labels=1),
        "bert_tokens": bert(BertForTokenClassification, num_labels=5),
        "bert_choice": bert(BertForMultipleChoice),
        "bert_spans": bert(BertForQuestionAnswering),
        "roberta": roberta(RobertaForMaskedLM),
        "roberta_classes": roberta(RobertaForSequenceClassification, num_labels=3),
        "roformer": roformer(RoFormerForMaskedLM),
        "roformer_spans": roformer(RoFormerForQuestionAnswering),
    }
    arrays: Arrays = {}
    for name, model in models.items():
        arrays |= case(name, model)
    save("hf_encoders", arrays)


if __name__ == "__main__":
    main()
