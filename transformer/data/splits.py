"""Which splits a data set has, where a validation split may be a part of the training split."""

from collections.abc import Callable, Collection
from typing import TypeVar

from transformer.data.sources import SplitName

_Part = TypeVar("_Part")


def read_splits(
    splits: Collection[SplitName],
    read: Callable[[SplitName], _Part | None],
    hold_out: Callable[[_Part], tuple[_Part, _Part | None]],
) -> dict[SplitName, _Part]:
    """The splits that were asked for and exist.

    Args:
        splits: their names.
        read: gives a split, None where the set has no such split.
        hold_out: divides the training split in what is trained on and a validation split; called
            where the set has none.
    """
    found: dict[SplitName, _Part | None] = {}
    if "test" in splits:
        found["test"] = read("test")
    if "train" in splits or "validation" in splits:
        # Where the training split ends depends on whether there is a validation split.
        given = found["validation"] = read("validation")
        if given is None or "train" in splits:
            found["train"] = read("train")
        if given is None and (whole := found["train"]) is not None:
            found["train"], found["validation"] = hold_out(whole)
    return {name: part for name, part in found.items() if name in splits and part is not None}
