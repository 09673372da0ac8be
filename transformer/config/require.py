"""How a wrong setting is refused."""

from transformer.errors import UserError


def require(condition: bool, setting: str, value: object, expected: str) -> None:
    """Refuses a value of a setting: what was found, what was expected."""
    if not condition:
        raise UserError(f"{setting} = {value!r}: expected {expected}")
