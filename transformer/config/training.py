"""How a model is trained."""

from dataclasses import dataclass
from typing import Literal

from transformer.config.require import require


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam as published (paper section 5.3) and the learning-rate schedule."""

    schedule: Literal["noam", "linear", "cosine", "constant"] = "noam"
    """noam: equation 3 of the paper; linear, cosine: warm up, then decay to final_factor at
    train.steps; constant: warm up, then stay."""
    learning_rate: float = 1.0
    """The peak rate; for noam the factor on equation 3 (1 as published)."""
    warmup_steps: int = 4000
    """Steps of linear rise."""
    warmup_fraction: float | None = None
    """The part of all steps that the rate rises, instead of warmup_steps; None: see there."""
    final_factor: float = 0.0
    """With linear, cosine: the part of the peak rate that is left at train.steps."""
    beta1: float = 0.9
    """Decay of Adam's first moment."""
    beta2: float = 0.98
    """Decay of Adam's second moment."""
    epsilon: float = 1e-9
    """Added to the root of Adam's second moment."""
    clip_norm: float | None = None
    """Scale gradients down to this global norm; None: leave them."""
    weight_decay: float = 0.0
    """Decoupled decay, on kernels (not on biases and norms)."""
    decay_embeddings: bool = False
    """Let the tables of tokens, positions and segments decay too (BERT)."""

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, "optimizer.learning_rate", self.learning_rate, "above 0")
        require(self.warmup_steps >= 0, "optimizer.warmup_steps", self.warmup_steps, "0 or more")
        require(
            self.schedule != "noam" or self.warmup_steps >= 1,
            "optimizer.warmup_steps",
            self.warmup_steps,
            "at least 1 with optimizer.schedule = 'noam'",
        )
        require(
            self.warmup_fraction is None
            or (0 <= self.warmup_fraction <= 1 and self.schedule != "noam"),
            "optimizer.warmup_fraction",
            self.warmup_fraction,
            "a fraction in [0, 1], and another optimizer.schedule than 'noam'",
        )
        require(
            0 <= self.final_factor <= 1,
            "optimizer.final_factor",
            self.final_factor,
            "a factor in [0, 1]",
        )
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, f"optimizer.{name}", value, "a rate in [0, 1)")
        require(self.epsilon > 0, "optimizer.epsilon", self.epsilon, "above 0")
        require(self.weight_decay >= 0, "optimizer.weight_decay", self.weight_decay, "0 or more")
        if self.clip_norm is not None:
            require(self.clip_norm > 0, "optimizer.clip_norm", self.clip_norm, "above 0")


@dataclass(frozen=True)
class TrainConfig:
    """How long to train, what to report, what to keep."""

    steps: int = 100_000
    """Optimizer steps in all."""
    epochs: float | None = None
    """Passes over the training data, after which training ends if it has not after steps."""
    init_from: str | None = None
    """The --workdir of another run (or an imported model): its parameters and tokenizer are what
    training starts from. Leave all settings of the model out to have its; those given must
    agree with it, but for dropout, attention, dtype, scan_layers and remat."""
    label_smoothing: float = 0.1
    """Probability mass spread evenly over the whole vocabulary (epsilon_ls, section 5.4)."""
    lm_weight: float = 0.5
    """With data.objective = classification and a decoder: what the loss of the text's tokens adds
    to that of the classes (lambda of Radford et al. 2018, equation 5); 0: nothing."""
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
    """Latest checkpoints kept. (The first is saved before step 1, with the number 0.)"""
    best_by: Literal["loss", "score"] = "loss"
    """What the best checkpoint has: the lowest validation loss, or of tasks with labels the highest
    score (accuracy of classes and choices, Pearson correlation of numbers, F1 of labels of words
    and of spans)."""
    keep_best: int = 1
    """How many of the best checkpoints are kept besides."""
    keep_every: int | None = None
    """Keep besides each checkpoint whose step is a multiple of this, step 0 too; None: no more."""

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "log_every", "eval_every", "save_every", "keep"):
            value = getattr(self, name)
            require(value >= 1, f"train.{name}", value, "at least 1")
        require(
            self.epochs is None or self.epochs > 0, "train.epochs", self.epochs, "above 0, or None"
        )
        require(
            0 <= self.label_smoothing < 1,
            "train.label_smoothing",
            self.label_smoothing,
            "a probability in [0, 1)",
        )
        require(self.keep_best >= 0, "train.keep_best", self.keep_best, "0 or more")
        require(
            self.keep_every is None or self.keep_every >= 1,
            "train.keep_every",
            self.keep_every,
            "at least 1, or None",
        )
        require(self.lm_weight >= 0, "train.lm_weight", self.lm_weight, "0 or more")
        require(self.eval_examples >= 0, "train.eval_examples", self.eval_examples, "0 or more")
        require(self.seed >= 0, "train.seed", self.seed, "0 or more")
