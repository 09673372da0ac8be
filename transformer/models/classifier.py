"""Classification of texts by a language model (Radford et al. 2018, sections 3.2 and 3.3)."""

import jax.numpy as jnp
from flax import linen as nn

from transformer.errors import UserError
from transformer.models.decoder import Decoder
from transformer.modules.linear import Dropout, Linear

# The authors' program draws the head's kernel so, whatever the rest.
_STDDEV = 0.02


class Classifier(Decoder):
    """A `Decoder` with a linear layer on its hidden vector at the extract token (equation 3).

    Its parameters are the language model's and ``classifier``: it can start from a trained one,
    and still is one.

    >>> from transformer.config import ModelConfig
    >>> config = ModelConfig(
    ...     "decoder", 1, 8, num_heads=2, vocab_size=11, head="classification", num_classes=3
    ... )
    >>> model, tokens = Classifier(config), jnp.ones((2, 5), int)
    >>> variables = model.init(jax.random.key(0), tokens)
    >>> hidden = model.apply(variables, tokens, method="hidden")
    >>> model.apply(variables, hidden, jnp.array([4, 2]), method="classify").shape
    (2, 3)
    """

    def setup(self):
        super().setup()
        if self.config.num_classes is None:
            raise UserError("model.num_classes = None: expected the number of classes")
        self.classifier_dropout = Dropout(self.config.dropout)
        self.classifier = Linear(
            self.config.num_classes, ("embed", None), kernel_init=nn.initializers.normal(_STDDEV)
        )

    def __call__(self, inputs, segments=None, positions=None, *, train: bool = False):
        """As of `Decoder`: logits for each next token."""
        hidden = self.hidden(inputs, segments, positions, train=train)
        if self.is_initializing():
            self.classify(hidden, jnp.zeros(len(inputs), jnp.int32))
        return self.logits(hidden)

    def classify(self, hidden, ends, *, train: bool = False):
        """The logits of each class, float32 ``[B, classes]``.

        Args:
            hidden: ``[B, T, D]``, as `hidden` returns them.
            ends: int ``[B]``, the place of each row's extract token.
            train: apply dropout; needs the "dropout" random stream.
        """
        extract = jnp.take_along_axis(hidden, ends[:, None, None], axis=1)[:, 0]
        extract = self.classifier_dropout(extract, train=train)
        return self.classifier(extract).astype(jnp.float32)
