"""Saving checkpoints while training goes on, and deleting those that are not kept.

Orbax copies the arrays, then writes them from threads of its own under a temporary
name; checksums are added, and last of all the folder is renamed to its step's number.
Older checkpoints are deleted after that, never before. So whenever a process or a
machine stops, or the disk is full, the checkpoints that were there are there.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import PreservationPolicy

from transformer.errors import UserError
from transformer.parallel import hosts
from transformer.training.checkpoint import steps_in
from transformer.training.integrity import write_checksums
from transformer.training.meta import Meta, rank, rank_of, read_meta, write_validation
from transformer.training.orbax_noise import silence_orbax
from transformer.training.state import TrainState

_TEMPORARY = ".orbax-checkpoint-tmp"
_ASIDE = ".damaged"


class SaveFailed(UserError):
    """A checkpoint that is not on disk, and why: most often the disk is full."""

    exit_code = 1

    def __init__(self, what: str, directory: Path, error: Exception) -> None:
        super().__init__(f"cannot save {what} in {directory}: {_reason(error)}")


class Checkpoints:
    """Where one run saves its checkpoints.

    Saving happens in the background: `save` returns when the arrays are copied. Close it
    (it is a context manager) to have the last one on disk. Between two steps call `poll`,
    that a save that failed is not noticed only at the next.

    Args:
        directory: it is made; what an earlier process left unfinished in it is deleted.
        keep: this many latest ones are kept,
        keep_best: and this many of the best (see `rank`),
        keep_every: and all whose step is a multiple of this.
        say: is told of a save that failed, but the one of step 0 (nothing is lost by stopping
            then); without it, that is an error.

    Raises:
        UserError: the directory cannot be made.
    """

    def __init__(
        self,
        directory: Path,
        keep: int,
        keep_best: int = 1,
        keep_every: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.directory = Path(directory).absolute()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {self.directory}: {error.strerror}") from error
        silence_orbax()
        self._say = say
        self._saving: int | None = None
        self._unsaved: SaveFailed | None = None
        self._leftover: Path | None = None
        ranks = {step: rank_of(self.path(step)) for step in steps_in(self.directory)}
        self._policy = _Policy(ranks, keep, keep_best, keep_every)
        self._manager: ocp.CheckpointManager | None = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if kind is not None and hosts.several() and not getattr(error, "shared", False):
            return  # The others would be waited for, which may be gone.
        try:
            self.wait()
        except SaveFailed:
            if kind is None:
                raise
        finally:
            if self._manager is not None:
                self._manager.close()
            self._free()

    @property
    def last(self) -> int | None:
        """The latest step saved, or being saved."""
        steps = steps_in(self.directory)
        return max(steps, default=None) if self._saving is None else self._saving

    def path(self, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.directory / str(step)

    def save(self, state: TrainState, meta: Meta) -> None:
        """Saves ``state`` as step ``meta.step``, which must be later than all others.

        Raises:
            UserError: it is not later.
            SaveFailed: see `wait`; of the save before, too.
        """
        self.wait()
        if self.last is not None and meta.step <= self.last:
            raise UserError(
                f"cannot save step {meta.step} in {self.directory}: step {self.last} is there"
            )
        self._free()
        self._saving = meta.step
        self._policy.ranks[meta.step] = rank(meta)
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(asdict(meta))
        )
        try:
            self._manager = self._manager or self._opened()
            self._manager.save(meta.step, args=items)
        except OSError as error:
            if hosts.several():  # Nor can the others go on, which wait for this one's part.
                raise SaveFailed(f"step {meta.step}", self.directory, error) from error
            self._failed(error)

    def poll(self) -> None:
        """`wait`, where that takes no time; of several hosts none waits for the others here."""
        if hosts.several():
            return
        if self._manager is not None and not self._manager.is_saving_in_progress():
            self.wait()

    def require_saved(self, step: int) -> None:
        """`wait` for the last save, after which none makes good for one that failed.

        Raises:
            SaveFailed: ``step`` is not on disk.
        """
        self._say = None
        self.wait()
        if self.last != step and self._unsaved is not None:
            raise self._unsaved

    def wait(self) -> None:
        """Returns when the last save is complete on disk.

        Raises:
            SaveFailed: it is not, and there is no ``say`` to be told so.
        """
        if self._saving is None or self._manager is None:
            return
        failure: Exception | None = None
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except Exception as error:  # Orbax's threads raise what tensorstore does: any kind.
            failure = error
        failures = hosts.gather(failure and _reason(failure))
        if any(failures):
            self._failed(failure or OSError(next(filter(None, failures))))
        else:
            self._saving = self._unsaved = None

    def add_validation(self, step: int, metrics: dict[str, float]) -> None:
        """Metrics of an evaluation that was still owed when ``step`` was saved.

        Raises:
            SaveFailed: they cannot be written, and there is no ``say`` to be told so.
        """
        self._policy.ranks[step] = rank(replace(read_meta(self.path(step)), validation=metrics))
        if not hosts.first():
            return
        try:
            write_validation(self.path(step), metrics)
        except OSError as error:
            failed = SaveFailed(f"the metrics of step {step}", self.directory, error)
            if self._say is None:
                raise failed from error
            self._say(f"warning: {failed}")

    def _opened(self) -> ocp.CheckpointManager:
        return ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=self._policy,
                cleanup_tmp_directories=True,
                # Reads nothing of the checkpoints, which may be damaged.
                lightweight_initialize=True,
                async_options=ocp.AsyncOptions(
                    # Made in the background, a directory that cannot be made is found out late.
                    create_directories_asynchronously=False,
                    # Before the folder gets its name, not after, whatever the option's.
                    post_finalization_callback=self._seal,
                ),
            ),
        )

    def _seal(self) -> None:
        """Called by Orbax when all files of a checkpoint are written, before the renaming."""
        write_checksums(self.directory / f"{self._saving}{_TEMPORARY}")

    def _free(self) -> None:
        """Deletes what a failed save has left: its place may be what the next one lacks."""
        if not hosts.first():
            return
        # Threads whose write had begun may still end it, and make a file in there.
        deadline = time.monotonic() + 10
        while self._leftover and self._leftover.exists() and time.monotonic() < deadline:
            shutil.rmtree(self._leftover, ignore_errors=True)
            time.sleep(0.01)

    def _failed(self, error: Exception) -> None:
        step, self._saving = self._saving, None
        # Some of its threads would tell of their errors in the next save.
        if self._manager is not None:
            with suppress(Exception):
                self._manager.close()
        self._manager = None
        self._leftover = self.directory / f"{step}{_TEMPORARY}"
        self._free()
        self._unsaved = SaveFailed(f"step {step}", self.directory, error)
        self._unsaved.shared = True
        if step == 0 or self._say is None:
            raise self._unsaved from error
        self._say(f"warning: {self._unsaved}; training goes on, and the next save tries again")


class _Policy(PreservationPolicy):
    """`kept`, as Orbax asks for it."""

    def __init__(
        self, ranks: dict[int, float | None], keep: int, best: int, every: int | None
    ) -> None:
        self.ranks = ranks
        self._rule = keep, best, every

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        steps = [info.step for info in checkpoints]
        chosen = kept({step: self.ranks.get(step) for step in steps}, *self._rule)
        return [step in chosen for step in steps]


def kept(ranks: Mapping[int, float | None], keep: int, best: int, every: int | None) -> set[int]:
    """The steps to keep: the last ones, the best ones and multiples, 0 among these.

    Args:
        ranks: of each step there is; None where it was not evaluated.
        keep: how many of the latest.
        best: how many of those with the lowest rank; of equals, the latest.
        every: all multiples of this; None: none.
    """
    evaluated = [step for step in ranks if ranks[step] is not None]
    ranked = sorted(evaluated, key=lambda step: (ranks[step], -step))
    multiples = [step for step in ranks if every is not None and step % every == 0]
    return {*sorted(ranks)[-keep:], *ranked[:best], *multiples}


def set_aside(directory: Path, after: int) -> None:
    """Renames the checkpoints later than ``after``, which are damaged, out of the way.

    They get the name STEP.damaged, for a person to look at or to delete.

    Raises:
        UserError: it cannot be done.
    """
    for step in steps_in(directory):
        if step > after:
            path = directory / str(step)
            aside = path.with_name(path.name + _ASIDE)
            try:
                if aside.exists():
                    shutil.rmtree(aside)
                path.rename(aside)
            except OSError as error:
                raise UserError(f"cannot rename {path}: {error.strerror}") from error


def _reason(error: Exception) -> str:
    """Why a file could not be written, as the operating system says it."""
    # tensorstore's errors carry the number in their text only.
    number = re.search(r"os_error_code='(\d+)'", str(error))
    if number:
        return os.strerror(int(number[1]))
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).split("\n")[0] or type(error).__name__
