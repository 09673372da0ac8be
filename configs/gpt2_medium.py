"""GPT-2 medium: 354,823,168 parameters with the published vocabulary of 50,257.

python train.py --config configs/gpt2_medium.py --workdir runs/medium --data.train *.txt

All else as in configs/gpt2_small.py: trained as the equally large GPT-3 (Brown et al. 2020, table
2.1 and appendix B), which mentions no dropout: half a million tokens a step.

Plan (--plan v5e:4x4): 16 chips, data 2 x fsdp 8, 4.25 GiB of each chip's 15.75.
"""

import dataclasses
from pathlib import Path

from transformer.config import MeshConfig, load
from transformer.models.presets import PRESETS

base = load(Path(__file__).with_name("gpt2_small.py"))
config = dataclasses.replace(
    base,
    model=dataclasses.replace(
        PRESETS["gpt2-medium"],
        vocab_size=None,
        dropout=0.0,
        attention_dropout=0.0,
        dtype="bfloat16",
        scan_layers=True,
        remat="full",
    ),
    data=dataclasses.replace(base.data, batch_tokens=512 * 1024),
    optimizer=dataclasses.replace(base.optimizer, learning_rate=3e-4),
    train=dataclasses.replace(base.train, accumulate=1),
    mesh=MeshConfig(fsdp=8),
)
