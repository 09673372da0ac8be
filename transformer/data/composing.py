"""How one or two texts become the sequence that a network reads.

A decoder reads ``<start> text <end>``, or ``<start> text <delimiter> text2 <end>``, with ids that
are new to it (Radford et al. 2018, section 3.3); an encoder ``[CLS] text [SEP]``, or
``[CLS] text [SEP] text2 [SEP]``, with the ids of its own tokenizer (Devlin et al. 2019, figure 2).
"""

from typing import NamedTuple

import numpy as np

from transformer.data.extended_tokenizer import END, START, ExtendedTokenizer, extended
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

DELIMITER = "<delimiter>"
DELIMITERS = (START, DELIMITER, END)
"""What a decoder's tokenizer gains for labelled texts."""


class Layout(NamedTuple):
    """The ids around one text or two.

    Attributes:
        begin: before the first text.
        between: between the two of a pair.
        end: after the last text.
        extract: whether the network reads the answer off the last token (GPT-1), not the first.
        typed: whether the second text has a type of its own (RoBERTa's has not).
    """

    begin: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    extract: bool
    typed: bool


def with_delimiters(tokenizer: Tokenizer) -> ExtendedTokenizer:
    """`tokenizer` with the start, delimiter and end tokens, whose embeddings are new."""
    return extended(tokenizer, DELIMITERS)


def layout_of(tokenizer: Tokenizer) -> Layout:
    """A decoder's if `tokenizer` is from `with_delimiters`, else an encoder's.

    Raises:
        UserError: an encoder's tokenizer has no begin or no end symbol.
    """
    if isinstance(tokenizer, ExtendedTokenizer) and tokenizer.names == DELIMITERS:
        start, delimiter, end = ((tokenizer.id_of(name),) for name in DELIMITERS)
        return Layout(start, delimiter, end, True, False)
    begin, end = tokenizer.special.begin, tokenizer.special.end
    if begin < 0 or end < 0:
        raise UserError(
            "data.tokenizer: it has no begin or no end symbol (such as [CLS] and [SEP]), which "
            "an encoder's sequences need"
        )
    between = (end,) * tokenizer.separators
    return Layout((begin,), between, (end,), False, len(between) == 1)


class Composer:
    """Puts the tokens of a text, or of a pair, together.

    Args:
        layout: what stands around them.
        paired: whether the examples are pairs.
        max_length: most tokens of a sequence; of a longer text the end is cut off, of a pair
            that of the longer text first.
    """

    def __init__(self, layout: Layout, paired: bool, max_length: int) -> None:
        self._begin, self._between, self._end = (
            np.array(ids, np.int32) for ids in (layout.begin, layout.between, layout.end)
        )
        self._paired, self._typed = paired, layout.typed
        self.added = len(layout.begin) + len(layout.end) + len(layout.between) * paired
        """Tokens that are of no text."""
        self._room = max_length - self.added

    def lengths(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens of each text are kept, given how many there are: int ``[N]`` each."""
        if not self._paired:
            return np.minimum(first, self._room), np.zeros_like(first)
        kept = np.minimum(second, np.maximum(self._room // 2, self._room - first))
        return np.minimum(first, self._room - kept), kept

    def total(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The length of each sequence, given those of its texts: int ``[N]``."""
        kept = self.lengths(first, second)
        return kept[0] + kept[1] + self.added

    def cuts(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Whether a text loses tokens, given how many both have: bool ``[N]``."""
        return self.total(first, second) < first + second + self.added

    def compose(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One example: its tokens, and their types, int32 both.

        The type is 1 of the second text and what follows it, else 0.
        """
        a, b = self.lengths(np.array([len(first)]), np.array([len(second)]))
        parts = [self._begin, first[: a[0]]]
        if self._paired:
            parts += [self._between, second[: b[0]]]
        tokens = np.concatenate([*parts, self._end]).astype(np.int32)
        types = np.zeros_like(tokens)
        if self._paired and self._typed:
            types[len(tokens) - len(self._end) - b[0] :] = 1
        return tokens, types


def padded(sequences: list[np.ndarray], rows: int, length: int, fill: int) -> np.ndarray:
    """Sequences as rows of `length`, filled up; those that are missing are filled throughout."""
    table = np.full((rows, length), fill, np.int32)
    for row, sequence in enumerate(sequences):
        table[row, : len(sequence)] = sequence
    return table
