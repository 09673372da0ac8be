"""Speed of a training step on real data, beside another program.

python -m benchmarks.train_step --train train.en.gz train.de.gz \
    --peer "python torch_mt.py speed --fast --attn manual --steps 10"
python -m benchmarks.train_step --config configs/gpt_char.py --train input.txt --steps 200 \
    --peer "python nanogpt_speed.py --windows 3" --unit tok/s
python -m benchmarks.train_step --config benchmarks/bert_step.py --train train.tsv --steps 10 \
    --peer "python encoder_peers.py --only bert" --unit ex/s

Counts what the loss is a mean of: real target tokens, end symbols included, padding not (a
batch's waste is ours to bear), or examples.
"""

import dataclasses
import resource
import time
from itertools import islice
from pathlib import Path

import jax
import tyro

from benchmarks.peer import alternate
from transformer import config as configuration
from transformer.data.batches import Batch, prefetch
from transformer.data.objectives import training_batches
from transformer.data.pipeline import prepare
from transformer.host_memory import keep_freed_memory
from transformer.models.build import build_model
from transformer.training.fill import with_data
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.state import init_state
from transformer.training.step import make_train_step

CONFIG = Path(__file__).parents[1] / "configs" / "multi30k_tiny.py"


def main(
    train: tuple[str, ...],
    config: Path = CONFIG,
    peer: str | None = None,
    unit: str = "tgt tok/s",
    steps: int = 30,
    rounds: int = 3,
    trace: str | None = None,
) -> None:
    """Measures training steps.

    Args:
        train: files of the configuration's kind: line-parallel pairs, or texts.
        config: a configuration; Transformer-tiny with the biases in attention of the peer's.
        peer: a command to compare with, see `benchmarks.peer`.
        unit: what the peer writes after its speed.
        steps: steps a round.
        rounds: rounds, in turn with the peer.
        trace: write a profile of three steps to this directory.
    """
    keep_freed_memory()
    settings = configuration.load(config)
    data = dataclasses.replace(settings.data, train=train)
    prepared = prepare(data, splits=("train",))
    assert prepared.train is not None
    shape = with_data(settings, prepared.tokenizer, prepared.train).model
    if config == CONFIG:
        shape = dataclasses.replace(shape, attention_bias=True)
    all_batches = training_batches(prepared.train, data, prepared.tokenizer, seed=0)
    epoch = range(all_batches.steps_per_epoch)
    shapes = {_shape(all_batches.batch(number)) for number in epoch}
    model = build_model(shape)
    schedule = make_schedule(settings.optimizer, shape.model_dim, settings.train.steps)
    optimizer = make_optimizer(settings.optimizer, schedule)
    step = make_train_step(model, optimizer, schedule, settings.train.label_smoothing, seed=0)
    state = init_state(model, optimizer, seed=0)
    batches = prefetch(all_batches, 0, 10**9)
    began, seen = time.perf_counter(), set()
    for _, batch in batches:
        state, metrics = step(state, batch)
        seen.add(_shape(batch))
        if len(seen) == len(shapes):
            break
    jax.block_until_ready(state)
    print(
        f"{len(shapes)} shapes compiled in {time.perf_counter() - began:.0f} s; "
        f"{all_batches.summary}"
    )

    counting = "examples" if shape.head == "classification" else "target tokens"

    def measure() -> float:
        nonlocal state, metrics
        counts, began = [], time.perf_counter()
        for _, batch in islice(batches, steps):
            state, metrics = step(state, batch)
            counts.append(metrics.sums.weight)
        jax.block_until_ready(state)
        seconds = time.perf_counter() - began
        counted = float(sum(counts))
        print(f"{seconds / steps * 1e3:.1f} ms a step, {counted / steps:.0f} {counting} in it")
        return counted / seconds

    print(alternate(measure, peer, unit, rounds))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if trace is not None:
        with jax.profiler.trace(trace):
            for _, batch in islice(batches, 3):
                state, metrics = step(state, batch)
            jax.block_until_ready(state)


def _shape(batch: Batch) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape for array in batch.values())


if __name__ == "__main__":
    tyro.cli(main)
