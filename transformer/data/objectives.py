"""What a model is taught: the batches that each objective makes of a split."""

from transformer.config import DataConfig
from transformer.data.batches import Batches
from transformer.data.pairs import PairBatches
from transformer.data.pipeline import Split
from transformer.data.plan import BatchPlan
from transformer.data.tokenizer import SpecialIds

# A held-out split is small: another padded shape costs more to compile than it saves.
_HELD_OUT_SHAPES = 2


def training_batches(
    split: Split, config: DataConfig, special: SpecialIds, seed: int, group: int = 1
) -> Batches:
    """Batches in an order of `seed`, another one each epoch.

    Args:
        split: the examples.
        config: the size of a batch.
        special: the tokenizer's special ids.
        seed: of the order.
        group: micro-batches a step, all of one shape (gradient accumulation).
    """
    plan = _plan(split, config, config.num_buckets, seed, shuffle=True, group=group)
    return PairBatches(split.pairs, plan, special, split.sources)


def held_out_batches(split: Split, config: DataConfig, special: SpecialIds) -> Batches:
    """Batches whose first epoch has every example once, always in the same way."""
    plan = _plan(split, config, min(config.num_buckets, _HELD_OUT_SHAPES), shuffle=False)
    return PairBatches(split.pairs, plan, special, split.sources)


def _plan(
    split: Split, config: DataConfig, shapes: int, seed: int = 0, *, shuffle: bool, group: int = 1
) -> BatchPlan:
    lengths = split.pairs.source_lengths, split.pairs.target_lengths
    return BatchPlan(*lengths, config.batch_tokens, shapes, seed, shuffle, group)
