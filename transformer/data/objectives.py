"""What a model is taught: the batches that each objective makes of a split."""

from typing import Any

from transformer.config import DataConfig
from transformer.data.answers import AnswerBatches
from transformer.data.batches import Batches
from transformer.data.blocks import BlockBatches
from transformer.data.choices import ChoiceBatches, ChoiceSplit
from transformer.data.classification import ClassBatches, ClassSplit
from transformer.data.masking import Masker
from transformer.data.pairs import PairBatches
from transformer.data.pipeline import Split
from transformer.data.plan import BatchPlan
from transformer.data.sentence_pairs import MaskedBatches
from transformer.data.sentences import SentenceSplit
from transformer.data.span_corruption import SpanBatches
from transformer.data.text import TextSplit
from transformer.data.token_labels import TokenBatches, TokenSplit
from transformer.data.tokenizer import Tokenizer
from transformer.data.windows import SpanSplit, WindowBatches

# A held-out split is small: another padded shape costs more to compile than it saves.
_HELD_OUT_SHAPES = 2


def training_batches(
    split: Split, config: DataConfig, tokenizer: Tokenizer, seed: int, group: int = 1
) -> Batches:
    """Batches in an order of `seed`, another one each epoch.

    Args:
        split: the examples.
        config: the size of a batch.
        tokenizer: what the split's tokens were made with.
        seed: of the order.
        group: micro-batches a step, all of one shape (gradient accumulation).
    """
    return _batches(split, config, tokenizer, config.num_buckets, seed=seed, group=group)


def held_out_batches(split: Split, config: DataConfig, tokenizer: Tokenizer) -> Batches:
    """Batches whose first epoch has every example once, always in the same way."""
    shapes = min(config.num_buckets, _HELD_OUT_SHAPES)
    return _batches(split, config, tokenizer, shapes, shuffle=False)


def _batches(
    split: Split, config: DataConfig, tokenizer: Tokenizer, shapes: int, **order: Any
) -> Batches:
    """Args:
    shapes: padded shapes of what is bucketed by length.
    order: seed, shuffle and group.
    """
    order["batch_tokens"] = config.batch_tokens
    if isinstance(split, TextSplit):
        if config.batch_size:
            order["batch_tokens"] = config.batch_size * config.block_length
        if config.objective == "span_corruption":
            noise = config.noise_density, config.mean_span
            return SpanBatches(split.store, tokenizer, config.block_length, *noise, **order)
        return BlockBatches(split.store, tokenizer, config.block_length, **order)
    order |= {"num_buckets": shapes, "batch_size": config.batch_size}
    if isinstance(split, SentenceSplit):
        masker = Masker(tokenizer, config.noise_density, config.whole_words)
        form = config.block_length, masker, config.next_sentence
        return MaskedBatches(split, tokenizer, *form, **order)
    if isinstance(split, ClassSplit):
        return ClassBatches(split, tokenizer, config.max_length, **order)
    if isinstance(split, TokenSplit):
        return TokenBatches(split, tokenizer, **order)
    if isinstance(split, ChoiceSplit):
        return ChoiceBatches(split, tokenizer, config.max_length, **order)
    if isinstance(split, SpanSplit):
        return WindowBatches(split, tokenizer, config.max_length, **order)
    if config.objective == "answers":
        return AnswerBatches(split.pairs, tokenizer, split.sources, **order)
    plan = BatchPlan(split.pairs.source_lengths, split.pairs.target_lengths, **order)
    return PairBatches(split.pairs, plan, tokenizer.special, split.sources)
