"""Checkpoints on disk: training state, and all that is needed to use the model elsewhere.

A run's directory holds ``checkpoints/STEP/``, each with the items ``state`` (the
`TrainState`) and ``meta`` (JSON: configuration, tokenizer, data fingerprint,
validation metrics). Orbax writes a checkpoint under a temporary name and renames
it when complete, so what bears a step's number is whole.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import AnyPreservationPolicy, BestN, LatestN

from transformer.config import Config, from_dict
from transformer.errors import UserError
from transformer.training.state import TrainState

FORMAT = 1
"""Version of the layout; raised when older programs could not read a checkpoint."""


@dataclass(frozen=True)
class Meta:
    """What a checkpoint says besides its arrays, as JSON types."""

    step: int
    config: dict[str, Any]
    """The whole `Config` (`transformer.config.to_dict`), with the vocabulary's size filled in."""
    tokenizer: dict[str, Any]
    """`Tokenizer.to_json()`."""
    fingerprint: str
    """Identifies the training data, token by token."""
    validation: dict[str, float] | None = None
    """Metrics on the validation split after this step, where it was evaluated."""
    interval: dict[str, float] | None = None
    """Sums of training metrics since the last logged step."""
    format: int = FORMAT


class Loaded(NamedTuple):
    """A checkpoint as far as decoding needs it."""

    config: Config
    tokenizer: dict[str, Any]
    params: Any
    step: int


class Checkpoints:
    """The checkpoints of one run: the latest ``keep``, and the best by validation loss.

    Saving happens in the background: `save` returns when the arrays are copied.
    Close it (it is a context manager) to have the last one on disk. A save that
    failed raises at the next call.

    Raises:
        UserError: the directory cannot be made.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = Path(directory).absolute()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {self.directory}: {error.strerror}") from error
        keep_best = BestN(get_metric_fn=_loss, reverse=True, n=1)
        self._manager = ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                best_fn=_loss,
                best_mode="min",
                preservation_policy=AnyPreservationPolicy([LatestN(keep), keep_best]),
                cleanup_tmp_directories=True,
                # Made in the background, a directory that cannot be made is found out late.
                async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
            ),
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    @property
    def last(self) -> int | None:
        """The latest step saved."""
        return self._manager.latest_step()

    def path(self, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.directory / str(step)

    def save(self, state: TrainState, meta: Meta, replace: bool = False) -> None:
        """Saves ``state`` as step ``meta.step``, which must be later than all others.

        With ``replace`` it may be the last one, which is then deleted first.

        Raises:
            UserError: the directory cannot be written.
        """
        # Every checkpoint has a loss, so that those never evaluated are not kept as the best.
        loss = (meta.validation or {}).get("loss", math.inf)
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(asdict(meta))
        )
        try:
            if replace and meta.step == self.last:
                self._manager.delete(meta.step)
            saved = self._manager.save(meta.step, args=items, metrics={"loss": loss})
        except OSError as error:
            raise UserError(f"cannot save {self.path(meta.step)}: {error}") from error
        if not saved:
            raise UserError(
                f"cannot save step {meta.step} in {self.directory}: step {self.last} is there"
            )

    def wait(self) -> None:
        """Returns when the last save is complete on disk; raises `UserError` if it failed."""
        try:
            self._manager.wait_until_finished()
            self._manager.check_for_errors()
        except OSError as error:
            raise UserError(f"cannot save in {self.directory}: {error}") from error

    def meta(self, step: int) -> Meta:
        """What the checkpoint of ``step`` says about itself."""
        return _read_meta(self.path(step))

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The state saved at ``step``.

        Args:
            like: the state's shapes, as from ``jax.eval_shape(init_state, ...)``.

        Raises:
            UserError: ``like`` has other parameters; lists each path with both shapes.
        """
        item = self.path(step) / "state"
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as reader:
            saved = _saved_tree(item)
            require_same_shapes(saved["params"], like.params, self.path(step))
            require_same_shapes(saved, like, self.path(step))
            return reader.restore(item, args=ocp.args.StandardRestore(_on_device(like)))


def last_meta(directory: Path) -> Meta | None:
    """What the latest checkpoint in ``directory`` says about itself; None if there is none."""
    steps = ocp.utils.checkpoint_steps(directory) if directory.is_dir() else []
    return _read_meta(directory.absolute() / str(max(steps))) if steps else None


def find(path: str | Path) -> Path:
    """The checkpoints folder for ``path``: a run's working directory or that folder itself.

    Raises:
        UserError: there is no checkpoint.
    """
    path = Path(path).absolute()
    for directory in (path / "checkpoints", path):
        if directory.is_dir() and ocp.utils.checkpoint_steps(directory):
            return directory
    found = "no checkpoint in it" if path.is_dir() else "no such directory"
    raise UserError(f"{path}: {found}; expected the --workdir of a training run")


def load_for_inference(path: str | Path, step: int | str = "best") -> Loaded:
    """Loads parameters, configuration and tokenizer; changes nothing on disk.

    Args:
        path: a run's working directory, its ``checkpoints`` folder, or a single
            checkpoint's folder (where ``step`` is not looked at).
        step: ``"best"`` (lowest validation loss; the last one if none was evaluated),
            ``"last"``, a step's number, or ``"average:N"`` for the mean of the last N.

    Raises:
        UserError: there is no such checkpoint.
    """
    chosen = _locate(path, step)
    meta = _read_meta(chosen[-1])
    params = _read_params(chosen[0]) if len(chosen) == 1 else average(map(_read_params, chosen))
    return Loaded(from_dict(meta.config), meta.tokenizer, params, meta.step)


def load_config(path: str | Path, step: int | str = "best") -> Config:
    """The configuration alone; arguments and errors as of `load_for_inference`."""
    return from_dict(load_meta(path, step).config)


def load_meta(path: str | Path, step: int | str = "best") -> Meta:
    """All but the parameters; arguments and errors as of `load_for_inference`."""
    return _read_meta(_locate(path, step)[-1])


def average(trees: Any) -> Any:
    """The mean of parameter trees, leaf by leaf, in float64 (paper section 6.1).

    The average of trees that are all equal is that tree, bit for bit. A tied
    parameter is one leaf, so it counts once.

    Args:
        trees: an iterable of trees of the same structure; one is held at a time.
    """
    total, count = None, 0
    for tree in trees:
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
        total = wide if total is None else jax.tree.map(np.add, total, wide)
        count += 1
    if total is None:
        raise UserError("average: found no checkpoints, expected at least 1")
    return jax.tree.map(lambda x: (x / count).astype(np.float32), total)


def _locate(path: str | Path, step: int | str) -> list[Path]:
    """The folders of the checkpoints that are asked for, oldest first."""
    path = Path(path).absolute()
    if (path / "state").is_dir() and (path / "meta").is_dir():
        return [path]
    directory = find(path)
    return [directory / str(number) for number in _choose(directory, step)]


def _choose(directory: Path, step: int | str) -> Sequence[int]:
    steps = sorted(ocp.utils.checkpoint_steps(directory))
    if step == "last":
        return steps[-1:]
    if step == "best":
        losses = {s: (_read_meta(directory / str(s)).validation or {}).get("loss") for s in steps}
        evaluated = [s for s in steps if losses[s] is not None]
        return [min(evaluated, key=lambda s: (losses[s], -s))] if evaluated else steps[-1:]
    kind, _, number = str(step).rpartition(":")
    if kind == "average" and number.isdigit() and int(number) >= 1:
        if int(number) > len(steps):
            raise UserError(f"step {step!r}: {directory} has {len(steps)} checkpoints: {steps}")
        return steps[-int(number) :]
    if kind or not number.isdigit():
        raise UserError(f"step {step!r}: expected best, last, a step's number or average:N")
    if int(number) not in steps:
        raise UserError(f"step {step}: {directory} has the steps {', '.join(map(str, steps))}")
    return [int(number)]


@contextmanager
def _readable(checkpoint: Path) -> Iterator[None]:
    """What goes wrong in reading a checkpoint, as a `UserError` that names it."""
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).split("\n")[0].split(" [")[0]  # tensorstore appends its settings
        raise UserError(f"{checkpoint}: damaged or incomplete checkpoint ({reason})") from error


def _read_meta(checkpoint: Path) -> Meta:
    with _readable(checkpoint), ocp.Checkpointer(ocp.JsonCheckpointHandler()) as reader:
        values = reader.restore(checkpoint / "meta")
    if values.get("format") != FORMAT:
        raise UserError(
            f"{checkpoint}: checkpoint format {values.get('format')}, expected {FORMAT}"
        )
    return Meta(**values)


def _read_params(checkpoint: Path) -> Any:
    with _readable(checkpoint), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        item = checkpoint / "state"
        like = _on_device({"params": _saved_tree(item)["params"]})
        restore_args = ocp.checkpoint_utils.construct_restore_args(like)
        args = ocp.args.PyTreeRestore(like, restore_args=restore_args, partial_restore=True)
        return reader.restore(item, args=args)["params"]


def _saved_tree(item: Path) -> Any:
    """What arrays are in a saved tree: their shapes and types."""
    # The handler, because a Checkpointer warns that the item is not a whole checkpoint.
    # Any path-like class serves; the annotation names orbax's own.
    handler: Any = ocp.PyTreeCheckpointHandler()
    return handler.metadata(item).tree


def _on_device(tree: Any) -> Any:
    """Shapes and types of ``tree`` with the first device as their place."""
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree)


def require_same_shapes(saved: Any, expected: Any, checkpoint: Path) -> None:
    """Raises `UserError` unless both trees have the same paths and shapes."""
    found, wanted = _shapes(saved), _shapes(expected)
    differences = [
        f"{path}: {_shown(found, path)} in the checkpoint, {_shown(wanted, path)} in the model"
        for path in sorted(found.keys() | wanted.keys())
        if found.get(path) != wanted.get(path)
    ]
    if differences:
        raise UserError(f"{checkpoint} is of another model:\n  " + "\n  ".join(differences))


def _shapes(tree: Any) -> Mapping[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape)
        for path, leaf in leaves
    }


def _shown(shapes: Mapping[str, tuple[int, ...]], path: str) -> str:
    return str(shapes[path]) if path in shapes else "missing"


def _loss(metrics: Mapping[str, float]) -> float:
    return metrics["loss"]
