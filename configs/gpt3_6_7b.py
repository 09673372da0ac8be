"""GPT-3 6.7B (Brown et al. 2020, table 2.1 and appendix B) on texts of one's own.

python train.py --config configs/gpt3_6_7b.py --workdir runs/gpt3 --data.train *.txt

6,658,596,864 parameters with its vocabulary, which is GPT-2's, filled up to 50,304 ids so that it
can be shared. Two million tokens a step for 300 billion in all; the rate rises over 375 million
and falls to a tenth until 260 billion.

Plan (--plan v5e:16x16): 256 chips, data 4 x fsdp 64, 6.40 GiB of each chip's 15.75.
"""

import dataclasses
from pathlib import Path

from transformer.config import MeshConfig, load
from transformer.models.presets import PRESETS

base = load(Path(__file__).with_name("gpt2_medium.py"))
config = dataclasses.replace(
    base,
    model=dataclasses.replace(
        PRESETS["gpt3-6.7b"], vocab_size=50_304, dtype="bfloat16", scan_layers=True, remat="full"
    ),
    data=dataclasses.replace(base.data, block_length=2048, batch_tokens=1024 * 2048),
    optimizer=dataclasses.replace(base.optimizer, learning_rate=1.2e-4, warmup_steps=179),
    train=dataclasses.replace(base.train, steps=143_000),
    mesh=MeshConfig(fsdp=64),
)
