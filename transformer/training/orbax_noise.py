"""What Orbax's threads print of errors that it raises as well."""

import logging
import os
import sys
from typing import Any

_previous_hook = sys.unraisablehook


def silence_orbax() -> None:
    """From here on an error in writing or reading is what is raised, and nothing besides.

    Orbax logs each with several tracebacks. And where one of many files fails, those under
    way find at their end that nobody waits for them any more (asyncio's "Event loop is
    closed"), which the interpreter prints.
    """
    global _previous_hook
    logging.getLogger("absl").addFilter(_not_from_orbax)
    if sys.unraisablehook is not _hook:
        _previous_hook = sys.unraisablehook
        sys.unraisablehook = _hook


def _not_from_orbax(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR or f"{os.sep}orbax{os.sep}" not in record.pathname


def _hook(unraisable: Any) -> None:
    late = unraisable.object is None and str(unraisable.exc_value) == "Event loop is closed"
    if not late:
        _previous_hook(unraisable)
