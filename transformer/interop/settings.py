"""Reading a ``config.json`` with every setting checked."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from transformer.errors import UserError

T = TypeVar("T")


class Settings:
    """The settings of a published model; an absent one and null are its program's default.

    Args:
        values: of the file.
        where: its name, for messages.
    """

    def __init__(self, values: Mapping[str, Any], where: str = "config.json") -> None:
        self.values, self.where = values, where

    def refuse(self, name: str, expected: str) -> UserError:
        """The error that a setting's value is."""
        found = self.values.get(name)
        shown = "missing" if found is None else f"= {found!r}"
        return UserError(f"{self.where}: {name} {shown}: expected {expected}")

    def get(self, name: str, default: T) -> T:
        """A setting of the type of its default (whole numbers are numbers)."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(default, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(default):
            raise self.refuse(name, f"a value such as {default!r}")
        return value  # type: ignore[return-value]

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number from 1 up; without a default it must be there."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if type(value) is not int or value < 1:
            raise self.refuse(name, "a whole number from 1 up")
        return value

    def choice(self, name: str, meanings: Mapping[str, Any], default: str) -> Any:
        """What the value of a setting means here."""
        value = self.get(name, default)
        if value not in meanings:
            raise self.refuse(name, " or ".join(meanings))
        return meanings[value]

    def only(self, name: str, value: object, *, default: object = None) -> None:
        """Refuses all but one value: what else the setting can say is not implemented."""
        found = self.values.get(name)
        if (default if found is None else found) != value:
            raise self.refuse(name, f"{value!r} (nothing else is implemented)")

    def labels(self) -> list[str]:
        """The names of the classes: of `id2label`, or as many as `num_labels` (2) says."""
        named = self.values.get("id2label")
        if named is None:
            return [f"LABEL_{i}" for i in range(self.size("num_labels", 2))]
        numbers = {str(i) for i in range(len(named))} if isinstance(named, Mapping) else set()
        if not numbers or {str(key) for key in named} != numbers:
            raise self.refuse("id2label", "names of the classes 0, 1, ...")
        by_number = {str(key): str(name) for key, name in named.items()}
        return [by_number[str(i)] for i in range(len(named))]


def label_settings(labels: Sequence[str]) -> dict[str, Any]:
    """What a ``config.json`` says of the classes."""
    return {
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }
