"""Every setting of the program, as frozen dataclasses.

A setting's docstring is its help text on the command line. Values are checked
when a dataclass is built, so a `Config` that exists is a valid one.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from transformer.errors import UserError, did_you_mean_file


def _require(condition: bool, setting: str, value: object, expected: str) -> None:
    if not condition:
        raise UserError(f"{setting} = {value!r}: expected {expected}")


@dataclass(frozen=True)
class ModelConfig:
    """The encoder-decoder's shape. Letters as in "Attention Is All You Need", section 3."""

    num_layers: int = 6
    """Layers of the encoder, and of the decoder (N in the paper, table 3)."""
    model_dim: int = 512
    """Width of the residual stream (d_model)."""
    ff_dim: int = 2048
    """Width of the feed-forward layer (d_ff)."""
    num_heads: int = 8
    """Attention heads (h); each has model_dim / num_heads dimensions."""
    num_kv_heads: int | None = None
    """Key and value heads, shared by groups of query heads; None: as many as num_heads."""
    vocab_size: int | None = None
    """Rows of the shared embedding matrix; None: the size of the tokenizer."""
    norm_placement: Literal["post", "pre"] = "post"
    """Layer norm after the residual sum (as published) or before the sublayer."""
    norm_epsilon: float = 1e-6
    """Added to the variance in layer norm."""
    attention_bias: bool = False
    """Give the attention projections a bias (the paper's equations have none)."""
    dropout: float = 0.1
    """Rate on each sublayer's output and on the embedding sums (paper section 5.4)."""
    attention_dropout: float = 0.0
    """Rate on the attention weights; above 0 the plain attention path is used in training."""
    ff_dropout: float = 0.0
    """Rate inside the feed-forward layer, after the activation."""
    attention: Literal["auto", "plain", "chunked"] = "auto"
    """How attention is computed: whole, in blocks of keys, or by length (auto)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the activations; parameters, softmax, logits and losses stay float32."""

    def __post_init__(self) -> None:
        for name in ("num_layers", "model_dim", "ff_dim", "num_heads"):
            value = getattr(self, name)
            _require(value >= 1, f"model.{name}", value, "at least 1")
        _require(
            self.model_dim % self.num_heads == 0,
            "model.num_heads",
            self.num_heads,
            f"a divisor of model.model_dim = {self.model_dim}",
        )
        if self.num_kv_heads is not None:
            _require(
                self.num_kv_heads >= 1 and self.num_heads % self.num_kv_heads == 0,
                "model.num_kv_heads",
                self.num_kv_heads,
                f"a divisor of model.num_heads = {self.num_heads}",
            )
        if self.vocab_size is not None:
            _require(self.vocab_size >= 1, "model.vocab_size", self.vocab_size, "at least 1")
        _require(
            self.norm_epsilon > 0, "model.norm_epsilon", self.norm_epsilon, "a positive number"
        )
        for name in ("dropout", "attention_dropout", "ff_dropout"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"model.{name}", value, "a rate in [0, 1)")

    @property
    def head_dim(self) -> int:
        return self.model_dim // self.num_heads

    @property
    def kv_heads(self) -> int:
        return self.num_kv_heads or self.num_heads


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from and how it becomes batches."""

    dataset: str = "cmudict"
    """cmudict (embedded), files (see train, validation, test), or tfds:NAME[/CONFIG] such as
    tfds:ted_hrlr_translate/pt_to_en."""
    train: tuple[str, ...] = ()
    """With files: one TSV file (source TAB target) or two line-parallel files; .gz is read too."""
    validation: tuple[str, ...] = ()
    """Held-out pairs for the loss and score during training, in the same form as train."""
    test: tuple[str, ...] = ()
    """Held-out pairs for `transformer evaluate`, in the same form as train."""
    source_language: str | None = None
    """With tfds: the language translated from; None: the first of the set's pair."""
    data_dir: str | None = None
    """Where TFDS sets and tokenised copies are kept; None: ~/.cache/transformer."""
    tokenizer: Literal["sentencepiece", "symbols"] = "symbols"
    """sentencepiece: subwords, one vocabulary for both sides, trained on the training split;
    symbols: every distinct symbol of the training split (see source_symbols)."""
    source_symbols: Literal["characters", "words"] = "characters"
    """With symbols: what one source symbol is; words are separated by spaces."""
    target_symbols: Literal["characters", "words"] = "words"
    """With symbols: what one target symbol is."""
    vocab_size: int = 8000
    """With sentencepiece: pieces, specials and bytes included."""
    sentencepiece_type: Literal["bpe", "unigram"] = "bpe"
    """The subword algorithm."""
    normalization: Literal["identity", "nfkc", "nfkc_cf"] = "identity"
    """With sentencepiece: identity keeps text exactly; nfkc unifies characters; nfkc_cf also
    lower-cases."""
    max_length: int = 256
    """Training pairs with more tokens than this on either side are left out, and counted."""
    batch_tokens: int = 4096
    """Padded tokens of a batch: rows times the longer of the two padded lengths, at most."""
    metric: Literal["auto", "bleu", "error_rate"] = "auto"
    """Scores of outputs: bleu (with chrF), error_rate (of symbols and of whole outputs), or what
    suits the dataset."""
    num_buckets: int = 8
    """Number of padded shapes the batches come in (each is compiled once)."""

    def __post_init__(self) -> None:
        known = self.dataset in ("cmudict", "files") or (
            self.dataset.startswith("tfds:") and len(self.dataset) > len("tfds:")
        )
        _require(known, "data.dataset", self.dataset, "cmudict, files or tfds:NAME")
        for name in ("train", "validation", "test"):
            value = getattr(self, name)
            _require(
                len(value) <= 2,
                f"data.{name}",
                value,
                "one TSV file or two parallel files",
            )
            _require(
                not value or self.dataset == "files",
                f"data.{name}",
                value,
                f"data.dataset = 'files', found {self.dataset!r}",
            )
        _require(
            self.dataset != "files" or len(self.train) > 0,
            "data.train",
            self.train,
            "one TSV file or two parallel files, because data.dataset = 'files'",
        )
        for name in ("vocab_size", "max_length", "batch_tokens", "num_buckets"):
            value = getattr(self, name)
            _require(value >= 1, f"data.{name}", value, "at least 1")


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam as published (paper section 5.3) and the learning-rate schedule."""

    schedule: Literal["noam", "linear", "cosine", "constant"] = "noam"
    """noam: equation 3 of the paper; linear, cosine: warm up, then decay to 0 at train.steps;
    constant: warm up, then stay."""
    learning_rate: float = 1.0
    """The peak rate; for noam the factor on equation 3 (1 as published)."""
    warmup_steps: int = 4000
    """Steps of linear rise."""
    beta1: float = 0.9
    """Decay of Adam's first moment."""
    beta2: float = 0.98
    """Decay of Adam's second moment."""
    epsilon: float = 1e-9
    """Added to the root of Adam's second moment."""
    clip_norm: float | None = None
    """Scale gradients down to this global norm; None: leave them."""
    weight_decay: float = 0.0
    """Decoupled decay, on kernels only (not on biases, norms or embeddings)."""

    def __post_init__(self) -> None:
        _require(self.learning_rate > 0, "optimizer.learning_rate", self.learning_rate, "above 0")
        _require(self.warmup_steps >= 0, "optimizer.warmup_steps", self.warmup_steps, "0 or more")
        _require(
            self.schedule != "noam" or self.warmup_steps >= 1,
            "optimizer.warmup_steps",
            self.warmup_steps,
            "at least 1 with optimizer.schedule = 'noam'",
        )
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"optimizer.{name}", value, "a rate in [0, 1)")
        _require(self.epsilon > 0, "optimizer.epsilon", self.epsilon, "above 0")
        _require(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "0 or more")
        if self.clip_norm is not None:
            _require(self.clip_norm > 0, "optimizer.clip_norm", self.clip_norm, "above 0")


