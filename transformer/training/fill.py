"""What a run's settings leave to its data: sizes, classes, the number of steps."""

import dataclasses
import math

from transformer.config import Config, head_of
from transformer.data.classification import ClassSplit
from transformer.data.extended_tokenizer import ExtendedTokenizer
from transformer.data.pipeline import Split
from transformer.data.token_labels import TokenSplit
from transformer.data.tokenizer import Tokenizer, check_ids
from transformer.errors import UserError


def with_data(config: Config, tokenizer: Tokenizer, train: Split) -> Config:
    """``config`` with the vocabulary's size filled in, large enough for every id of the data.

    So are the head, and the classes where the data has some.

    Args:
        config: the settings of a run.
        tokenizer: that of the data.
        train: what is trained on.

    Raises:
        UserError: a setting of the model does not fit the tokenizer or the labels.
    """
    size = config.model.vocab_size or tokenizer.vocab_size
    if isinstance(tokenizer, ExtendedTokenizer) and config.train.init_from is not None:
        size = max(size, tokenizer.vocab_size)
    if size < tokenizer.vocab_size:
        raise UserError(
            f"model.vocab_size = {size}: expected at least the tokenizer's "
            f"{tokenizer.vocab_size}, or None"
        )
    pad = tokenizer.special.pad
    if config.model.architecture != "decoder" and config.model.pad_id != pad:
        raise UserError(f"model.pad_id = {config.model.pad_id}: expected the tokenizer's {pad}")
    # On a device an id beyond the table would be clamped to its last row, silently.
    for tokens in train.tokens:
        check_ids([tokens.min(), tokens.max()], size)
    data = config.data
    model = dataclasses.replace(with_head(config).model, vocab_size=size)
    if isinstance(train, ClassSplit | TokenSplit) and train.names:
        classes = len(train.names)
        if model.num_classes not in (None, classes):
            raise UserError(
                f"model.num_classes = {model.num_classes}: expected {classes}, as there are labels "
                f"({', '.join(train.names)}), or None"
            )
        model = dataclasses.replace(model, num_classes=classes)
        data = dataclasses.replace(data, labels=train.names)
    return dataclasses.replace(config, model=model, data=data)


def with_head(config: Config) -> Config:
    """``config`` with the model's ends that its objective asks for."""
    data = config.data
    paired = data.objective == "masked_language_model" and data.next_sentence
    model = dataclasses.replace(config.model, head=head_of(data.objective), next_sentence=paired)
    return dataclasses.replace(config, model=model)


def with_steps(config: Config, steps_per_epoch: int) -> Config:
    """``config`` with ``train.steps`` no more than ``train.epochs`` take, if there are any given.

    Args:
        config: the settings of a run.
        steps_per_epoch: of its training batches.
    """
    if config.train.epochs is None:
        return config
    steps = min(config.train.steps, math.ceil(config.train.epochs * steps_per_epoch))
    return dataclasses.replace(config, train=dataclasses.replace(config.train, steps=steps))
