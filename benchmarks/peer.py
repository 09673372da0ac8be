"""Another program on the same work, run between our rounds so that both see the same machine."""

import re
import shlex
import statistics
import subprocess
from collections.abc import Callable

from transformer.errors import UserError


def alternate(ours: Callable[[], float], peer: str | None, unit: str, rounds: int) -> str:
    """Measures ours and the peer in turn.

    Args:
        ours: measures our speed once, in `unit`.
        peer: a shell command whose output has a number before `unit`; None: ours alone.
        unit: as the peer writes it, such as "tgt tok/s".
        rounds: how often.

    Returns:
        Medians, ranges, and the median of the rounds' ratios.
    """
    mine, theirs = [], []
    for _ in range(rounds):
        mine.append(ours())
        if peer is not None:
            theirs.append(_run(peer, unit))
    lines = [f"ours: {_summary(mine)} {unit}"]
    if theirs:
        ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
        lines += [f"peer: {_summary(theirs)} {unit}", f"ratio: {_summary(ratios, '.2f')}"]
    return "\n".join(lines)


def _run(command: str, unit: str) -> float:
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    found = re.findall(rf"([\d.,]+) {re.escape(unit)}", done.stdout)
    if done.returncode or not found:
        last = (done.stderr or done.stdout).strip().split("\n")[-1]
        raise UserError(f"--peer: no '{unit}' in the output (exit code {done.returncode}): {last}")
    return float(found[-1].replace(",", ""))


def _summary(values: list[float], form: str = ",.0f") -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:{form}} [{low:{form}} .. {high:{form}}]"
