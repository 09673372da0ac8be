"""Transformer base, English to German, as published (paper table 3, section 5).

python train.py --config configs/transformer_base.py --workdir runs/base

63,045,632 parameters with the published vocabulary of 37,000 (the paper rounds to 65 million).
The published batch is about 25,000 tokens a side: here micro-batches of 4,096, six a step.

Plan (--plan v5e:2x4): 8 chips, data 8, 1.36 GiB of each chip's 15.75.
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(num_layers=6, model_dim=512, ff_dim=2048, num_heads=8, dropout=0.1),
    data=DataConfig(
        dataset="tfds:wmt14_translate/de-en",
        source_language="en",
        tokenizer="sentencepiece",
        vocab_size=37_000,
        batch_tokens=4096,
    ),
    optimizer=OptimizerConfig(schedule="noam", warmup_steps=4000),
    train=TrainConfig(steps=100_000, accumulate=6, keep=5),
)
