"""Going on with a run: what must not change between its parts, and the state it was in."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import optax

from transformer.config import Config
from transformer.errors import UserError
from transformer.models.build import Model, build_model
from transformer.models.stacking import with_layers
from transformer.parallel.sharding import Sharding
from transformer.training.checkpoint import restore_state
from transformer.training.state import TrainState, state_places, state_shapes

# Where things lie, not what they are: the fingerprint guards the contents.
_PLACES = {"data.data_dir", "data.train", "data.validation", "data.test", "train.init_from"}
# What a resumed run may do otherwise than before; the rest of train.* fixes the batches.
_FREE = {
    "train.steps",
    "train.epochs",
    "train.log_every",
    "train.eval_every",
    "train.eval_examples",
}
_FREE |= {"train.save_every", "train.keep", "train.keep_best", "train.keep_every", "train.best_by"}
_FREE |= {"model.scan_layers", "model.remat"}
# What a saved configuration has filled in from the data, if it was not given.
_FILLED = {"model.vocab_size", "model.head", "model.num_classes", "model.next_sentence"}
_FILLED |= {"data.labels"}


def require_same_run(saved: Config, given: Config, where: object) -> list[str]:
    """Checks that ``given`` may go on with a run that ``saved`` began.

    Returns:
        A line for every setting that changed the optimizer or its schedule: allowed, but
        worth saying.

    Raises:
        UserError: a setting of the model, the data, the seed or the objective changed.
    """
    notes = []
    for name, before, now in _differences(saved, given):
        decays = given.optimizer.schedule in ("linear", "cosine")
        if name == "train.steps" and given.train.epochs is not None:
            continue  # the saved ones follow from the epochs
        length = name in ("train.steps", "train.epochs")
        if name.startswith("optimizer.") or (length and decays):
            notes.append(f"{name} = {now!r} from here on (was {before!r})")
        elif not name.startswith(("decode.", "mesh.", "hosts.")) and name not in _PLACES | _FREE:
            raise UserError(
                f"{name} = {now!r}: expected {before!r}, with which the run in {where} began; "
                "take another workdir for another run"
            )
    return notes


def require_same_data(saved: str, given: str, where: object) -> None:
    """Raises `UserError` unless the fingerprints of both training splits are the same."""
    if saved != given:
        raise UserError(
            f"data.train: its tokens differ from those the run in {where} began with "
            f"(fingerprint {given}, expected {saved})"
        )


def _differences(saved: Config, given: Config) -> Sequence[tuple[str, Any, Any]]:
    found = []
    for section in dataclasses.fields(Config):
        before, now = getattr(saved, section.name), getattr(given, section.name)
        for field in dataclasses.fields(before):
            values = getattr(before, field.name), getattr(now, field.name)
            name = f"{section.name}.{field.name}"
            filled = name in _FILLED and values[1] == field.default
            if values[0] != values[1] and not filled:
                found.append((name, *values))
    return found


def resumed_state(
    checkpoint: Path,
    saved: Config,
    model: Model,
    optimizer: optax.GradientTransformation,
    sharding: Sharding | None,
) -> TrainState:
    """The state in a checkpoint's folder, laid out for `model`, wherever its layers lay before.

    Args:
        checkpoint: the folder.
        saved: the settings of the run that wrote it.
        model: the network that goes on; its ``scan_layers`` may differ from the saved one.
        optimizer: what the state is of.
        sharding: the mesh to put it on, if there is one.

    Raises:
        DamagedCheckpoint, UserError: as of `restore_state`.
    """
    stacked = model.config.scan_layers
    was = dataclasses.replace(model.config, scan_layers=saved.model.scan_layers)
    state = restore_state(checkpoint, state_shapes(build_model(was), optimizer, sharding))
    if was == model.config:
        return state
    places = sharding and state_places(model, optimizer, sharding)

    @partial(jax.jit, out_shardings=places)
    def convert(state: TrainState) -> TrainState:
        params, moments = (with_layers(x, stacked) for x in (state.params, state.opt_state))
        return state.replace(params=params, opt_state=moments)

    return convert(state)
