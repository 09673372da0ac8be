"""GPT-3 175B (Brown et al. 2020, table 2.1 and appendix B) on texts of one's own.

python train.py --config configs/gpt3_175b.py --workdir runs/gpt3 --data.train *.txt

174,604,836,864 parameters, all else as in configs/gpt3_6_7b.py, but for 3.2 million tokens a step.

Plan (--plan v5p:8x8x16): 1,024 chips, fsdp 512 x tensor 2, 21.20 GiB of each chip's 95.73.
"""

import dataclasses
from pathlib import Path

from transformer.config import MeshConfig, load

base = load(Path(__file__).with_name("gpt3_6_7b.py"))
config = dataclasses.replace(
    base,
    model=dataclasses.replace(
        base.model, num_layers=96, model_dim=12_288, ff_dim=49_152, num_heads=96
    ),
    data=dataclasses.replace(base.data, batch_tokens=1536 * 2048),
    optimizer=dataclasses.replace(base.optimizer, learning_rate=0.6e-4, warmup_steps=119),
    train=dataclasses.replace(base.train, steps=95_000),
    mesh=MeshConfig(fsdp=512, tensor=2),
)
