"""Parameterised forms of the functions in `transformer.functional.layers`."""

from flax import linen as nn

from transformer.config import ModelConfig
from transformer.functional import layers
from transformer.modules.parameters import parameter


class Linear(nn.Module):
    """``x W + b`` on the last axis: ``[..., D]`` to ``[..., features]``.

    Attributes:
        features: outputs.
        axes: what the two axes of W are called.
        use_bias: add b.
        kernel_init: of W.
    """

    features: int
    axes: tuple[str | None, str | None]
    use_bias: bool = True
    kernel_init: nn.initializers.Initializer = nn.initializers.xavier_uniform()

    @nn.compact
    def __call__(self, x):
        shape = (x.shape[-1], self.features)
        kernel = parameter(self, "kernel", self.kernel_init, shape, self.axes)
        bias = None
        if self.use_bias:
            zeros = nn.initializers.zeros
            bias = parameter(self, "bias", zeros, (self.features,), self.axes[1:])
        return layers.linear(x, kernel, bias)


class Norm(nn.Module):
    """Layer norm with scale and bias, or RMS norm with scale, over the last axis."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x):
        c = self.config
        width = (x.shape[-1],)
        scale = parameter(self, "scale", nn.initializers.ones, width, ("norm",))
        if c.norm == "rms":
            return layers.rms_norm(x, scale, c.norm_epsilon)
        bias = parameter(self, "bias", nn.initializers.zeros, width, ("norm",))
        return layers.layer_norm(x, scale, bias, c.norm_epsilon)


class Dropout(nn.Module):
    """Dropout with the "dropout" random stream; a missing one is flax's error."""

    rate: float

    def __call__(self, x, *, train: bool):
        key = self.make_rng("dropout") if train and self.rate else None
        return layers.dropout(x, self.rate, key)