@dataclass(frozen=True)
class TrainConfig:
    """How long to train, what to report, what to keep."""

    steps: int = 100_000
    """Optimizer steps in all."""
    label_smoothing: float = 0.1
    """Probability mass spread evenly over the whole vocabulary (epsilon_ls, section 5.4)."""
    accumulate: int = 1
    """Micro-batches a step; the step equals the one on their union (each has data.batch_tokens)."""
    seed: int = 0
    """Parameters, dropout and the order of the data follow from it."""
    log_every: int = 50
    """Steps between lines of metrics."""
    eval_every: int = 2000
    """Steps between evaluations on the validation split; a checkpoint is saved with each."""
    eval_examples: int = 1000
    """Validation examples that are decoded greedily for the score (the loss covers all)."""
    save_every: int = 1000
    """Steps between checkpoints."""
    keep: int = 3
    """Latest checkpoints kept; the best one (lowest validation loss) is kept besides."""

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log_every", "eval_every", "save_every", "keep"):
            value = getattr(self, name)
            _require(value >= 1, f"train.{name}", value, "at least 1")
        _require(
            0 <= self.label_smoothing < 1,
            "train.label_smoothing",
            self.label_smoothing,
            "a probability in [0, 1)",
        )
        _require(self.eval_examples >= 0, "train.eval_examples", self.eval_examples, "0 or more")
        _require(self.seed >= 0, "train.seed", self.seed, "0 or more")


