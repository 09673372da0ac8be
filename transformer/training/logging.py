"""Metrics to a JSONL file, TensorBoard event files and the console."""

import json
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

METRICS_FILE = "metrics.jsonl"


def read_metrics(workdir: str | Path) -> list[dict[str, Any]]:
    """All metrics of a run, in the order they were logged.

    Each is a dict with ``step``, ``split`` (``train`` or ``validation``) and numbers
    such as ``loss``. A last line that a killed process left unfinished is skipped.
    """
    path = Path(workdir) / METRICS_FILE
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line.endswith("}")]


class MetricsLog:
    """Appends metrics to ``metrics.jsonl`` and to TensorBoard files under ``tensorboard/``.

    What the files hold beyond ``step`` is cut, so that a resumed run logs no step twice.
    """

    def __init__(self, workdir: Path, step: int) -> None:
        kept = [json.dumps(line) + "\n" for line in read_metrics(workdir) if line["step"] <= step]
        path = workdir / METRICS_FILE
        rewritten = path.with_suffix(".tmp")
        rewritten.write_text("".join(kept), encoding="utf-8")
        os.replace(rewritten, path)
        self._file = path.open("a", encoding="utf-8")
        # Not at the top: it loads protobuf, which the first step need not wait for.
        from tensorboardX import SummaryWriter

        self._board = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._board.close()

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Logs ``values`` of one split after ``step``."""
        self._file.write(json.dumps({"step": step, "split": split, **values}) + "\n")
        self._file.flush()
        for name, value in values.items():
            self._board.add_scalar(f"{split}/{name}", value, step)


class ConsoleReport:
    """Shows a run: a progress bar on a terminal, otherwise a line each time metrics are logged."""

    _WINDOW = 50
    """Steps that the shown loss, speed and time left are taken over."""

    def __init__(self, console: Console, step: int, total: int, unit: str = "tokens") -> None:
        self._console, self._total, self._unit = console, total, unit
        self._idle, self._status = 0.0, ""
        # Of each step: when it ended, its tokens (or examples), the sum of their losses.
        self._recent = deque([(self.clock(), 0.0, 0.0)], self._WINDOW + 1)
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("train", total=total, completed=step, status=self._status)

    def __enter__(self) -> "ConsoleReport":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def clock(self) -> float:
        """Seconds spent on training steps; stands still within `paused`."""
        return time.perf_counter() - self._idle

    @contextmanager
    def paused(self, status: str) -> Iterator[None]:
        """For work between steps, which says nothing about the speed of training."""
        start = time.perf_counter()
        self._bar.update(self._task, status=status)
        try:
            yield
        finally:
            self._idle += time.perf_counter() - start
            self._bar.update(self._task, status=self._status)

    def advance(self, step: int, loss: float, learning_rate: float, tokens: float) -> None:
        """Shows one finished step, with its mean loss and target tokens."""
        self._recent.append((self.clock(), tokens, loss * tokens))
        seconds = self._recent[-1][0] - self._recent[0][0]
        _, counts, losses = zip(*list(self._recent)[1:], strict=True)
        mean = sum(losses) / max(sum(counts), 1.0)
        rate = sum(counts) / max(seconds, 1e-9)
        left = seconds / (len(self._recent) - 1) * (self._total - step)
        self._status = (
            f"loss {mean:.4f}  lr {learning_rate:.2e}  {rate:,.0f} {self._unit}/s  "
            f"{_duration(left)} left"
        )
        self._bar.update(self._task, completed=step, status=self._status)

    def logged(self, step: int) -> None:
        """Where there is no progress bar, prints what it would show."""
        if not self._console.is_terminal:
            self.line(f"step {step}/{self._total}  {self._status}")

    def line(self, text: str) -> None:
        """Prints a line, above the progress bar."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
