"""T5 3B, version 1.0 (Raffel et al. 2020, section 3.7), on span corruption (section 3.1.4).

python train.py --config configs/t5_3b.py --workdir runs/t5_3b --data.train a.txt b.txt

2,851,598,336 parameters with the published vocabulary (32,000 pieces, 100 sentinels, padded to
32,128). 128 rows of 512 tokens a step for 2^19 steps, as published (section 3.1.2), but with Adam
at a constant rate, as in configs/t5_small.py.

Plan (--plan v5e:4x4): 16 chips, fsdp 16, 4.53 GiB of each chip's 15.75.
"""

import dataclasses
from pathlib import Path

from transformer.config import MeshConfig, load
from transformer.models.presets import PRESETS

base = load(Path(__file__).with_name("t5_small.py"))
config = dataclasses.replace(
    base,
    model=dataclasses.replace(PRESETS["t5-3b"], dtype="bfloat16", scan_layers=True, remat="full"),
    data=dataclasses.replace(
        base.data,
        dataset="files",
        train=("train.txt",),
        vocab_size=32_000,
        batch_tokens=128 * 512,
    ),
    train=dataclasses.replace(base.train, steps=524_288, accumulate=1),
    mesh=MeshConfig(fsdp=16),
)
