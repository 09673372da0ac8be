"""Tokens to text piece by piece, as they come."""

from collections.abc import Iterable, Sequence

from transformer.data.tokenizer import Tokenizer

_INCOMPLETE = "\ufffd"
# A character has at most 4 bytes in UTF-8, so an incomplete one is at most 3 tokens.
_MOST_PENDING = 3
# Tokens of the prompt that are decoded along: tokenizers treat the beginning of a text in ways
# of their own.
_OVERLAP = 6


class TextPieces:
    """Turns the tokens of an output into pieces of text that never need to be taken back.

    Half a character is held back until its other bytes have come, and so is what may become a
    stop string. Together the pieces are the whole text, or what is before the stop string.

    Args:
        tokenizer: its target side is used.
        prompt: the ids that the output follows.
        stop: texts that end the output.

    Attributes:
        ids: the tokens so far.
        text: the pieces so far.
        stopped: whether a stop string has come.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = (), stop: Iterable[str] = ()):
        self.ids: list[int] = []
        self.text, self.stopped = "", False
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        # The latest tokens; the text of the first so many is in `text` or held back.
        self._window = list(prompt[-_OVERLAP:])
        self._known, self._held = len(self._window), ""

    def push(self, token: int) -> str:
        """One more token: the text that is certain now, often ""."""
        self.ids.append(token)
        self._window.append(token)
        return self._release(self._decoded(final=False), final=False)

    def finish(self) -> str:
        """No more tokens: what was held back."""
        return "" if self.stopped else self._release(self._decoded(final=True), final=True)

    def _decoded(self, final: bool) -> str:
        """The text of the tokens that are complete characters and not known yet."""
        count = len(self._window)
        text = self._decode(count)
        if text.endswith(_INCOMPLETE) and not final:
            count -= _MOST_PENDING
            if count <= self._known or not text.startswith(self._decode(count)):
                return ""
            text = self._decode(count)
        new = text[len(self._decode(self._known)) :]
        # What is known now is enough of a past for what comes, unless it is no text.
        start = self._known if new else 0
        self._window, self._known = self._window[start:], count - start
        return new

    def _decode(self, count: int) -> str:
        return self._tokenizer.decode_target(self._window[:count])

    def _release(self, new: str, final: bool) -> str:
        held = self._held + new
        found = [held.index(stop) for stop in self._stop if stop in held]
        if found:
            self.stopped, kept = True, min(found)
        elif final:
            kept = len(held)
        else:
            kept = len(held) - max((_overlap(held, stop) for stop in self._stop), default=0)
        self._held = "" if self.stopped else held[kept:]
        self.text += held[:kept]
        return held[:kept]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` may be the beginning of `stop`."""
    lengths = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((n for n in lengths if text.endswith(stop[:n])), 0)
