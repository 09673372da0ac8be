"""Parameterised forms of the functions in `transformer.functional.layers`."""

from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import layers


class Linear(nn.Module):
    """``x W + b`` on the last axis: ``[..., D]`` to ``[..., features]``."""

    features: int
    use_bias: bool = True
    kernel_init: nn.initializers.Initializer = nn.initializers.xavier_uniform()

    @nn.compact
    def __call__(self, x):
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", self.kernel_init, shape)
        bias = None
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return layers.linear(x, kernel, bias)


class Norm(nn.Module):
    """Layer norm with scale and bias, or RMS norm with scale, over the last axis."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x):
        c = self.config
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        if c.norm == "rms":
            return layers.rms_norm(x, scale, c.norm_epsilon)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
        return layers.layer_norm(x, scale, bias, c.norm_epsilon)


class Dropout(nn.Module):
    """Dropout with the "dropout" random stream; a missing one is flax's error."""

    rate: float

    def __call__(self, x, *, train: bool):
        if not train or self.rate == 0:
            return x
        return layers.dropout(x, self.rate, self.make_rng("dropout"))
