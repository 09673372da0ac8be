"""Speed of sentence vectors from texts of mixed lengths, tokenising included.

python -m benchmarks.embed --checkpoint runs/minilm --texts sentences.txt \
    --peer "python embed_peer.py sentences.txt"

Ours sorts by length and pads to few shapes (`transformer.decoding.embeddings`); the usual loop
takes batches of 32 in the order of the texts, each padded to its longest.
"""

import resource
import time

import tyro

from benchmarks.peer import alternate
from transformer.data.sources import read_lines
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.embeddings import Embedder
from transformer.host_memory import keep_freed_memory
from transformer.models.encoder import Encoder
from transformer.training.checkpoint import load_for_inference


def main(
    checkpoint: str,
    texts: str,
    peer: str | None = None,
    unit: str = "sentences/s",
    rounds: int = 3,
    batch_tokens: int | None = None,
) -> None:
    """Measures sentence vectors.

    Args:
        checkpoint: the workdir of a training run, or an imported encoder.
        texts: a file of sentences.
        peer: a command to compare with, see `benchmarks.peer`.
        unit: what the peer writes after its speed.
        rounds: how often, in turn with the peer.
        batch_tokens: padded tokens computed at once; None: what suits the device.
    """
    keep_freed_memory()
    loaded = load_for_inference(checkpoint)
    tokenizer = Tokenizer.from_json(loaded.tokenizer)
    model = Encoder(loaded.config.model)
    embedder = Embedder(model, loaded.params, tokenizer, batch_tokens=batch_tokens)
    lines = read_lines(texts, "--texts")
    began = time.perf_counter()
    embedder(lines)
    print(f"first pass, programs compiled: {time.perf_counter() - began:.1f} s")

    def measure() -> float:
        began = time.perf_counter()
        embedder(lines)
        seconds = time.perf_counter() - began
        print(f"{seconds:.2f} s for {len(lines):,} sentences")
        return len(lines) / seconds

    print(alternate(measure, peer, unit, rounds))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    tyro.cli(main)
