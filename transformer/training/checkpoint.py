"""Checkpoints on disk: which of them to read, and reading them (see `saving` for the writing).

A run's directory holds ``checkpoints/STEP/``, each with the items ``state`` (the
`TrainState`) and ``meta`` (JSON: configuration, tokenizer, data fingerprint,
validation metrics), and ``checksums.json`` over both. A checkpoint is written under a
temporary name and renamed when complete, so what bears a step's number was whole once;
what no longer is, by its checksums, is named and passed over. Nothing here writes.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from transformer.config import Config, from_dict
from transformer.errors import UserError
from transformer.models.stacking import unrolled, with_layers
from transformer.training.integrity import DamagedCheckpoint, verify
from transformer.training.meta import Meta, rank_of, read_meta, readable
from transformer.training.state import TrainState


class Loaded(NamedTuple):
    """A checkpoint as far as decoding needs it."""

    config: Config
    tokenizer: dict[str, Any]
    params: Any
    step: int


def steps_in(directory: Path) -> list[int]:
    """The steps of the checkpoints in ``directory``, ascending."""
    # An unfinished one has a longer name.
    if not directory.is_dir():
        return []
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdecimal() and p.is_dir())


def last_meta(directory: Path) -> Meta | None:
    """What the latest checkpoint that can say it says about itself; None if there is none."""
    folders = [directory.absolute() / str(step) for step in reversed(steps_in(directory))]
    return read_meta(_first_intact(folders, read_meta, _silent)) if folders else None


def last_intact(directory: Path, say: Callable[[str], None]) -> Meta | None:
    """As `last_meta`, of the latest checkpoint of which every byte is as it was saved.

    Args:
        say: is told of each later one that is not.

    Raises:
        UserError: none is.
    """
    folders = [directory.absolute() / str(step) for step in reversed(steps_in(directory))]
    return read_meta(_first_intact(folders, _check, say)) if folders else None


def find(path: str | Path) -> Path:
    """The checkpoints folder for ``path``: a run's working directory or that folder itself.

    Raises:
        UserError: there is no checkpoint.
    """
    path = Path(path).absolute()
    for directory in (path / "checkpoints", path):
        if steps_in(directory):
            return directory
    found = "no checkpoint in it" if path.is_dir() else "no such directory"
    raise UserError(f"{path}: {found}; expected the --workdir of a training run")


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def _silent(_: str) -> None:
    pass


def load_for_inference(
    path: str | Path, step: int | str = "best", say: Callable[[str], None] = _warn
) -> Loaded:
    """Loads parameters, configuration and tokenizer; changes nothing on disk.

    The parameters are those of separate layers, as the configuration then says, also where
    ``model.scan_layers`` stacked them in training.

    A damaged checkpoint is passed over for the next in line, unless it is asked for by
    its step or folder.

    Args:
        path: a run's working directory, its ``checkpoints`` folder, or a single
            checkpoint's folder (where ``step`` is not looked at).
        step: ``"best"`` (see ``train.best_by``; the last one if none was evaluated),
            ``"last"``, a step's number, or ``"average:N"`` for the mean of the last N
            (step 0, which nothing was learnt in, is not among them if there are others).
        say: is told of each checkpoint that is passed over; it prints on standard error.

    Raises:
        UserError: there is no such checkpoint, or it is damaged.
    """
    chosen = _locate(path, step, _check, say)
    meta = read_meta(chosen[-1])
    params = _read_params(chosen[0]) if len(chosen) == 1 else average(map(_read_params, chosen))
    config = from_dict(meta.config)
    config = replace(config, model=unrolled(config.model))
    return Loaded(config, meta.tokenizer, with_layers(params, stacked=False), meta.step)


def load_config(path: str | Path, step: int | str = "best") -> Config:
    """The configuration alone; arguments and errors as of `load_for_inference`."""
    return from_dict(load_meta(path, step).config)


def load_meta(path: str | Path, step: int | str = "best") -> Meta:
    """All but the parameters, which are not looked at; else as `load_for_inference`."""
    return read_meta(_locate(path, step, read_meta, _silent)[-1])


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


_Check = Callable[[Path], object]
"""Raises `DamagedCheckpoint` for a folder that cannot be used."""


def _check(checkpoint: Path) -> None:
    verify(checkpoint)
    read_meta(checkpoint)


def _locate(
    path: str | Path, step: int | str, check: _Check, say: Callable[[str], None]
) -> list[Path]:
    """The folders of the checkpoints that are asked for, oldest first."""
    path = Path(path).absolute()
    if (path / "state").is_dir() and (path / "meta").is_dir():
        check(path)
        return [path]
    directory = find(path)
    steps = steps_in(directory)
    folders = [directory / str(number) for number in reversed(steps)]
    if step == "last":
        return [_first_intact(folders, check, say)]
    if step == "best":
        return [_first_intact(_best_first(folders), check, say)]
    kind, _, number = str(step).rpartition(":")
    if kind == "average" and number.isdigit() and int(number) >= 1:
        return _last_intact(int(number), folders, check, say)
    if kind or not number.isdigit():
        raise UserError(f"step {step!r}: expected best, last, a step's number or average:N")
    if int(number) not in steps:
        raise UserError(f"step {step}: {directory} has the steps {', '.join(map(str, steps))}")
    check(directory / str(int(number)))
    return [directory / str(int(number))]


def _best_first(folders: Sequence[Path]) -> list[Path]:
    """By rank, and after these, latest first, those without."""
    ranks = {folder: rank_of(folder) for folder in folders}
    # A stable sort: of equals, the latest.
    return sorted(folders, key=lambda f: (ranks[f] is None, ranks[f] or 0.0))


def _first_intact(folders: Sequence[Path], check: _Check, say: Callable[[str], None]) -> Path:
    return _intact(1, folders, check, say)[0]


def _last_intact(
    count: int, folders: Sequence[Path], check: _Check, say: Callable[[str], None]
) -> list[Path]:
    trained = [folder for folder in folders if folder.name != "0"] or folders
    if count > len(trained):
        steps = [int(folder.name) for folder in reversed(trained)]
        where = folders[0].parent
        raise UserError(f"step 'average:{count}': {where} has {len(steps)} checkpoints: {steps}")
    return _intact(count, trained, check, say)[::-1]


def _intact(
    count: int, folders: Sequence[Path], check: _Check, say: Callable[[str], None]
) -> list[Path]:
    """The first ``count`` of ``folders`` that pass; names each that does not."""
    found, damaged = [], []
    for folder in folders:
        try:
            check(folder)
            found.append(folder)
        except DamagedCheckpoint as error:
            damaged.append(error)
        if len(found) == count:
            break
    else:
        reasons = "; ".join(f"{e.checkpoint.name}: {e.reason}" for e in damaged)
        where = folders[0].parent
        raise UserError(
            f"{where}: {len(found)} intact checkpoints, expected {count} (damaged: {reasons})"
        )
    for error in damaged:
        say(f"{error}; taking step {found[-1].name} instead")
    return found


def restore_state(checkpoint: Path, like: TrainState) -> TrainState:
    """The training state in a checkpoint's folder, on any devices.

    Args:
        like: the state's shapes, as from ``jax.eval_shape(init_state, ...)``. A leaf with a
            sharding is restored to it, whatever devices it was saved from; one without to
            the first device.

    Raises:
        DamagedCheckpoint: it cannot be read.
        UserError: ``like`` has other parameters; lists each path with both shapes.
    """
    item = checkpoint / "state"
    with readable(checkpoint), ocp.Checkpointer(ocp.StandardCheckpointHandler()) as reader:
        saved = _saved_tree(item)
        require_same_shapes(saved["params"], like.params, checkpoint)
        require_same_shapes(saved, like, checkpoint)
        return reader.restore(item, args=ocp.args.StandardRestore(_placed(like)))


def _read_params(checkpoint: Path) -> Any:
    with readable(checkpoint), ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        item = checkpoint / "state"
        like = _placed({"params": _saved_tree(item)["params"]})
        restore_args = ocp.checkpoint_utils.construct_restore_args(like)
        args = ocp.args.PyTreeRestore(like, restore_args=restore_args, partial_restore=True)
        return reader.restore(item, args=args)["params"]


def _saved_tree(item: Path) -> Any:
    """What arrays are in a saved tree: their shapes and types."""
    # The handler, because a Checkpointer warns that the item is not a whole checkpoint.
    # Any path-like class serves; the annotation names orbax's own.
    handler: Any = ocp.PyTreeCheckpointHandler()
    return handler.metadata(item).tree


def _placed(tree: Any) -> Any:
    """Shapes, types and places of ``tree``: the first device where a leaf names none."""
    first = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])

    def placed(x: Any) -> jax.ShapeDtypeStruct:
        place = getattr(x, "sharding", None)  # orbax's own kind, in what it says of saved trees
        place = place if isinstance(place, jax.sharding.Sharding) else first
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)

    return jax.tree.map(placed, tree)


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
