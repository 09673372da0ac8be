"""Encoders: BERT (Devlin et al. 2019), RoBERTa, RoFormer, and what is read off them."""

import jax.numpy as jnp
from flax import linen as nn

from transformer.config import ModelConfig
from transformer.errors import UserError
from transformer.functional import Mask
from transformer.modules.block import ACTIVATIONS
from transformer.modules.embed import Embedding
from transformer.modules.initializers import embedding_init
from transformer.modules.linear import Dropout, Linear, Norm
from transformer.modules.stack import Stack

# Outputs of a head's last layer, where the labels do not say it.
_OUTPUTS = {"regression": 1, "multiple_choice": 1, "span": 2}


class Encoder(nn.Module):
    """Every token attends to all of its row; ``config.head`` says which methods there are.

    Tokens equal to ``config.pad_id`` are not looked at.

    >>> config = ModelConfig("encoder", 1, 8, ff_dim=16, num_heads=2, vocab_size=11, head="span")
    >>> model, tokens = Encoder(config), jnp.ones((2, 3), int)
    >>> variables = model.init(jax.random.key(0), tokens)
    >>> hidden = model.apply(variables, tokens)
    >>> model.apply(variables, hidden, method="label_tokens").shape
    (2, 3, 2)
    """

    config: ModelConfig

    def setup(self):
        c = self.config
        self.embedding = Embedding(c)
        self.encoder = Stack(c)
        init = embedding_init(c)
        if self._pools:
            self.pooler = Linear(c.model_dim, ("embed", None), kernel_init=init)
        if c.head == "language_model":
            self.transform = Linear(c.model_dim, ("embed", None), kernel_init=init)
            self.transform_norm = Norm(c)
            if c.next_sentence:
                self.next_sentence = Linear(2, ("embed", None), kernel_init=init)
        elif c.head != "none":
            outputs = _OUTPUTS.get(c.head, c.num_classes)
            if outputs is None:
                raise UserError("model.num_classes = None: expected the number of classes")
            # The published programs have none before the logits of spans.
            self.classifier_dropout = Dropout(0.0 if c.head == "span" else c.dropout)
            self.classifier = Linear(outputs, ("embed", None), kernel_init=init)

    @property
    def _pools(self) -> bool:
        """Whether the head reads the vector of the first token."""
        c = self.config
        if c.head == "language_model":
            return c.next_sentence
        return c.head not in ("token_labels", "span")

    def __call__(
        self, inputs, segments=None, positions=None, token_types=None, *, train: bool = False
    ):
        """The hidden vectors ``[B, T, D]``, which the other methods read.

        Args:
            inputs: int ``[B, T]``.
            segments: int ``[B, T]``: tokens see those of the same number, but 0, which is
                padding; None: all that are not ``config.pad_id``.
            positions: int ``[B or 1, T]``; None: 0, 1, 2, ...
            token_types: int ``[B, T]``, below ``config.segment_types``: 0 for the first text and
                1 for the second; None: all 0.
            train: apply dropout; needs the "dropout" random stream.
        """
        hidden = self.hidden(inputs, segments, positions, token_types, train=train)
        if self.is_initializing():
            self._read_all(hidden)
        return hidden

    def hidden(
        self, inputs, segments=None, positions=None, token_types=None, *, train: bool = False
    ):
        """As `__call__`."""
        if positions is None:
            positions = jnp.arange(inputs.shape[1])[None]
        if segments is None:
            segments = inputs != self.config.pad_id
        hidden, _ = self.encoder(
            self.embedding(inputs, positions, token_types, train=train),
            Mask.self_attention(segments, positions),
            positions=positions,
            train=train,
        )
        return hidden

    def pooled(self, hidden):
        """``tanh(W h + b)`` of the first token of each row: ``[B, T, D]`` to ``[B, D]``.

        Of the heads classification, regression, multiple_choice and none, and of next_sentence.
        """
        return jnp.tanh(self.pooler(hidden[:, 0]))

    def masked(self, hidden, places):
        """The vectors that `logits` multiplies, of some tokens: ``[B, T, D]`` to ``[B, P, D]``.

        Of the head language_model. Only masked tokens are asked for in training, so only they
        cost a row of logits.

        Args:
            hidden: from `hidden`.
            places: int ``[B, P]``, which tokens of each row.
        """
        chosen = jnp.take_along_axis(hidden, places[..., None], axis=1)
        transformed = ACTIVATIONS[self.config.activation](self.transform(chosen))
        return self.embedding.scale_output(self.transform_norm(transformed))

    def logits(self, vectors):
        """Of what `masked` returned: ``[B, P, D]`` to float32 ``[B, P, V]``."""
        return self.embedding.logits(vectors)

    def follows(self, hidden):
        """Logits of whether the second text is the next one, float32 ``[B, 2]``.

        As published class 0 means that it is, class 1 that it is a random one.
        """
        return self.next_sentence(self.pooled(hidden)).astype(jnp.float32)

    def classify(self, hidden, *, train: bool = False):
        """From the pooled vectors, float32 ``[B, outputs]``.

        The classes of the head classification, the value of regression, or the one logit that
        each choice of multiple_choice has (a row is a choice).
        """
        return self._classifier(self.pooled(hidden), train)

    def label_tokens(self, hidden, *, train: bool = False):
        """From each token's vector, float32 ``[B, T, outputs]``.

        The classes of the head token_labels; of span the logits of beginning and ending there
        (Devlin et al. 2019, section 4.2).
        """
        return self._classifier(hidden, train)

    def _classifier(self, vectors, train: bool):
        vectors = self.classifier_dropout(vectors, train=train)
        return self.classifier(vectors).astype(jnp.float32)

    def _read_all(self, hidden) -> None:
        """Declares the parameters of the head."""
        match self.config.head:
            case "language_model":
                self.masked(hidden, jnp.zeros((len(hidden), 1), jnp.int32))
                if self.config.next_sentence:
                    self.follows(hidden)
            case "token_labels" | "span":
                self.label_tokens(hidden)
            case "none":
                self.pooled(hidden)
            case _:
                self.classify(hidden)
