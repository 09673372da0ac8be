"""BERT large (Devlin et al. 2019, section 3): 336,226,108 parameters with the published vocabulary.

python train.py --config configs/bert_large.py --workdir runs/large128 --data.train *.txt

All else as in configs/bert_base.py, the second command too (there with --data.batch-size 4
--train.accumulate 64).

Plan (--plan v5e:2x4 --model.scan-layers): 8 chips, data 8, 8.23 GiB of each chip's 15.75.
"""

import dataclasses
from pathlib import Path

from transformer.config import load

base = load(Path(__file__).with_name("bert_base.py"))
config = dataclasses.replace(
    base,
    model=dataclasses.replace(base.model, num_layers=24, model_dim=1024, ff_dim=4096, num_heads=16),
    data=dataclasses.replace(base.data, batch_size=16),
    train=dataclasses.replace(base.train, accumulate=16),
)
