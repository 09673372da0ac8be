"""Lines of text in, lines of text out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformer.config import DecodeConfig
from transformer.data.tokenizer import Tokenizer, check_ids
from transformer.decoding.beam import Vocabulary
from transformer.decoding.continuous import Progress, decode_all
from transformer.errors import UserError
from transformer.models.seq2seq import Seq2Seq

OnCut = Callable[[int, int], None]
"""Called with (index of a line, tokens it has) when it is too long to be translated whole."""


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search.

    Attributes:
        text: what the ids say.
        ids: target tokens, without begin and end.
        score: ``log p / length_penalty``, natural logarithm, the end symbol counted.
    """

    text: str
    ids: list[int]
    score: float


class Translator:
    """Translates text with a trained model.

    The compiled programs belong to the model's and the search's settings, not to the
    object: a translator with newer parameters costs nothing.

    Args:
        model: the network.
        params: its parameters.
        tokenizer: of both sides; the model's table may have more rows than it has ids.
        config: the search.

    Raises:
        UserError: the model's vocabulary is smaller than the tokenizer's.
    """

    def __init__(self, model: Seq2Seq, params: Any, tokenizer: Tokenizer, config: DecodeConfig):
        self.model, self.params = model, params
        self.tokenizer, self.config = tokenizer, config
        self.vocabulary = Vocabulary.of(model.config, tokenizer)

    def translate(
        self,
        lines: Sequence[str],
        n_best: int = 1,
        progress: Progress | None = None,
        on_cut: OnCut | None = None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` hypotheses of each line, best first; as many lists as lines.

        A blank line gives one blank hypothesis. A line of more than
        ``config.max_source_length`` tokens is cut there; an output has at most
        ``config.extra_length`` tokens more than its source. Fewer than `n_best` hypotheses
        come back only where the vocabulary has no more.

        Args:
            lines: text; an end of line is ignored.
            n_best: at most ``config.beam_size``.
            progress: called with (lines done, lines that are not blank).
            on_cut: called for each line that is cut, see `OnCut`.

        Raises:
            UserError: `n_best` is not in 1 ... ``config.beam_size``, or the model gives NaN.
        """
        if not 1 <= n_best <= self.config.beam_size:
            raise UserError(
                f"n_best = {n_best}: expected 1 to decode.beam_size = {self.config.beam_size}"
            )
        filled = {i: line.rstrip("\r\n") for i, line in enumerate(lines) if line.strip()}
        encoded = self.tokenizer.encode_sources(list(filled.values()))
        longest = self.config.max_source_length
        for i, ids in zip(filled, encoded, strict=True):
            check_ids(ids, self.tokenizer.vocab_size)
            if len(ids) >= longest and on_cut is not None:
                on_cut(i, len(ids) + 1)
        end = self.vocabulary.end
        sources = [[*ids[: longest - 1], end] for ids in encoded]
        outputs = decode_all(
            self.model, self.params, sources, self.config, self.vocabulary, n_best, progress
        )
        translations = [[Hypothesis("", [], 0.0)] for _ in lines]
        for i, found in zip(filled, outputs, strict=True):
            if not found:
                raise UserError(f"line {i + 1}: expected probabilities of the model, found NaN")
            translations[i] = [Hypothesis(self._line(ids), ids, score) for ids, score in found]
        return translations

    def _line(self, ids: list[int]) -> str:
        """What ids say, in one line: a model may have learned to write a line's end."""
        return re.sub(r"[\r\n]+", " ", self.tokenizer.decode_target(ids))
