"""Our attention, layers and stacks against PyTorch's own, forward and gradient.

PyTorch's numbers are stored in tests/golden. Outputs and gradients are compared at 1e-5, relative
and absolute; at padded positions outputs mean nothing and are left out on both sides.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.golden import assert_trees_close, convert, load
from transformer.config import ModelConfig
from transformer.functional import Mask, attend
from transformer.functional.chunked_attention import chunked_attention
from transformer.modules.attention import Attention, KeysValues
from transformer.modules.block import Block
from transformer.modules.stack import Stack

ATTENTION = load("torch_attention")
LAYERS = load("torch_layers")
NUM_LAYERS = 2

implementations = pytest.mark.parametrize("implementation", ["plain", "chunked"])


def config(implementation, *, placement: Any = "post", bias=True):
    return ModelConfig(
        num_layers=NUM_LAYERS,
        model_dim=15,
        ff_dim=19,
        num_heads=3,
        vocab_size=None,
        norm_placement=placement,
        norm_epsilon=1e-5,
        attention_bias=bias,
        dropout=0.0,
        attention=implementation,
    )


def check(golden, forward, params, grad_params):
    """`forward(params, inputs)` and its gradients equal the golden ones where it counts."""
    cotangent = golden["cotangent"]["output"]

    def loss(params, inputs):
        output = forward(params, inputs)
        return jnp.vdot(output, cotangent), output

    gradients, output = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(
        params, golden["input"]
    )
    counts = cotangent != 0
    assert_trees_close(output * counts, golden["output"]["output"] * counts)
    assert_trees_close(gradients[0], grad_params)
    assert_trees_close(gradients[1], golden["grad_input"])


@pytest.mark.parametrize("case", ["core", "core_grouped"])
@pytest.mark.parametrize("implementation", ["plain", "chunked", "blocks of 3"])
def test_scaled_dot_product_attention(case, implementation):
    """A boolean mask, n != m, d_v != d_k, and grouped key/value heads."""
    golden = ATTENTION[case]
    mask = golden["mask"]["attend"]

    def forward(_, inputs):
        arrays = [inputs[name].transpose(0, 2, 1, 3) for name in ("query", "key", "value")]
        if implementation == "blocks of 3":
            scale = arrays[0].shape[-1] ** -0.5
            output = chunked_attention(*arrays, mask=jnp.asarray(mask), scale=scale, block=3)
        else:
            output = jnp.asarray(
                attend(*arrays, mask=jnp.asarray(mask), implementation=implementation)
            )
        return output.transpose(0, 2, 1, 3)

    check(golden, forward, {}, {})


@pytest.mark.parametrize(
    "case", ["self", "self_causal", "self_no_bias", "cross", "cross_width", "cross_widths"]
)
@implementations
def test_multihead_attention(case, implementation):
    """`nn.MultiheadAttention`: padding and causal masks, other lengths, other widths."""
    golden = ATTENTION[case]
    module = Attention(config(implementation, bias=case != "self_no_bias"))
    length = golden["input"]["query"].shape[1]
    valid = golden["mask"].get("key_valid")
    if "key" in golden["input"]:
        mask = Mask.cross_attention(jnp.asarray(valid))
    else:
        segments = jnp.ones((2, length), bool) if valid is None else jnp.asarray(valid)
        mask = Mask.self_attention(segments, causal="causal" in golden["mask"])

    def apply(module, query, key, value):
        key = module.keys_values(key).key
        return module(query, KeysValues(key, module.keys_values(value).value), mask)

    def project_apart(module, query, key, value):
        """As `apply`, where keys and values come from arrays of different widths."""
        heads = (*key.shape[:2], 3, 5)
        key, value = module.key(key).reshape(heads), module.value(value).reshape(heads)
        keys_values = KeysValues(key.transpose(0, 2, 3, 1), value.swapaxes(1, 2))
        return module(query, keys_values, mask)

    def forward(params, inputs):
        query = inputs["query"]
        key = inputs.get("key", query)
        value = inputs.get("value", key)
        method = project_apart if "value" in inputs else apply
        return module.apply({"params": params}, query, key, value, method=method)

    params, gradients = (
        convert.torch_attention(golden[part], "attention") for part in ("param", "grad_param")
    )
    check(golden, forward, params, gradients)


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("causal", [False, True])
@implementations
def test_encoder_layer(placement, causal, implementation):
    golden = LAYERS[f"encoder_{placement}{'_causal' if causal else ''}"]
    module = Block(config(implementation, placement=placement))
    mask = Mask.self_attention(jnp.asarray(golden["mask"]["key_valid"]), causal=causal)

    def forward(params, inputs):
        return module.apply({"params": params}, inputs["source"], mask)[0]

    params, gradients = (
        convert.torch_layer(golden[part], "layer") for part in ("param", "grad_param")
    )
    check(golden, forward, params, gradients)


@pytest.mark.parametrize("placement", ["post", "pre"])
@implementations
def test_decoder_layer(placement, implementation):
    golden = LAYERS[f"decoder_{placement}"]
    module = Block(config(implementation, placement=placement), cross=True)
    mask, memory_mask = decoder_masks(golden)

    def apply(module, target, memory):
        memory = module.project_memory(memory)
        return module(target, mask, memory=memory, memory_mask=memory_mask)[0]

    def forward(params, inputs):
        variables = {"params": params}
        return module.apply(variables, inputs["target"], inputs["memory"], method=apply)

    params, gradients = (
        convert.torch_layer(golden[part], "layer") for part in ("param", "grad_param")
    )
    check(golden, forward, params, gradients)


@pytest.mark.parametrize("placement", ["post", "pre"])
@implementations
def test_encoder_and_decoder_stacks(placement, implementation):
    """Two layers each; with pre-norm both stacks end in a norm."""
    golden = load(f"torch_stack_{placement}")[f"stack_{placement}"]
    settings = config(implementation, placement=placement)
    encoder, decoder = Stack(settings), Stack(settings, cross=True)
    mask, memory_mask = decoder_masks(golden)
    encoder_mask = Mask.self_attention(jnp.asarray(golden["mask"]["memory_valid"]))

    def decode(module, target, memory):
        memories = module.project_memory(memory)
        return module(target, mask, memories=memories, memory_mask=memory_mask)[0]

    def forward(params, inputs):
        memory, _ = encoder.apply({"params": params["encoder"]}, inputs["source"], encoder_mask)
        return decoder.apply({"params": params["decoder"]}, inputs["target"], memory, method=decode)

    params, gradients = (
        {
            side: convert.torch_stack(golden[part], side, NUM_LAYERS)
            for side in ("encoder", "decoder")
        }
        for part in ("param", "grad_param")
    )
    check(golden, forward, params, gradients)


def decoder_masks(golden):
    """Causal self-attention and cross-attention, both with padding."""
    target = jnp.asarray(golden["mask"]["target_valid"])
    np.testing.assert_array_equal(golden["mask"]["causal"], np.tri(target.shape[1], dtype=bool))
    return (
        Mask.self_attention(target, causal=True),
        Mask.cross_attention(jnp.asarray(golden["mask"]["memory_valid"])),
    )
