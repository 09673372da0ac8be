"""GPT-2 large: 774,030,080 parameters with the published vocabulary of 50,257.

python train.py --config configs/gpt2_large.py --workdir runs/large --data.train *.txt

All else as in configs/gpt2_medium.py.

Plan (--plan v5e:4x4): 16 chips, data 2 x fsdp 8, 7.01 GiB of each chip's 15.75.
"""

import dataclasses
from pathlib import Path

from transformer.config import load

base = load(Path(__file__).with_name("gpt2_medium.py"))
config = dataclasses.replace(
    base,
    model=dataclasses.replace(base.model, num_layers=36, model_dim=1280, ff_dim=5120, num_heads=20),
    optimizer=dataclasses.replace(base.optimizer, learning_rate=2.5e-4),
)
