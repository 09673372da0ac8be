"""Ctrl-C and SIGTERM as a request to stop between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):
    """Raised inside `StopRequest.interrupting` when a stop is requested."""


class StopRequest:
    """While entered, the first SIGINT or SIGTERM is noted; a second SIGINT raises as usual.

    Signals reach Python's main thread only; elsewhere this does nothing.

    Args:
        at_once: whether `interrupting` may stop work in its midst, which must not be where others
            have a part in it.
    """

    def __init__(self, at_once: bool = True) -> None:
        self._at_once = at_once
        self.signal: int | None = None
        """Number of the signal that asked to stop."""
        self._interrupting = False
        self._previous: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
        if self._interrupting:
            raise Interrupted

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within this, a stop request raises `Interrupted` at once: for work one may drop."""
        if self.signal is not None and self._at_once:
            raise Interrupted
        self._interrupting = self._at_once
        try:
            yield
        finally:
            self._interrupting = False
