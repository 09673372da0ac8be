"""BERT base as a language model (Devlin et al. 2019, section 5.1: "LTR & No NSP").

python train.py --config configs/bert_base_left_to_right.py --workdir runs/ltr --data.train *.txt

The network, the data and the steps of configs/bert_base.py; but each token sees those before it
alone and the next one is what is learnt, in rows that documents fill one after the other.
"""

import dataclasses
from pathlib import Path

from transformer.config import load

base = load(Path(__file__).with_name("bert_base.py"))
config = dataclasses.replace(
    base,
    model=dataclasses.replace(base.model, architecture="decoder", segment_types=0),
    data=dataclasses.replace(base.data, objective="language_model"),
)
