"""The published learning rate at published values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.functional import noam


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),
        (1, 1.74693e-7),
        (2, 3.49386e-7),
        (4000, 6.98771e-4),
        (16000, 3.49386e-4),
        (100_000, 1.39754e-4),
    ],
)
def test_published_values(step, rate):
    """A count from 0 gave a first step of rate 0, or 0 ** -0.5 = inf."""
    assert float(noam(step, 512, 4000)) == pytest.approx(rate, rel=1e-5)


def test_peaks_at_the_end_of_warmup():
    rates = jax.vmap(lambda step: noam(step, 128, 37))(jnp.arange(1, 101))
    assert int(rates.argmax()) + 1 == 37
    np.testing.assert_allclose(jnp.diff(rates[:37]), rates[0], rtol=1e-4)


def test_factor_scales_and_the_step_may_be_traced():
    rate = jax.jit(lambda step: noam(step, 512, 4000, factor=2.5))(jnp.asarray(4000))
    assert float(rate) == pytest.approx(2.5 * 6.98771e-4, rel=1e-5)
