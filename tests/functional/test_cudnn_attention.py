"""What cuDNN is asked to do, done by XLA; the kernel itself needs a GPU (benchmarks/gpu.py)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import normal
from transformer.functional import Mask, attend
from transformer.functional.cudnn_attention import cudnn_attention, cudnn_fits

B, T, S, N, K, H = 3, 19, 13, 4, 2, 8
SCALE = H**-0.5
LENGTHS = jnp.array([[T], [11], [0]])
AT_END = jnp.arange(T) < LENGTHS
AT_FRONT = AT_END[:, ::-1]
WITHIN = AT_END & (jnp.arange(T) % 3 > 0)
PLACES = jnp.arange(T)[None]
MASKS = {
    "none": None,
    "causal": Mask.self_attention(None, PLACES, causal=True),
    "window": Mask.self_attention(None, PLACES, causal=True, window=5),
    "cross": Mask.cross_attention(jnp.arange(S) < jnp.array([[S], [4], [0]])),
    **{
        f"{name}, causal {causal}": Mask.self_attention(padding, causal=causal)
        for name, padding in {"at end": AT_END, "at front": AT_FRONT, "within": WITHIN}.items()
        for causal in (False, True)
    },
}


@pytest.mark.parametrize("name", MASKS)
def test_equals_the_plain_path_forward_and_backward(name):
    """Padding may lie anywhere, and a row may be nothing else."""
    mask, width = MASKS[name], S if name in ("none", "cross") else T
    operands = normal(0, B, T, N, H), normal(1, B, width, K, H), normal(2, B, width, K, H)

    @jax.jit
    def both(cotangent, *operands):
        def run(*operands):
            return cudnn_attention(*operands, mask=mask, scale=SCALE, program="xla")

        def plain(*operands):
            return attend(*operands, mask=mask, implementation="plain")

        results = []
        for function in (run, plain):
            output, pull = jax.vjp(function, *operands)
            results.append((output, *pull(cotangent)))
        return results

    for got, expected in zip(*both(normal(3, B, T, N, H), *operands), strict=True):
        np.testing.assert_allclose(got, expected, atol=3e-6)


def test_what_it_cannot_do_is_left_to_others():
    def fits(mask=None, width=64, value=64, dtype=jnp.bfloat16):
        query, values = jnp.zeros((1, T, N, width), dtype), jnp.zeros((1, T, K, value), dtype)
        return cudnn_fits(query, values, mask or Mask())

    numbered = AT_END.astype(jnp.int32)
    assert fits() and fits(MASKS["causal"]) and fits(MASKS["window"])
    assert fits(Mask.self_attention(AT_END, causal=True)) and fits(MASKS["cross"])
    assert not fits(dtype=jnp.float32)
    assert not fits(width=60, value=60) and not fits(width=136, value=136)
    assert not fits(value=32)
    assert not fits(Mask.self_attention(numbered)), "segments"
    assert not fits(Mask.self_attention(None, PLACES, window=5)), "a window to both sides"
    assert not fits(Mask.self_attention(AT_END, causal=True, window=5))
    assert not fits(Mask(PLACES, PLACES, causal=True)), "positions that indices do not tell"
