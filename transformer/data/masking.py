"""Which tokens of a sequence are hidden, and by what (Devlin et al. 2019, section 3.1)."""

import numpy as np

from transformer.data.extended_tokenizer import ExtendedTokenizer
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

MASKED, RANDOM = 0.8, 0.1
"""Of the chosen tokens: the part that becomes the mask, and that becomes a random token. The rest
stay as they are."""

# How vocabularies tell what goes on inside a word: a mark of such pieces, or of all others.
_INSIDE, _BEGINS = "##", ("▁", "Ġ")


def chosen_count(tokens: int, density: float) -> int:
    """How many of so many tokens that are not special are chosen, at most."""
    return min(max(round(tokens * density), 1), tokens)


class Masker:
    """Hides tokens; all of them are to be told from what is left.

    Special tokens (padding, begin, end, unknown, mask, and all that are not of a text) are
    neither chosen nor drawn. Of a sequence's other tokens ``round(density * tokens)`` are chosen,
    one at least.

    With `whole_words` words are chosen, all tokens of each, in random order as long as they fit
    into that number (as in the published program, so there may be fewer).

    Attributes:
        ordinary: bool ``[V]``, the ids that are not special.

    Args:
        tokenizer: with a mask id; see `with_mask`.
        density: the part of the tokens that is chosen.
        whole_words: see above.

    Raises:
        UserError: `whole_words`, and the vocabulary does not tell words apart.
    """

    def __init__(self, tokenizer: Tokenizer, density: float, whole_words: bool = False) -> None:
        self._mask, self._density = tokenizer.mask, density
        self.ordinary = ordinary_ids(tokenizer)
        self._drawn = np.flatnonzero(self.ordinary).astype(np.int32)
        self._inside = _inside_words(tokenizer) if whole_words else None

    def count(self, tokens: int) -> int:
        """`chosen_count` of its density."""
        return chosen_count(tokens, self._density)

    def __call__(
        self, tokens: np.ndarray, bits: np.random.BitGenerator
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tokens with some hidden, and the places of those, ascending.

        Args:
            tokens: int32 ``[T]``.
            bits: source of randomness.

        Returns:
            int32 ``[T]`` and int64 ``[chosen]``.
        """
        free = np.flatnonzero(self.ordinary[tokens])
        if not len(free):
            return tokens.copy(), free
        most = self.count(len(free))
        if self._inside is None:
            places = free[_order(len(free), bits)[:most]]
        else:
            places = self._words(tokens, free, most, bits)
        places = np.sort(places)
        hidden = tokens.copy()
        # Raw output, because its stream is the same in every NumPy version.
        lot = (bits.random_raw(len(places)) >> np.uint64(11)) * 2.0**-53
        drawn = self._drawn[bits.random_raw(len(places)) % np.uint64(len(self._drawn))]
        hidden[places] = np.where(
            lot < MASKED, self._mask, np.where(lot < MASKED + RANDOM, drawn, tokens[places])
        )
        return hidden, places

    def _words(
        self, tokens: np.ndarray, free: np.ndarray, most: int, bits: np.random.BitGenerator
    ) -> np.ndarray:
        """The places of whole words, at most so many."""
        assert self._inside is not None
        begins = ~self._inside[tokens[free]]
        begins[np.flatnonzero(np.diff(free, prepend=-2) > 1)] = True  # after a special token
        words = np.split(free, np.flatnonzero(begins)[1:])
        chosen: list[np.ndarray] = []
        left = most
        for number in _order(len(words), bits):
            if len(words[number]) <= left:
                chosen.append(words[number])
                left -= len(words[number])
        return np.concatenate(chosen) if chosen else free[:0]


def ordinary_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Which ids stand for text: bool ``[V]``."""
    ids = tokenizer.special
    special = np.array([ids.pad, ids.begin, ids.end, *ids.never, *ids.also_ends, tokenizer.mask])
    ordinary = np.ones(tokenizer.vocab_size, bool)
    ordinary[special[special >= 0]] = False
    base = tokenizer
    while isinstance(base, ExtendedTokenizer):
        base = base.base
        ordinary[base.vocab_size :] = False
    return ordinary


def unigram_entropy(tokens: np.ndarray, ordinary: np.ndarray) -> float:
    """Nats a token of the best model that knows no more than how often each token occurs here.

    Args:
        tokens: int, of a text.
        ordinary: bool ``[V]``; other tokens are not counted.
    """
    counts = np.bincount(tokens, minlength=len(ordinary))[ordinary].astype(np.float64)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _order(count: int, bits: np.random.BitGenerator) -> np.ndarray:
    return np.argsort(bits.random_raw(count), kind="stable")


def _inside_words(tokenizer: Tokenizer) -> np.ndarray:
    """Which ids go on inside a word: bool ``[V]``."""
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    if any(piece.startswith(_INSIDE) and len(piece) > len(_INSIDE) for piece in pieces):
        return np.array([piece.startswith(_INSIDE) for piece in pieces])
    for mark in _BEGINS:
        if any(piece.startswith(mark) for piece in pieces):
            return np.array([not piece.startswith(mark) for piece in pieces])
    raise UserError(
        f"data.whole_words = True: the vocabulary ({tokenizer.kind}) does not tell words apart; "
        "expected WordPiece or sentencepiece"
    )
