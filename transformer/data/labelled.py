"""Texts, and pairs of texts, with labels: from files, GLUE's files and TFDS sets."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from transformer.config import DataConfig
from transformer.data.glue import glue_columns, task_of
from transformer.data.sources import Log, SplitName, decoded, is_text, tfds_records, tfds_set
from transformer.data.tables import UNREAD, Columns, read_rows
from transformer.errors import UserError


@dataclass(frozen=True)
class Labelled:
    """Row i of every field belongs to the same example.

    Attributes:
        texts: the texts, or the first of each pair.
        seconds: the other texts of the pairs; empty strings where a row is a single text.
        labels: the names of the classes, or the numbers that are to be found; none in a set
            without labels.
        places: where each example was found, such as FILE:LINE.
        paired: whether the rows are pairs.
        names: of the classes in the order of their numbers, where the set has one.
    """

    texts: list[str] = field(default_factory=list)
    seconds: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    paired: bool = False
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def labelled(self) -> bool:
        """Whether there are labels."""
        return bool(self.labels)


def read_labelled(config: DataConfig, split: SplitName, log: Log = print) -> Labelled | None:
    """The examples of one split, in order.

    Training leaves out those with a blank text; of a held-out split every row is kept, and of one
    without labels every line, so that there is a prediction for each. A TFDS set's examples that
    are marked as without a label are left out if others have one.

    Args:
        config: says where they are, and in which columns.
        split: which part.
        log: is told how many examples there are, and how many were left out.

    Returns:
        None if there is no such split.

    Raises:
        UserError: a file or set is missing or not of its form; a row lacks a column or a label
            (names file and line); there is no example.
    """
    if (task := task_of(config.origin)) and task.objective != config.objective:
        raise UserError(
            f"data.objective = {config.objective!r}: expected {task.objective!r}, because "
            f"data.dataset = {config.origin!r}"
        )
    if config.origin.startswith("tfds:"):
        found = _read_tfds(config, split, log)
        where = config.origin
    else:
        paths: tuple[str, ...] = getattr(config, split)
        found = _read_files(config, paths, split, log) if paths else None
        where = ", ".join(paths)
    if found is None:
        return None
    blank = 0
    if split == "train":
        found, blank = _without_blank(found)
    if not len(found):
        raise UserError(f"data.{split}: no examples in {where}")
    note = f" ({blank} with a blank text left out)" if blank else ""
    log(f"{split}: {len(found)} examples{'' if found.labelled else ' without labels'}{note}")
    return found


def _without_blank(found: Labelled) -> tuple[Labelled, int]:
    """The examples whose texts are not blank, and how many are."""
    kept, blank = [], []
    for i, (first, second) in enumerate(zip(found.texts, found.seconds, strict=True)):
        whole = first and (second or not found.paired)
        (kept if whole else blank).append(i)
    if not blank:
        return found, 0
    return _chosen(found, kept), len(blank)


def _chosen(found: Labelled, kept: list[int]) -> Labelled:
    """Only these of the examples."""
    names = ("texts", "seconds", "places", *["labels"] * found.labelled)
    columns: Any = {name: [getattr(found, name)[i] for i in kept] for name in names}
    return replace(found, **columns)


def _read_files(config: DataConfig, paths: Sequence[str], split: SplitName, log: Log) -> Labelled:
    setting = f"data.{split}"
    optional = () if split == "train" else ("label",)
    task = task_of(config.origin)
    if task is None and split == "train" and "label" not in Columns.parse(config.columns).roles:
        raise UserError(f"data.columns = {config.columns}: expected one with the label, for train")
    found = Labelled(paired=is_paired(config))
    left_out = unlabelled = 0
    for path in paths:
        columns = (
            glue_columns(task, path, setting, optional)
            if task
            else Columns.parse(config.columns, config.header, optional)
        )
        rows = read_rows(path, columns, setting)
        labelled = any(row.cells is not None and "label" in row.cells for row in rows)
        unlabelled += not labelled
        for row in rows:
            if row.cells is None and labelled:
                left_out += 1
                continue
            cells = row.cells or {}
            if labelled:
                if not cells["label"]:
                    raise UserError(f"{row.place}: no label; expected one in column label")
                found.labels.append(cells["label"])
            found.texts.append(cells.get("text", ""))
            found.seconds.append(cells.get("text2", ""))
            found.places.append(row.place)
    if unlabelled not in (0, len(paths)):
        raise UserError(f"{setting}: some of {', '.join(paths)} have labels, others have none")
    if left_out:
        kind = "blank or broken" if task and task.broken else "blank"
        log(f"{split}: {left_out} {kind} lines left out")
    return found


def is_paired(config: DataConfig) -> bool:
    """Whether the examples are pairs of texts."""
    task = task_of(config.origin)
    return "text2" in Columns.parse(config.columns).roles if task is None else len(task.texts) == 2


def class_names(given: Sequence[str], train: Labelled | None) -> tuple[str, ...]:
    """The classes, in the order of their numbers: those given, or the set's, or the training
    labels sorted.

    Raises:
        UserError: fewer than two; or one of those given has no example in the training split.
    """
    found = sorted(set(train.labels)) if train else []
    names = tuple(given) or (train.names if train else ()) or tuple(found)
    if not names:
        raise UserError("data.labels = (): expected the classes, as there is no training split")
    if len(names) < 2:
        raise UserError(f"data.labels: found only {', '.join(names)}; expected two or more classes")
    missing = [name for name in names if train and name not in found]
    if missing:
        raise UserError(
            f"data.labels: {missing[0]!r} has no example in the training split; expected at "
            f"least one of each, found {', '.join(found)}"
        )
    return names


def label_numbers(examples: Labelled, names: Sequence[str]) -> np.ndarray:
    """The number of each example's class, -1 where there are no labels: int32 ``[examples]``.

    Raises:
        UserError: a label that is no class (names file and line).
    """
    if not examples.labelled:
        return np.full(len(examples), -1, np.int32)
    numbers = {name: i for i, name in enumerate(names)}
    for label, place in zip(examples.labels, examples.places, strict=True):
        if label not in numbers:
            raise UserError(f"{place}: label {label!r}: expected one of {', '.join(names)}")
    return np.array([numbers[label] for label in examples.labels], np.int32)


def label_values(examples: Labelled) -> np.ndarray:
    """Each example's label as a number, NaN where there are none: float32 ``[examples]``.

    Raises:
        UserError: a label that is no number (names file and line).
    """
    if not examples.labelled:
        return np.full(len(examples), np.nan, np.float32)
    values = []
    for label, place in zip(examples.labels, examples.places, strict=True):
        try:
            values.append(float(label))
        except ValueError:
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            raise UserError(
                f"{place}: label {label!r}: expected a number, because data.objective = "
                "'regression'"
            )
    return np.array(values, np.float32)


# TensorFlow Datasets


def _read_tfds(config: DataConfig, split: SplitName, log: Log) -> Labelled | None:
    """The examples of a TFDS set with a text or two, and a label.

    Raises:
        UserError: the set does not exist, cannot be built here, or its features are others.
    """
    builder, where = tfds_set(config)
    features: Any = builder.info.features
    names = _tfds_names(config, features, where)
    feature = features[names["label"]]
    classes: tuple[str, ...] = tuple(getattr(feature, "names", None) or ())
    chosen: Any = split if split in builder.info.splits else f"{split}_matched"  # MNLI's
    if chosen not in builder.info.splits:
        return None
    found = Labelled(paired=is_paired(config), names=classes)
    # GLUE's test sets, whose answers are not public, have -1 for all. SNLI has it for those of its
    # examples that the annotators did not agree about, and nobody counts them.
    marked = classes or task_of(config.origin)
    unlabelled: list[bool] = []
    for place, record in tfds_records(builder, chosen, where):
        found.texts.append(decoded(record[names["text"]], place).strip())
        second = names.get("text2")
        found.seconds.append(decoded(record[second], place).strip() if second else "")
        found.places.append(place)
        label = record[names["label"]]
        if isinstance(label, bytes | str):
            label = decoded(label, place)
        unlabelled.append(bool(marked and label == -1))
        if classes and not unlabelled[-1]:
            label = classes[label]
        found.labels.append(str(label))
    if not any(unlabelled):
        return found
    if not all(unlabelled):
        log(f"{split}: {sum(unlabelled)} without a label left out")
        return _chosen(found, [i for i, without in enumerate(unlabelled) if not without])
    if split == "train":
        raise UserError(f"{where}: no example in {chosen} has a label")
    found.labels.clear()
    return found


def _tfds_names(config: DataConfig, features: Any, where: str) -> dict[str, str]:
    """The features that hold the text, the other of a pair, and the label."""
    task = task_of(config.origin)
    columns = Columns.parse(config.columns)
    texts = [name for name in features if is_text(features[name])]
    if columns.names:
        names = dict(zip(columns.roles, columns.names, strict=True))
    elif task:
        names = {**dict(zip(("text", "text2"), task.tfds, strict=False)), "label": "label"}
    else:
        names = {"text": texts[0] if len(texts) == 1 else "text", "label": "label"}
    names.pop(UNREAD, None)
    for role, name in names.items():
        if name not in features or (role != "label" and name not in texts):
            raise UserError(
                f"{where}: no feature {name!r} for the {role}; expected --data.columns with "
                f"text=NAME label=NAME of its features {', '.join(features)}"
            )
    return names
