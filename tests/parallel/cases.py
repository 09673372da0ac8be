"""What is tried on one device and on eight."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from tests.helpers import normal
from transformer.config import (
    Config,
    DataConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    TrainConfig,
)
from transformer.functional import Mask, attend, splash_attention
from transformer.functional.partition import placing
from transformer.models.build import build_model
from transformer.parallel.hlo import read_program
from transformer.parallel.mesh import make_mesh
from transformer.parallel.rules import RULES, MeshAxes
from transformer.parallel.sharding import Sharding
from transformer.training.loop import train
from transformer.training.losses import loss_sums
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.state import init_state, state_places, state_shapes
from transformer.training.step import make_train_step

V, R, T = 64, 5, 8
SIZES: dict[str, Any] = {
    "num_layers": 1,
    "model_dim": 16,
    "ff_dim": 32,
    "num_heads": 4,
    "vocab_size": V,
    "dropout": 0.2,
    "attention_dropout": 0.1,
    "ff_dropout": 0.1,
}
GPT2: dict[str, Any] = {
    "positions": "learned",
    "max_positions": 32,
    "activation": "gelu_tanh",
    "attention_bias": True,
    "norm_placement": "pre",
    "embedding_scaling": "none",
}
LLAMA: dict[str, Any] = {
    "positions": "rotary",
    "activation": "swiglu",
    "norm": "rms",
    "norm_placement": "pre",
    "ff_bias": False,
    "num_kv_heads": 2,
    "tie_embeddings": False,
    "embedding_scaling": "none",
}
T5: dict[str, Any] = {
    "positions": "relative",
    "norm": "rms",
    "norm_placement": "pre",
    "ff_bias": False,
    "scale_attention": False,
    "embedding_scaling": "output",
}
BERT: dict[str, Any] = {
    "positions": "learned",
    "max_positions": 32,
    "activation": "gelu",
    "attention_bias": True,
    "output_bias": True,
    "segment_types": 2,
    "embedding_norm": True,
    "embedding_scaling": "none",
    "next_sentence": True,
}
MODELS = {
    "transformer": ModelConfig("encoder_decoder", **SIZES),
    "gpt2": ModelConfig("decoder", **SIZES, **GPT2),
    "llama": ModelConfig("decoder", **SIZES, **LLAMA),
    "t5": ModelConfig("encoder_decoder", **SIZES, **T5),
    "bert": ModelConfig("encoder", **SIZES, **BERT),
}
SCANNED: dict[str, Any] = {"num_layers": 6, "scan_layers": True, "remat": "full"}
# With windows a turn of the scan is two layers.
GPT3_SCANNED = replace(MODELS["gpt2"], local_window=3, **SCANNED)
T5_SCANNED = replace(MODELS["t5"], **SCANNED)
# Every family on all sides of a mesh at once, one of them on each side alone.
CASES: list[tuple[str, ModelConfig, tuple[int, int, int]]]
CASES = [(name, config, (2, 2, 2)) for name, config in MODELS.items()]
CASES += [("gpt2", MODELS["gpt2"], sides) for sides in ((8, 1, 1), (1, 8, 1), (1, 1, 4))]
CASES += [("gpt3 scanned", GPT3_SCANNED, (2, 2, 2))]


def make_batch(config: ModelConfig) -> dict[str, np.ndarray]:
    """Five rows, which no mesh shares evenly; the third one is padded."""
    random = np.random.default_rng(0)
    inputs = random.integers(1, V, (R, T), dtype=np.int32)
    inputs[2, 5:] = 0
    weights = (random.random((R, T)) > 0.3).astype(np.float32)
    batch = {"inputs": inputs, "weights": weights}
    batch["targets"] = random.integers(0, V, (R, T), dtype=np.int32)
    if config.architecture == "encoder_decoder":
        batch["source"] = random.integers(1, V, (R, 6), dtype=np.int32)
    if config.architecture == "encoder":
        batch["places"] = random.integers(0, T, (R, 3), dtype=np.int32)
        batch |= {name: batch[name][:, :3] for name in ("targets", "weights")}
        batch["follows"] = random.integers(0, 2, R, dtype=np.int32)
        total = batch["weights"].sum()
        batch["follow_weights"] = np.full(R, total / R, np.float32)
        batch["token_types"] = (np.arange(T) > 3).astype(np.int32)[None].repeat(R, 0)
    return batch


def make_mesh_of(sides: tuple[int, int, int], rules: Mapping[str, MeshAxes] = RULES) -> Sharding:
    devices = jax.devices()[: int(np.prod(sides))]
    return Sharding(make_mesh(MeshConfig(*sides), devices), rules)


def compare(config: ModelConfig, sides: tuple[int, int, int]) -> dict[str, float]:
    """The largest differences to one device, with dropout."""
    sharding = make_mesh_of(sides)
    model, batch = build_model(config), make_batch(config)
    state = init_state(model, make_optimizer(OptimizerConfig(), lambda _: jax.numpy.ones(())), 1)

    def loss_and_gradient(places, params, batch):
        def loss(params):
            with placing(places):
                sums = loss_sums(model, params, batch, 0.1, jax.random.key(7))
            return sums.loss / sums.weight

        return jax.value_and_grad(loss)(params)

    compute = jax.jit(loss_and_gradient, static_argnums=0)
    one = compute(None, state.params, batch)
    placed = jax.device_put(state.params, sharding.parameters(model))
    many = compute(sharding.placing, placed, sharding.put(batch))
    differences = jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - b).max()), one, many)
    return {
        "loss": differences[0],
        "gradient": max(jax.tree.leaves(differences[1])),
        "largest gradient": max(float(np.abs(x).max()) for x in jax.tree.leaves(one[1])),
    }


def compare_kernel(sides: tuple[int, int, int]) -> float:
    """The largest difference of attention by a TPU's kernel, a part on each device, to plain."""
    operands: list[Any] = [normal(i, 4, 512, heads, 8) for i, heads in enumerate((4, 2, 2))]
    lengths = np.array([512, 200, 0, 300])
    segments = jax.numpy.where(np.arange(512) < lengths[:, None], 1 + np.arange(512) // 170, 0)
    mask = Mask.self_attention(segments, causal=True)
    means: Any = make_mesh_of(sides).placing
    kernel = partial(splash_attention.splash_attention, interpret=True)

    @partial(jax.jit, static_argnames="implementation")
    def run(*operands, implementation):
        def function(*operands):
            with mock.patch.object(splash_attention, "splash_attention", kernel), placing(means):
                return attend(*operands, mask=mask, implementation=implementation)

        output, pull = jax.vjp(function, *operands)
        return output, *pull(operands[0])

    means = means._replace(kernel="splash")
    results = [run(*operands, implementation=kind) for kind in ("auto", "plain")]
    return max(float(np.abs(a - b).max()) for a, b in zip(*results, strict=True))


def inspect_step() -> dict[str, Any]:
    """What the compiled step gathers, and whether it is given its state."""
    config, sharding = MODELS["gpt2"], make_mesh_of((1, 8, 1))
    model, settings = build_model(config), OptimizerConfig()
    schedule = make_schedule(settings, config.model_dim, 10)
    optimizer = make_optimizer(settings, schedule)
    places = state_places(model, optimizer, sharding)
    init = jax.jit(init_state, static_argnums=(0, 1, 2), out_shardings=places)
    state = init(model, optimizer, 0)
    sizes = [
        (sum(s.data.nbytes for s in x.addressable_shards[:1]), x.nbytes)
        for x in jax.tree.leaves(state.params)
        if x.ndim == 2
    ]
    step = make_train_step(model, optimizer, schedule, 0.1, 0, sharding=sharding)
    old = jax.tree.leaves(state)
    state, _ = step(state, make_batch(config))
    kept = [x.sharding for x in jax.tree.leaves(state)] == jax.tree.leaves(places)
    return {
        "given": all(x.is_deleted() for x in old),
        "stays": kept,
        "share": max(part / whole for part, whole in sizes),
    }


def largest_gathers() -> dict[str, int]:
    """The most numbers that any all-gather of a compiled step puts together."""
    whole_stacks = {**RULES, "layers": ("fsdp",), "embed": ()}
    return {
        "t5": _largest_gather(T5_SCANNED, make_mesh_of((1, 8, 1))),
        "gpt3": _largest_gather(GPT3_SCANNED, make_mesh_of((2, 2, 2))),
        "by layers": _largest_gather(GPT3_SCANNED, make_mesh_of((1, 2, 1), whole_stacks)),
    }


def _largest_gather(config: ModelConfig, sharding: Sharding) -> int:
    model, settings = build_model(config), OptimizerConfig()
    schedule = make_schedule(settings, config.model_dim, 10)
    optimizer = make_optimizer(settings, schedule)
    step = make_train_step(model, optimizer, schedule, 0.1, 0, sharding=sharding)
    state = state_shapes(model, optimizer, sharding)
    compiled = step.trace(state, make_batch(config)).lower().compile()
    collectives = read_program(compiled.as_text() or "").collectives
    return max(math.prod(c.shape) for c in collectives if c.kind == "all-gather")


def text_data(folder: Path) -> DataConfig:
    """Some lines of text, in batches of 11 rows, which no mesh divides."""
    text = folder / "text.txt"
    text.write_text("\n".join(f"the quick brown fox {i} and {i * i} dogs" for i in range(300)))
    return DataConfig(
        "language_model",
        train=(str(text),),
        documents="line",
        target_symbols="characters",
        block_length=32,
        batch_tokens=32 * 11,
        data_dir=str(folder / "cache"),
    )


def train_on(sides: tuple[int, int, int], folder: Path, steps: int) -> list[float]:
    config = Config(
        model=MODELS["gpt2"],
        data=text_data(folder),
        optimizer=OptimizerConfig("constant", learning_rate=1e-3, warmup_steps=2),
        train=TrainConfig(
            steps=steps, log_every=1, eval_every=4, accumulate=2, label_smoothing=0.0
        ),
        mesh=MeshConfig(*sides),
    )
    history = train(config, folder / "run").history
    return [metrics["loss"] for metrics in history]
