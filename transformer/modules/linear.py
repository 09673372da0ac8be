"""Parameterised forms of the functions in `transformer.functional.layers`."""

from flax import linen as nn

from transformer.functional import layers


class Linear(nn.Module):
    """``x W + b`` on the last axis: ``[..., D]`` to ``[..., features]``."""

    features: int
    use_bias: bool = True

    @nn.compact
    def __call__(self, x):
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.xavier_uniform(), shape)
        bias = None
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (self.features,))
        return layers.linear(x, kernel, bias)


class LayerNorm(nn.Module):
    """Layer norm over the last axis, with scale and bias."""

    epsilon: float

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
        return layers.layer_norm(x, scale, bias, self.epsilon)


class Dropout(nn.Module):
    """Dropout with the "dropout" random stream; a missing one is flax's error."""

    rate: float

    def __call__(self, x, *, train: bool):
        if not train or self.rate == 0:
            return x
        return layers.dropout(x, self.rate, self.make_rng("dropout"))
