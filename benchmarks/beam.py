"""Speed of beam search on real sentences, beside another program.

python -m benchmarks.beam --checkpoint runs/multi30k --source test_2016_flickr.en.gz \
    --peer "python torch_mt.py test --ckpt best"

Counts sentences, from text to text. Both programs should translate about as well: how long the
outputs are decides how long it takes.
"""

import dataclasses
import time

import tyro

from benchmarks.peer import alternate
from transformer.data.sources import read_lines
from transformer.data.tokenizer import Tokenizer
from transformer.decoding.translate import Translator
from transformer.host_memory import keep_freed_memory
from transformer.models.seq2seq import Seq2Seq
from transformer.training.checkpoint import load_for_inference


def main(
    checkpoint: str,
    source: str,
    peer: str | None = None,
    beam_size: int = 5,
    batch_size: int = 128,
    early_stopping: bool = False,
    rounds: int = 3,
) -> None:
    """Measures beam search.

    Args:
        checkpoint: the workdir of a training run.
        source: a file of sentences.
        peer: a command to compare with, see `benchmarks.peer`.
        beam_size: hypotheses a step.
        batch_size: sentences decoded together.
        early_stopping: the peer's rule (stop at beam_size ended hypotheses), not the exact one.
        rounds: how often, in turn with the peer.
    """
    keep_freed_memory()
    loaded = load_for_inference(checkpoint)
    decode = dataclasses.replace(
        loaded.config.decode,
        beam_size=beam_size,
        batch_size=batch_size,
        early_stopping=early_stopping,
        length_penalty=1.0,
    )
    tokenizer = Tokenizer.from_json(loaded.tokenizer)
    translator = Translator(Seq2Seq(loaded.config.model), loaded.params, tokenizer, decode)
    lines = read_lines(source, "--source")
    began = time.perf_counter()
    translator.translate(lines)
    print(f"first pass, programs compiled: {time.perf_counter() - began:.1f} s")

    def measure() -> float:
        began = time.perf_counter()
        found = translator.translate(lines)
        seconds = time.perf_counter() - began
        tokens = sum(len(best[0].ids) + 1 for best in found)
        print(f"{seconds:.2f} s, {tokens / seconds:,.0f} output tokens/s")
        return len(lines) / seconds

    print(alternate(measure, peer, "sent/s", rounds))


if __name__ == "__main__":
    tyro.cli(main)
