"""GPT-2 small on texts of one's own.

python train.py --config configs/gpt2_small.py --workdir runs/gpt2 --data.train *.txt

124,439,808 parameters with the published vocabulary of 50,257. Here 50,257 subwords are learnt from
the text; with the published ones it is
    --data.tokenizer file --data.tokenizer-file tokenizer.json

The shape is that of Radford et al. 2019. How it is trained, which they do not say, is that of the
equally large GPT-3 (Brown et al. 2020, table 2.1 and appendix B): half a million tokens a step,
here 64 micro-batches of 8 rows.

Plan (--plan v5e:2x2 --model.scan-layers): 4 chips, data 4, 7.94 GiB of each chip's 15.75.
"""

import dataclasses

from transformer.config import Config, DataConfig, OptimizerConfig, TrainConfig
from transformer.models.presets import PRESETS

config = Config(
    # As many ids as the tokenizer has.
    model=dataclasses.replace(PRESETS["gpt2"], vocab_size=None),
    data=DataConfig(
        objective="language_model",
        dataset="files",
        train=("train.txt",),
        validation_fraction=0.005,
        tokenizer="sentencepiece",
        vocab_size=50_257,
        block_length=1024,
        batch_tokens=8 * 1024,
    ),
    optimizer=OptimizerConfig(
        schedule="cosine",
        learning_rate=6e-4,
        warmup_steps=715,
        final_factor=0.1,
        beta1=0.9,
        beta2=0.95,
        epsilon=1e-8,
        clip_norm=1.0,
        weight_decay=0.1,
    ),
    train=TrainConfig(steps=100_000, accumulate=64, label_smoothing=0.0),
)
