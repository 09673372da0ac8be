"""From a trained model to text: beam search, batching, translation."""

from transformer.decoding.beam import Vocabulary, beam_search
from transformer.decoding.translate import Hypothesis, Translator

__all__ = ["Hypothesis", "Translator", "Vocabulary", "beam_search"]
