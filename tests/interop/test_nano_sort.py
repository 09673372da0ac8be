"""A trained minGPT of GPT-2's shape that sorts letters: its published activations.

The files (llm-viz, MIT) are not part of the repository: the directory that holds them is named
by NANO_SORT, and without it the test is skipped.
"""

import base64
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.interop.gpt import GPT2
from transformer.interop.settings import Settings
from transformer.models.decoder import Decoder
from transformer.modules.block import Block

FOLDER = os.environ.get("NANO_SORT")
TOLERANCE = 1e-5


def read(name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The settings and the tensors of a file."""
    values = json.loads((Path(FOLDER or "") / f"gpt-nano-sort-{name}.json").read_text())
    tensors = {
        key: np.frombuffer(base64.b64decode(value["data"]), "<f4").reshape(value["shape"])
        for key, value in values.items()
        if isinstance(value, dict) and "data" in value
    }
    return values["config"], tensors


@pytest.mark.skipif(FOLDER is None, reason="NANO_SORT names no directory")
def test_activations_of_a_trained_model():
    settings, tensors = read("model")
    # minGPT's linear layers keep [out, in], GPT-2's [in, out].
    theirs = {k: v.T if ".c_" in k and k.endswith("weight") else v for k, v in tensors.items()}
    settings |= {"n_positions": settings["block_size"], "tie_word_embeddings": False}
    family = GPT2()
    config = family.read(Settings(settings), theirs)
    family.check(config, {name: array.shape for name, array in theirs.items()}, "nano")
    params = jax.tree.map(jnp.asarray, family.from_theirs(config, theirs.__getitem__))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 85_728
    _, expected = read("t0-partials")
    result: Any = Decoder(config).apply(
        {"params": params},
        jnp.asarray(expected["idx"], jnp.int32),
        capture_intermediates=lambda module, _: isinstance(module, Block),
        mutable=["intermediates"],
    )
    logits, state = result
    layers = state["intermediates"]["decoder"]
    for i in range(3):
        found = layers[f"layer_{i}"]["__call__"][0][0]
        np.testing.assert_allclose(found, expected[f"block{i}"], atol=TOLERANCE)
    weights = layers["layer_0"]["self_attention"]["attention_weights"][0]
    np.testing.assert_allclose(weights, expected["attSm"], atol=TOLERANCE)
    np.testing.assert_allclose(logits, expected["lm_head"], atol=TOLERANCE)
