"""BERT base without the next-sentence task (Devlin et al. 2019, section 5.1: "No NSP").

python train.py --config configs/bert_base_no_nsp.py --workdir runs/no_nsp --data.train *.txt

All else as in configs/bert_base.py. Rows are one text, as many whole sentences of a document as
fit: what RoBERTa found best (Liu et al. 2019, table 2: DOC-SENTENCES).
"""

import dataclasses
from pathlib import Path

from transformer.config import load

base = load(Path(__file__).with_name("bert_base.py"))
config = dataclasses.replace(base, data=dataclasses.replace(base.data, next_sentence=False))
