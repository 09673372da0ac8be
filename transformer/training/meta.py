"""What a checkpoint says besides its arrays."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformer.config import SCORES, from_dict
from transformer.errors import UserError
from transformer.training.integrity import (
    CHECKSUMS_FILE,
    DamagedCheckpoint,
    read_checked,
    verify,
    write_checked,
)
from transformer.training.orbax_noise import silence_orbax

FORMAT = 2
"""Version of the layout, from 2 on with checksums. Format 1 is read too."""
VALIDATION_FILE = "validation.json"
"""In a checkpoint's folder: metrics of an evaluation that came after the save."""


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


def read_meta(checkpoint: Path) -> Meta:
    """What the checkpoint in this folder says about itself.

    Raises:
        DamagedCheckpoint: it is not what was saved.
        UserError: its format is unknown.
    """
    verified = verify(checkpoint, "meta")
    # Orbax would use the devices, and wait for other hosts to read it too.
    with readable(checkpoint):
        values = json.loads((checkpoint / "meta" / "metadata").read_text(encoding="utf-8"))
    if values.get("format") not in (1, FORMAT):
        raise UserError(
            f"{checkpoint}: checkpoint format {values.get('format')}, expected {FORMAT}"
        )
    if values["format"] == FORMAT and not verified:
        raise DamagedCheckpoint(checkpoint, f"no {CHECKSUMS_FILE}")
    with readable(checkpoint):
        meta = Meta(**values)
    return (
        meta
        if meta.validation
        else replace(meta, validation=read_checked(checkpoint / VALIDATION_FILE))
    )


def write_validation(checkpoint: Path, metrics: dict[str, float]) -> None:
    """Adds the metrics of an evaluation to a checkpoint that was saved without.

    Raises:
        OSError: they cannot be written.
    """
    write_checked(checkpoint / VALIDATION_FILE, metrics)


def rank(meta: Meta) -> float | None:
    """What the best checkpoint has least of (see ``train.best_by``); None where not evaluated."""
    validation, config = meta.validation or {}, from_dict(meta.config)
    if config.train.best_by == "loss":
        return validation.get("loss")
    score = validation.get(SCORES[config.data.objective])
    return None if score is None else -score


def rank_of(checkpoint: Path) -> float | None:
    """As `rank`; None too where the checkpoint is damaged."""
    try:
        return rank(read_meta(checkpoint))
    except DamagedCheckpoint:
        return None


@contextmanager
def readable(checkpoint: Path) -> Iterator[None]:
    """What goes wrong in reading a checkpoint, as a `DamagedCheckpoint` that names it."""
    silence_orbax()
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).split("\n")[0].split(" [")[0]  # tensorstore appends its settings
        raise DamagedCheckpoint(checkpoint, reason) from error