@dataclass(frozen=True)
class DecodeConfig:
    """Search for the best output (paper section 6.1)."""

    beam_size: int = 4
    """Hypotheses kept a step; 1 is greedy search."""
    length_penalty: float = 0.6
    """alpha of Wu et al. 2016, equation 14: score = log p / ((5 + length) / 6) ** alpha."""
    extra_length: int = 50
    """Longest output, in tokens beyond the length of the source."""
    max_source_length: int = 1024
    """Sources of more tokens, the end symbol counted, are cut to this many, with a warning."""
    early_stopping: bool = False
    """Stop a sentence once beam_size hypotheses have ended, instead of when none can improve."""
    batch_size: int = 64
    """Sentences decoded together; the result does not depend on it."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "batch_size", "max_source_length"):
            value = getattr(self, name)
            _require(value >= 1, f"decode.{name}", value, "at least 1")
        _require(
            self.length_penalty >= 0, "decode.length_penalty", self.length_penalty, "0 or more"
        )
        _require(self.extra_length >= 0, "decode.extra_length", self.extra_length, "0 or more")


@dataclass(frozen=True)
class Config:
    """One experiment: what `configs/*.py` define and the command line changes."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)


_SECTIONS: dict[str, Any] = {f.name: f.default_factory for f in dataclasses.fields(Config)}


def to_dict(config: Config) -> dict[str, Any]:
    """`config` as nested dicts of JSON types."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_dict(values: dict[str, Any]) -> Config:
    """The inverse of `to_dict`; an unknown section or setting is a `UserError`."""
    for name in values:
        _require(name in _SECTIONS, "section", name, f"one of {', '.join(_SECTIONS)}")
    sections = {}
    for name, kind in _SECTIONS.items():
        known = {f.name for f in dataclasses.fields(kind)}
        given = dict(values.get(name, {}))
        for key, value in given.items():
            _require(key in known, f"{name}.{key}", value, f"one of {', '.join(sorted(known))}")
            if isinstance(value, list):
                given[key] = tuple(value)
        sections[name] = kind(**given)
    return Config(**sections)


def load(path: str | Path) -> Config:
    """The `config` that a Python file such as ``configs/base.py`` defines.

    Raises:
        UserError: the file is missing, fails to run, or defines no `config`.
    """
    path = Path(path)
    if not path.is_file():
        near = did_you_mean_file(path, "*.py", str(path.parent / "{}"))
        raise UserError(f"--config {path}: no such file{near}")
    scope: dict[str, Any] = {"__name__": "config", "__file__": str(path)}
    try:
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"--config {path}: {type(error).__name__}: {error}") from error
    config = scope.get("config")
    if not isinstance(config, Config):
        raise UserError(
            f"--config {path}: expected a variable `config` of type transformer.config.Config"
        )
    return config
