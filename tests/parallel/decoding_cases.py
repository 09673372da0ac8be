"""What is decoded and evaluated on one device and on eight."""

from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import numpy as np

from tests.parallel.cases import MODELS, make_batch, make_mesh_of
from transformer.config import DecodeConfig, GenerateConfig
from transformer.data.symbols import Symbols
from transformer.decoding.generate import Generator
from transformer.decoding.prefix import read
from transformer.decoding.scoring import Scorer
from transformer.decoding.translate import Translator
from transformer.functional.partition import placing
from transformer.models.build import build_model, init_params
from transformer.training import heads
from transformer.training.answers import make_answer_step
from transformer.training.masked import make_masked_step

TOKENIZER = Symbols(list("abcdefg"), "characters", "characters")
LINES = ["abc", "gfedcbaabcd", "e", "cabbage", "dad", "faced", "bead", "g"]
SIDES = (2, 2, 2)


def both(name: str, function: Any, **settings: Any) -> list[Any]:
    """What a function of model and parameters gives on one device, and on a mesh."""
    model = build_model(replace(MODELS[name], dropout=0.0, **settings))
    # Large weights, so that outputs differ.
    params = jax.tree.map(lambda x: 2.5 * x, init_params(model, jax.random.key(5)))
    sharding = make_mesh_of(SIDES)
    one = function(model, params)
    with placing(sharding.placing):
        return [one, function(model, jax.device_put(params, sharding.parameters(model)))]


def generated(model: Any, params: Any) -> Any:
    config = GenerateConfig(max_new_tokens=9)
    outputs = Generator(model, params, TOKENIZER, config).generate(LINES)
    return [[sample.ids for sample in samples] for samples in outputs]


def beams(model: Any, params: Any) -> Any:
    config = GenerateConfig(beam_size=3, max_new_tokens=5)
    outputs = Generator(model, params, TOKENIZER, config).generate(LINES[:4])
    return [[sample.ids for sample in samples] for samples in outputs]


def translated(model: Any, params: Any) -> Any:
    translator = Translator(model, params, TOKENIZER, DecodeConfig(beam_size=2, extra_length=5))
    return [best[0].ids for best in translator.translate(LINES)]


def scored(model: Any, params: Any) -> Any:
    pairs = [(line, line[::-1]) for line in LINES]
    return [score.total for score in Scorer(model, params, TOKENIZER).score(pairs)]


def cache_of(model: Any, params: Any) -> Any:
    """The part of a cache of 8 rows, 2 heads and 16 places that the first device has."""
    cache = read(model, params, [[5, 6, 7]] * 8).cache.layers[0]
    return [list(x.addressable_shards[0].data.shape) for x in cache]


def evaluated(model: Any, params: Any) -> Any:
    """Of five rows: what a step of evaluation finds."""
    batch = make_batch(model.config)
    if model.config.head == "classification":
        found, original = [], heads.head_outputs

        def inspected(model: Any, params: Any, arrays: Any, hidden: Any, mode: Any) -> Any:
            place = found.append
            jax.debug.inspect_array_sharding(hidden, callback=lambda x: place(x.num_devices))
            jax.debug.inspect_array_sharding(
                hidden, callback=lambda x: place(x.shard_shape(hidden.shape)[0])
            )
            return original(model, params, arrays, hidden, mode)

        with mock.patch.object(heads, "head_outputs", inspected):
            outputs = heads.make_predict(model)(params, batch)
        return [found, outputs.tolist()]
    if model.config.architecture == "encoder":
        sums = make_masked_step(model, 0.1)(params, batch)
        return np.array(jax.tree.leaves(sums)).tolist()
    sums, right = make_answer_step(model, TOKENIZER, 0.1)(params, batch)
    return [*map(float, sums), len(right), int(right.sum())]


def everything() -> dict[str, list[Any]]:
    """Name -> what one device and what eight give."""
    classes: dict[str, Any] = {"head": "classification", "num_classes": 3, "next_sentence": False}
    return {
        "generated": both("gpt2", generated),
        "beams": both("llama", beams),
        "translated": both("transformer", translated),
        "scored": both("gpt2", scored),
        "cache": both("llama", cache_of),
        "classes": both("bert", evaluated, **classes),
        "masked": both("bert", evaluated),
        "answers": both("gpt2", evaluated),
    }
