"""Metrics to a JSONL file, TensorBoard event files and the console."""

import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
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
    On a full disk nothing is raised: lines of ``metrics.jsonl`` wait until there is place
    again, TensorBoard's are lost.

    Args:
        workdir: of the run.
        step: after which it goes on.
        say: is told when the files cannot be written.
    """

    def __init__(self, workdir: Path, step: int, say: Callable[[str], None] = print) -> None:
        kept = [json.dumps(line) + "\n" for line in read_metrics(workdir) if line["step"] <= step]
        path = workdir / METRICS_FILE
        rewritten = path.with_suffix(".tmp")
        rewritten.write_text("".join(kept), encoding="utf-8")
        os.replace(rewritten, path)
        # Without a buffer, so that it is known what is on disk and what is not.
        self._file = path.open("ab", buffering=0)
        self._unwritten = b""
        self._board = _Board(workdir / "tensorboard", step + 1)
        self._workdir, self._say, self._failing = workdir, say, False

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._try(self._flush)
        self._try(self._file.close)
        self._try(self._board.close)

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Logs ``values`` of one split after ``step``."""
        line = json.dumps({"step": step, "split": split, **values}) + "\n"
        self._unwritten += line.encode()
        written = self._try(self._flush)
        scalars = {f"{split}/{name}": value for name, value in values.items()}
        if self._try(self._board.write, step, scalars) and written:
            self._failing = False

    def _try(self, write: Callable[..., None], *arguments: Any) -> bool:
        """Whether it succeeded; the first of several failures is told."""
        try:
            write(*arguments)
        except OSError as error:
            if not self._failing:
                self._say(f"warning: cannot write metrics in {self._workdir}: {error.strerror}")
            self._failing = True
            return False
        return True

    def _flush(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]


class _Board:
    """A TensorBoard event file, written by the caller's thread.

    (`tensorboardX.SummaryWriter` has a thread of its own, which a full disk ends with a
    traceback; the eleventh value after that waits for ever.)
    """

    _FLUSH_SECONDS = 120

    def __init__(self, directory: Path, purge_step: int) -> None:
        self._directory, self._purge_step = directory, purge_step
        self._records: Any = None
        self._flushed = 0.0

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Raises OSError, after which the next call begins a new file."""
        # Not at the top: it loads protobuf, which the first step need not wait for.
        from tensorboardX.proto import event_pb2
        from tensorboardX.summary import scalar

        proto: Any = event_pb2  # its classes are made when it is loaded
        try:
            records = self._records or self._opened(proto)
            for name, value in scalars.items():
                self._add(proto.Event(step=step, summary=scalar(name, value)))
            if time.monotonic() - self._flushed > self._FLUSH_SECONDS:
                records.flush()
                self._flushed = time.monotonic()
        except OSError:
            with suppress(OSError):
                self.close()
            raise

    def _opened(self, proto: Any) -> Any:
        from tensorboardX.record_writer import RecordWriter

        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"
        self._records, self._flushed = RecordWriter(str(self._directory / name)), 0.0
        self._add(proto.Event(file_version="brain.Event:2"))
        # What other files hold from this step on is not shown.
        start = proto.SessionLog(status=proto.SessionLog.START)
        self._add(proto.Event(step=self._purge_step, session_log=start))
        return self._records

    def _add(self, event: Any) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())

    def close(self) -> None:
        """Raises OSError."""
        records, self._records = self._records, None
        if records is not None:
            records.close()


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
