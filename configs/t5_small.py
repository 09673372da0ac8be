"""T5 small, version 1.0 (Raffel et al. 2020, section 3.7), on span corruption (section 3.1.4).

python train.py --config configs/t5_small.py --workdir runs/t5_small

60,506,624 parameters with the published vocabulary (32,000 pieces, 100 sentinels, padded to
32,128); here the text is Python's documentation, which supports 8,000 pieces. For other text:
--data.train a.txt b.txt --data.vocab-size 32000. Sources of 512 tokens and 128 rows a step as
published, in micro-batches of 16.

Published is Adafactor, which saves the memory of Adam's second moment; that is not needed at this
size, and a constant rate takes the place of 1 / sqrt(step). A test run on a CPU:
    --model.num-layers 2 --model.model-dim 128 --model.ff-dim 512 --model.num-heads 2
    --train.accumulate 1 --data.block-length 128 --data.batch-tokens 2048 --train.steps 300
"""

import dataclasses

from transformer.config import Config, DataConfig, OptimizerConfig, TrainConfig
from transformer.models.presets import PRESETS

config = Config(
    # As many ids as the tokenizer has.
    model=dataclasses.replace(PRESETS["t5-small"], vocab_size=None),
    data=DataConfig(
        objective="span_corruption",
        tokenizer="sentencepiece",
        sentencepiece_type="unigram",
        vocab_size=8000,
        block_length=512,
        batch_tokens=16 * 512,
    ),
    optimizer=OptimizerConfig(
        schedule="constant",
        learning_rate=1e-3,
        warmup_steps=1000,
        beta2=0.999,
        epsilon=1e-8,
        clip_norm=1.0,
    ),
    train=TrainConfig(steps=20_000, accumulate=8, label_smoothing=0.0),
)
