"""How text is generated."""

import dataclasses
import math
from dataclasses import dataclass

from transformer.config.require import require


@dataclass(frozen=True)
class SamplingConfig:
    """How a token is drawn.

    The filters apply in the order of the settings, each to what the one before has left.
    """

    temperature: float = 1.0
    """Logits are divided by it; 0 always takes the most probable token (greedy)."""
    top_k: int | None = None
    """Draw from the so many most probable tokens only; None: from all."""
    top_p: float = 1.0
    """Draw from the fewest most probable tokens that have this probability together; the one
    that crosses it is among them; 1: from all."""
    min_p: float = 0.0
    """Draw from the tokens at least this times as probable as the most probable one."""

    def __post_init__(self) -> None:
        require(
            0 <= self.temperature < math.inf,
            "temperature",
            self.temperature,
            "0 (greedy) or above",
        )
        require(
            self.top_k is None or self.top_k >= 1, "top_k", self.top_k, "at least 1, or None (all)"
        )
        require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        require(0 <= self.min_p <= 1, "min_p", self.min_p, "0 to 1")


@dataclass(frozen=True)
class GenerateConfig(SamplingConfig):
    """Text that goes on from a prompt: sampling, or a beam's search for the most probable."""

    max_new_tokens: int = 100
    """Most tokens generated after the prompt."""
    samples: int = 1
    """Texts drawn for a prompt; with a beam, the best so many."""
    seed: int = 0
    """A text depends on its prompt, the settings, the seed and its number among the samples, and
    on nothing else that is generated."""
    stop: tuple[str, ...] = ()
    """Texts that end an output, which is cut before them."""
    begin: bool = False
    """Precede the prompt by the tokenizer's begin token, as a new document (Llama expects it)."""
    context: int | None = None
    """Where model.max_positions are used up, go on from the last so many tokens, read anew;
    None: refuse prompts and lengths that would use them up."""
    beam_size: int = 1
    """Above 1: beam search with so many hypotheses, which draws nothing."""
    length_penalty: float = 0.6
    """Of beam search: score = log p / ((5 + length) / 6) ** length_penalty."""
    batch_size: int = 8
    """Texts generated together; the result does not depend on it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_new_tokens", "samples", "beam_size", "batch_size"):
            value = getattr(self, name)
            require(value >= 1, name, value, "at least 1")
        require(0 <= self.seed < 2**32, "seed", self.seed, "0 to 2**32 - 1")
        require(all(self.stop), "stop", self.stop, "texts that are not empty")
        require(self.context is None or self.context >= 1, "context", self.context, "at least 1")
        require(self.length_penalty >= 0, "length_penalty", self.length_penalty, "0 or more")
        if self.beam_size == 1:
            return
        neutral = {f.name: f.default for f in dataclasses.fields(SamplingConfig)}
        for name, default in {**neutral, "context": None}.items():
            value = getattr(self, name)
            require(value == default, name, value, f"{default} with beam_size > 1")
        require(
            self.samples <= self.beam_size,
            "samples",
            self.samples,
            f"at most beam_size = {self.beam_size}",
        )

    @property
    def sampling(self) -> SamplingConfig:
        """The part that decides what is compiled."""
        fields = dataclasses.fields(SamplingConfig)
        return SamplingConfig(**{f.name: getattr(self, f.name) for f in fields})
