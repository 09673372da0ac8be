"""How outputs are searched for."""

from dataclasses import dataclass

from transformer.config.require import require


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
            require(value >= 1, f"decode.{name}", value, "at least 1")
        require(self.length_penalty >= 0, "decode.length_penalty", self.length_penalty, "0 or more")
        require(self.extra_length >= 0, "decode.extra_length", self.extra_length, "0 or more")
