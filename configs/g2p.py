"""Spelling to phonemes, the full recipe.

python train.py --config configs/g2p.py --workdir runs/g2p

About 75 minutes of two CPU cores, added up. On the 12,000 held-out words: phoneme error rate
6.81 %, word error rate 28.18 %. Published on the CMU Pronouncing Dictionary, with other splits:
word error rate 20.6 % (Transformer of tensor2tensor), phoneme error rate 5.2 % (Yolchuyeva et
al. 2019).
"""

from transformer.config import (
    Config,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
)

config = Config(
    model=ModelConfig(
        num_layers=3, model_dim=256, ff_dim=1024, num_heads=4, norm_placement="pre", dropout=0.1
    ),
    data=DataConfig(dataset="cmudict", batch_tokens=4096, num_buckets=6),
    optimizer=OptimizerConfig(schedule="linear", learning_rate=2e-3, warmup_steps=400),
    train=TrainConfig(steps=3600, eval_every=900, save_every=150, keep=5),
    decode=DecodeConfig(batch_size=128),
)
