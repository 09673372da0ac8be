"""Transformer big, English to German, as published (paper table 3, section 5).

python train.py --config configs/transformer_big.py --workdir runs/big

214,171,648 parameters with the published vocabulary of 37,000 (the paper rounds to 213 million).
The published batch is about 25,000 tokens a side: here micro-batches of 4,096, six a step.

Plan (--plan v5e:2x4 --model.scan-layers): 8 chips, data 8, 5.33 GiB of each chip's 15.75.
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(num_layers=6, model_dim=1024, ff_dim=4096, num_heads=16, dropout=0.3),
    data=DataConfig(
        dataset="tfds:wmt14_translate/de-en",
        source_language="en",
        tokenizer="sentencepiece",
        vocab_size=37_000,
        batch_tokens=4096,
    ),
    optimizer=OptimizerConfig(schedule="noam", warmup_steps=4000),
    train=TrainConfig(steps=300_000, accumulate=6, keep=20),
)
