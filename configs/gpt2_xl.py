"""GPT-2 XL: 1,557,611,200 parameters with the published vocabulary of 50,257.

python train.py --config configs/gpt2_xl.py --workdir runs/xl --data.train *.txt

All else as in configs/gpt2_medium.py, but for a million tokens a step.

Plan (--plan v5e:8x8): 64 chips, data 4 x fsdp 16, 5.74 GiB of each chip's 15.75.
"""

import dataclasses
from pathlib import Path

from transformer.config import MeshConfig, load

base = load(Path(__file__).with_name("gpt2_medium.py"))
config = dataclasses.replace(
    base,
    model=dataclasses.replace(base.model, num_layers=48, model_dim=1600, ff_dim=6400, num_heads=25),
    data=dataclasses.replace(base.data, batch_tokens=1024 * 1024),
    optimizer=dataclasses.replace(base.optimizer, learning_rate=2e-4),
    mesh=MeshConfig(fsdp=16),
)
