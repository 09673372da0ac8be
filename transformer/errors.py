"""The one exception a user's mistake raises."""

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(ValueError):
    """A mistake the user can mend: a setting, a file, a shape, an id.

    The message says what was found, what was expected and where (``file:line``, a
    setting such as ``model.num_heads``, or a parameter path). The command line prints
    it without a traceback and exits with `exit_code`.
    """

    exit_code = 2
    shared = False
    """Whether every process of a training raises it, so that one of them says it."""


def did_you_mean(found: str, known: Iterable[str], show: str = "{}") -> str:
    """``"; did you mean X?"`` for the nearest known name, or "" where none is near.

    Args:
        found: what the user wrote.
        known: the names that exist.
        show: how the name is written, "{}" standing for it.
    """
    near = difflib.get_close_matches(found, list(known), n=1, cutoff=0.5)
    return f"; did you mean {show.format(near[0])}?" if near else ""


def did_you_mean_file(path: Path, pattern: str = "*", show: str = "{}") -> str:
    """`did_you_mean` for a file that is missing, among those beside it that match `pattern`."""
    names = [entry.name for entry in path.parent.glob(pattern)]
    return did_you_mean(path.name, names, show)
