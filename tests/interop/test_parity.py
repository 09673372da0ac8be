"""Every family against Hugging Face's library: forward, cached decoding and every gradient.

The models are tiny, random and of prime shapes (tests/golden/make_hf.py).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.golden import assert_trees_close
from tests.interop.goldens import CASES, Published, published
from transformer.models.build import build_model
from transformer.models.cache import DecoderCache
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq

PROMPT = 4
LOGITS, GRADIENTS = 1e-5, 5e-5
"""Differences allowed in float32; gradients, of up to a hundred, sum more terms."""


def inputs_of(model: Published) -> dict[str, Any]:
    return {name: jnp.asarray(array) for name, array in model.arrays["input"].items()}


def real(model: Published) -> np.ndarray:
    """Where an output means something: not at padding, which is on the left."""
    return model.arrays["input"].get("segments", np.ones_like(model.arrays["input"]["inputs"]))


@pytest.mark.parametrize(
    ("case", "attention"),
    [
        *((case, "plain") for case in CASES),
        *((case, "chunked") for case in ("llama", "t5_1.1", "marian")),
    ],
)
def test_logits_and_gradients(case, attention):
    model = published(case)
    network = build_model(dataclasses.replace(model.config, attention=attention))
    inputs, cotangent = inputs_of(model), model.arrays["cotangent"]["logits"]

    def loss(params):
        logits = jnp.asarray(network.apply({"params": params}, **inputs))
        return jnp.vdot(logits, cotangent), logits

    gradients, logits = jax.jit(jax.grad(loss, has_aux=True))(model.ours(model.tensors))
    counts = real(model)[..., None]
    assert_trees_close(logits * counts, model.arrays["output"]["logits"] * counts, LOGITS)
    assert_trees_close(gradients, model.ours(model.gradients), GRADIENTS)


@pytest.mark.parametrize("case", CASES)
def test_cached_decoding(case):
    """A prompt at once, then token by token: as theirs with a cache, and as the full forward."""
    model = published(case)
    network, params = build_model(model.config), {"params": model.ours(model.tensors)}
    inputs = inputs_of(model)
    if isinstance(network, Decoder):
        logits = decoder_logits(network, params, **inputs)
    else:
        assert isinstance(network, Seq2Seq)
        logits = seq2seq_logits(network, params, **inputs)
    counts = real(model)[..., None]
    # OpenAI GPT has no cache there.
    expected = model.arrays["output"].get("cached", model.arrays["output"]["logits"])
    assert_trees_close(logits * counts, expected * counts, LOGITS)


def decoder_logits(network: Decoder, params, inputs, positions, segments):
    @jax.jit
    def step(cache, index, tokens, positions, segments):
        hidden, cache = network.apply(
            params, tokens, positions, cache, index, segments, method="decode"
        )
        return network.apply(params, hidden, method="logits"), cache

    cache = DecoderCache.empty(network.config, len(inputs), inputs.shape[1] + 3)
    outputs = []
    for start, stop in chunks(inputs.shape[1]):
        parts = (x[:, start:stop] for x in (inputs, positions, segments))
        logits, cache = step(cache, start, *parts)
        outputs.append(logits)
    return jnp.concatenate(outputs, axis=1)


def seq2seq_logits(network: Seq2Seq, params, source, inputs):
    capacity = inputs.shape[1] + 3
    cache = jax.jit(lambda: network.apply(params, source, capacity, method="start"))()

    @jax.jit
    def step(cache, index, tokens):
        positions = index + jnp.arange(tokens.shape[1])
        mask = jnp.arange(capacity) <= positions[:, None]
        mask = jnp.broadcast_to(mask, (len(tokens), 1, *mask.shape))
        positions = jnp.broadcast_to(positions, tokens.shape)
        return network.apply(params, tokens, positions, cache, index, mask, method="decode")

    outputs = []
    for start, stop in chunks(inputs.shape[1]):
        logits, cache = step(cache, start, inputs[:, start:stop])
        outputs.append(logits)
    return jnp.concatenate(outputs, axis=1)


def chunks(length: int) -> list[tuple[int, int]]:
    return [(0, PROMPT), *((t, t + 1) for t in range(PROMPT, length))]
