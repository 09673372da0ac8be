"""The largest batch that settings lead to, before there is any data."""

import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import Batch
from transformer.data.byte_tokenizer import Bytes
from transformer.data.composing import DELIMITERS
from transformer.data.extended_tokenizer import SENTINELS
from transformer.data.masking import chosen_count
from transformer.data.plan import rows_of
from transformer.data.span_corruption import corrupted_lengths, raw_length
from transformer.errors import UserError

_ENCODER = ("inputs", "token_types")


def vocabulary(config: DataConfig, architecture: str) -> int:
    """How many ids a tokenizer that is yet to be learnt will have.

    Raises:
        UserError: only its file, or the data, can tell.
    """
    match config.tokenizer:
        case "sentencepiece" | "wordpiece":
            size = config.vocab_size
        case "bytes":
            size = Bytes().vocab_size
        case _:
            raise UserError(
                f"model.vocab_size = None: expected the number of ids, which data.tokenizer = "
                f"{config.tokenizer!r} has from the data or its file (--model.vocab-size)"
            )
    match config.objective:
        case "span_corruption":
            return size + SENTINELS
        case "classification" if architecture == "decoder":
            return size + len(DELIMITERS)
        case "masked_language_model" if config.tokenizer != "wordpiece":
            return size + 1  # the mask
        case _:
            return size


def largest_batch(config: DataConfig, architecture: str, accumulate: int = 1) -> Batch:
    """The arrays of a step, all 0, with the most tokens; of several such with the longest rows.

    Args:
        config: the settings.
        architecture: of the network.
        accumulate: micro-batches of the step.
    """
    source = choices = 0
    match config.objective:
        case "language_model" | "span_corruption":
            length = config.block_length
            tokens = (config.batch_size or 0) * length or config.batch_tokens
            rows = tokens // length
            if config.objective == "span_corruption":
                noise = config.noise_density, config.mean_span
                source, length = corrupted_lengths(raw_length(length, *noise), *noise)
                rows = rows_of(tokens, max(source, length))
        case "masked_language_model" if config.next_sentence:
            length = config.block_length
            rows = config.batch_size or rows_of(config.batch_tokens, length)
        case "multiple_choice":
            choices = sum(c.partition("=")[0] == "choice" for c in config.columns)
            rows, length = _bucket(config, config.max_length, choices)
        case "translation":
            rows, length = _bucket(config, config.max_length + 1)
            source = length
        case "answers":  # two end symbols are counted, and the last token is no input
            rows, length = _bucket(config, config.max_length - 1)
        case "masked_language_model":
            rows, length = _bucket(config, config.block_length)
        case _:
            rows, length = _bucket(config, config.max_length)
    rows *= accumulate
    shape = (rows, choices, length) if choices else (rows, length)
    batch = {name: shape for name in _names(config, architecture)}
    if source:
        batch["source"] = (rows, source)
    if config.objective == "masked_language_model":
        ordinary = length - (3 if config.next_sentence else 2)
        count = chosen_count(ordinary, config.noise_density)
        batch |= dict.fromkeys(("places", "targets", "weights"), (rows, count))
    return {
        name: np.zeros(
            (rows,) if name in _BY_ROW or (name in _BY_ROW_OF.get(config.objective, ())) else shape,
            np.float32 if name in _NUMBERS else np.int32,
        )
        for name, shape in batch.items()
    }


_NUMBERS = ("weights", "follow_weights", "values")
_BY_ROW = ("follows", "follow_weights", "starts", "ends", "values")
_BY_ROW_OF = {
    "classification": ("labels",),
    "multiple_choice": ("labels",),
    "regression": ("weights",),
}


def _names(config: DataConfig, architecture: str) -> tuple[str, ...]:
    tokens = ("inputs", "targets", "weights")
    match config.objective:
        case "language_model":
            return (*tokens, "segments", "positions")
        case "translation" | "span_corruption" | "answers":
            return tokens
        case "masked_language_model":
            return (*_ENCODER, *(("follows", "follow_weights") if config.next_sentence else ()))
        case "classification" if architecture == "decoder":
            return (*tokens, "ends", "labels")
        case "classification" | "multiple_choice":
            return (*_ENCODER, "labels")
        case "regression":
            return (*_ENCODER, "values", "weights")
        case "token_labels":
            return (*_ENCODER, "labels", "words")
        case "spans":
            return (*_ENCODER, "starts", "ends")


def _bucket(config: DataConfig, longest: int, choices: int = 1) -> tuple[int, int]:
    """Rows and their length, of what is bucketed by length."""
    if config.batch_size:
        return config.batch_size, longest
    tokens = max(config.batch_tokens // choices, 1)
    lengths = range(-(-longest // 2), longest + 1)
    return max(((rows_of(tokens, n), n) for n in lengths), key=lambda s: (s[0] * s[1], s[1]))
