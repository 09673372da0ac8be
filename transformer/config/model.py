"""The shape of the network."""

from dataclasses import dataclass
from typing import Literal, get_args

from transformer.config.require import require

Head = Literal[
    "language_model",
    "classification",
    "regression",
    "token_labels",
    "multiple_choice",
    "span",
    "none",
]

HEADS: dict[str, tuple[Head, ...]] = {
    "encoder_decoder": ("language_model",),
    "decoder": ("language_model", "classification"),
    "encoder": get_args(Head),
}
"""Those of each architecture."""


@dataclass(frozen=True)
class ModelConfig:
    """The network. The defaults are the base model of "Attention Is All You Need", table 3;
    `transformer.models.presets` has the settings of the other published models."""

    architecture: Literal["encoder_decoder", "decoder", "encoder"] = "encoder_decoder"
    """encoder_decoder: the original, Marian, T5; decoder: GPT, Llama (a language model); encoder:
    BERT, RoBERTa, RoFormer (every token sees all)."""
    num_layers: int = 6
    """Layers of the encoder, and of the decoder (N in the paper, table 3)."""
    model_dim: int = 512
    """Width of the residual stream (d_model)."""
    ff_dim: int = 2048
    """Width of the feed-forward layer (d_ff)."""
    num_heads: int = 8
    """Attention heads (h); each has attention_dim / num_heads dimensions."""
    attention_dim: int | None = None
    """Width of all query heads together; None: model_dim."""
    num_kv_heads: int | None = None
    """Key and value heads, shared by groups of query heads; None: as many as num_heads."""
    vocab_size: int | None = None
    """Rows of the shared embedding matrix; None: the size of the tokenizer."""
    head: Head = "language_model"
    """What is read off the last hidden vectors; in training it follows from data.objective. A
    decoder has language_model or classification, an encoder_decoder language_model. none: the
    hidden vectors themselves are what is wanted."""
    num_classes: int | None = None
    """Outputs of the heads classification and token_labels; None: as many as there are labels."""
    next_sentence: bool = False
    """With an encoder's head language_model: tell besides whether the second of two texts follows
    the first (BERT)."""
    pad_id: int = 0
    """The token that fills up rows of an encoder, sources and targets of an encoder_decoder."""
    positions: Literal["sinusoidal", "learned", "rotary", "relative", "none"] = "sinusoidal"
    """sinusoidal: added, as published; learned: a table, added (GPT, BERT); rotary: queries and
    keys are turned (RoFormer, Llama); relative: a bias by distance on the logits (T5)."""
    max_positions: int | None = None
    """Longest sequence, in tokens: rows of the table of learned positions; None: no limit."""
    segment_types: int = 0
    """Rows of the table that is added by the kind of text a token belongs to (BERT: 2, first and
    second); 0: none."""
    rotary_theta: float = 10_000.0
    """With rotary: the base of the wavelengths."""
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "swiglu"] = "relu"
    """Of the feed-forward layer. gelu_tanh is GPT's approximation of gelu; geglu (gelu_tanh) and
    swiglu (silu) are gated by a second projection (Shazeer 2020)."""
    norm: Literal["layer", "rms"] = "layer"
    """Layer norm, or RMS norm (Zhang and Sennrich 2019), which has no mean and no bias."""
    norm_placement: Literal["post", "pre"] = "post"
    """Layer norm after the residual sum (as published) or before the sublayer."""
    norm_epsilon: float = 1e-6
    """Added to the variance in layer norm, to the mean square in RMS norm."""
    attention_bias: bool = False
    """Give the attention projections a bias (the paper's equations have none)."""
    ff_bias: bool = True
    """Give the feed-forward projections a bias."""
    output_bias: bool = False
    """Add a bias to the logits (Marian)."""
    scale_attention: bool = True
    """Divide the attention logits by the root of a head's dimensions (T5 does not)."""
    tie_embeddings: bool = True
    """Use the embedding matrix for the logits too; False: a matrix of their own."""
    embedding_scaling: Literal["input", "output", "none"] = "input"
    """input: embeddings times sqrt(model_dim), as published; output: the last hidden vectors
    divided by it before the logits (T5 1.0); none (GPT)."""
    embedding_norm: bool = False
    """A norm on the sum of the embeddings, before dropout (BERT)."""
    local_window: int | None = None
    """Every other layer, from the second on, sees only so many tokens back, itself included
    (GPT-3); None: all layers see everything."""
    initializer: Literal["xavier", "normal", "scaled_normal", "t5"] = "xavier"
    """Of the kernels: xavier; normal(0, 0.02) (GPT-1); the same with residual projections over
    sqrt(2 num_layers) (GPT-2); T5's, by fan-in."""
    dropout: float = 0.1
    """Rate on each sublayer's output and on the embedding sums (paper section 5.4)."""
    attention_dropout: float = 0.0
    """Rate on the attention weights; above 0 the plain attention path is used in training, which
    keeps all weights of all pairs of tokens."""
    ff_dropout: float = 0.0
    """Rate inside the feed-forward layer, after the activation."""
    attention: Literal["auto", "plain", "chunked"] = "auto"
    """How attention is computed: whole (plain), in blocks of keys (chunked), or by length, and of
    512 tokens or more by the kernel of a TPU or GPU where it can (auto)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the activations; parameters, softmax, logits and losses stay float32."""
    scan_layers: bool = False
    """In training: loop over the layers, whose parameters lie in one array each, so that compiling
    takes as long for many layers as for one. The same computation, but that fresh parameters are
    drawn in another order. A run may go on with another value."""
    remat: Literal["none", "dots", "full"] = "none"
    """What training forgets of each layer, and computes again for the gradient. none: nothing;
    dots: all but products with parameters; full: all but the layer's input. Less memory for more
    time; the same results. A run may go on with another value."""

    def __post_init__(self) -> None:
        for name in ("num_layers", "model_dim", "ff_dim", "num_heads"):
            value = getattr(self, name)
            require(value >= 1, f"model.{name}", value, "at least 1")
        width = "model_dim" if self.attention_dim is None else "attention_dim"
        dims = getattr(self, width)
        require(
            dims >= 1 and dims % self.num_heads == 0,
            "model.num_heads",
            self.num_heads,
            f"a divisor of model.{width} = {dims}",
        )
        require(
            self.positions != "rotary" or self.head_dim % 2 == 0,
            "model.num_heads",
            self.num_heads,
            f"an even model.{width} / model.num_heads, which rotary positions need, "
            f"found {self.head_dim}",
        )
        require(
            self.positions != "learned" or self.max_positions is not None,
            "model.max_positions",
            self.max_positions,
            "a number, because model.positions = 'learned'",
        )
        for name in ("max_positions", "local_window"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"model.{name}", value, "at least 1")
        require(self.rotary_theta > 0, "model.rotary_theta", self.rotary_theta, "above 0")
        require(
            self.embedding_scaling != "output" or self.tie_embeddings,
            "model.embedding_scaling",
            self.embedding_scaling,
            "input or none, because model.tie_embeddings = False",
        )
        require(
            self.local_window is None or self.architecture == "decoder",
            "model.local_window",
            self.local_window,
            f"None, because model.architecture = {self.architecture!r}",
        )
        require(
            not self.scan_layers or self.local_window is None or self.num_layers % 2 == 0,
            "model.num_layers",
            self.num_layers,
            "an even number, because model.scan_layers = True and every other layer has "
            f"model.local_window = {self.local_window}",
        )
        require(self.pad_id >= 0, "model.pad_id", self.pad_id, "0 or more")
        if self.num_kv_heads is not None:
            require(
                self.num_kv_heads >= 1 and self.num_heads % self.num_kv_heads == 0,
                "model.num_kv_heads",
                self.num_kv_heads,
                f"a divisor of model.num_heads = {self.num_heads}",
            )
        self._check_head()
        if self.vocab_size is not None:
            require(self.vocab_size >= 1, "model.vocab_size", self.vocab_size, "at least 1")
        require(self.norm_epsilon > 0, "model.norm_epsilon", self.norm_epsilon, "a positive number")
        for name in ("dropout", "attention_dropout", "ff_dropout"):
            value = getattr(self, name)
            require(0 <= value < 1, f"model.{name}", value, "a rate in [0, 1)")

    def _check_head(self) -> None:
        known = HEADS[self.architecture]
        require(
            self.head in known,
            "model.head",
            self.head,
            f"{' or '.join(known)}, because model.architecture = {self.architecture!r}",
        )
        if self.num_classes is not None:
            require(self.num_classes >= 2, "model.num_classes", self.num_classes, "at least 2")
            require(
                self.head in ("classification", "token_labels"),
                "model.num_classes",
                self.num_classes,
                f"None, because model.head = {self.head!r}",
            )
        require(
            not self.next_sentence
            or (self.architecture == "encoder" and self.head == "language_model"),
            "model.next_sentence",
            self.next_sentence,
            "False, but with an encoder whose model.head is language_model",
        )
        require(self.segment_types >= 0, "model.segment_types", self.segment_types, "0 or more")

    @property
    def head_dim(self) -> int:
        return (self.attention_dim or self.model_dim) // self.num_heads

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads
