"""Rows of TSV, CSV and JSONL files, by the columns that are asked for.

The ending of a file's name tells its form (.gz is left away): ``.csv`` is comma-separated with
quotes (RFC 4180), ``.jsonl`` an object a line, everything else TAB-separated, where quotes are
text.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformer.data.sources import check_text, read_lines, read_text
from transformer.errors import UserError, did_you_mean

UNREAD = "-"
"""The role of a column that is not read."""


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        place: where it was found, FILE:LINE.
        cells: what is in the columns asked for, by role, without white space at either end; None:
            the line is blank.
    """

    place: str
    cells: dict[str, str] | None


class Columns(NamedTuple):
    """What is where in a table.

    Attributes:
        roles: what each column holds, in order; or in the order of `names`.
        names: of the columns, in a header or as keys of JSON; (): they are told by their order.
        header: whether the first line of a file is no row, though the columns go by their order.
        optional: roles that a file may lack, as a test set its labels.
        broken: whether rows with more or fewer cells are left out like blank lines, as long as
            nothing is optional.
    """

    roles: tuple[str, ...]
    names: tuple[str, ...] = ()
    header: bool = False
    optional: tuple[str, ...] = ()
    broken: bool = False

    @classmethod
    def parse(
        cls, columns: Sequence[str], header: bool = False, optional: tuple[str, ...] = ()
    ) -> "Columns":
        """From ``data.columns``: roles, or ROLE=NAME."""
        if not any("=" in column for column in columns):
            return cls(tuple(columns), (), header, optional)
        roles, _, names = zip(*(column.partition("=") for column in columns), strict=True)
        return cls(roles, names, True, optional)


def read_rows(path: str, columns: Columns, setting: str) -> list[Row]:
    """The rows of a file, in order.

    Args:
        path: the file; .gz is read too.
        columns: which of its columns are wanted.
        setting: that names the file, for messages.

    Raises:
        UserError: the file is missing, not UTF-8 or not of its form; a column is missing, in the
            header or (named by file and line) in a row.
    """
    stem = Path(path).with_suffix("") if Path(path).suffix == ".gz" else Path(path)
    if stem.suffix == ".jsonl":
        return list(_json_rows(path, columns, setting))
    comma = stem.suffix == ".csv"
    records = _csv_records(path, setting) if comma else _tsv_records(path, setting)
    return list(_cells(records, columns, path, "," if comma else " TAB "))


_Records = Iterator[tuple[int, list[str]]]
"""The number of each record's first line, and its cells; none of a blank line."""


def _tsv_records(path: str, setting: str) -> _Records:
    for number, line in enumerate(read_lines(path, setting), start=1):
        yield number, line.split("\t") if line.strip() else []


def _csv_records(path: str, setting: str) -> _Records:
    # Lines end at "\n" alone: others are text, which a quoted cell may hold.
    reader = csv.reader(io.StringIO(read_text(path, setting), newline="\n"), strict=True)
    number = 1
    try:
        for cells in reader:
            yield number, cells if any(cell.strip() for cell in cells) else []
            number = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}:{number}: no CSV as of RFC 4180: {error}") from error


def _cells(records: _Records, columns: Columns, path: str, separator: str) -> Iterator[Row]:
    places = dict(zip(columns.roles, range(len(columns.roles)), strict=True))
    places.pop(UNREAD, None)
    width = len(columns.roles)
    expected = f"{width} ({separator.join(columns.roles)}, see data.columns)"
    header = columns.header
    for number, cells in records:
        place = f"{path}:{number}"
        if header and (cells or not columns.names):
            header = False
            if columns.names:
                places = _places(cells, columns, place)
                width = len(cells)
                expected = f"{width}, as in its header"
            continue
        if not cells or (len(cells) != width and columns.broken and not columns.optional):
            yield Row(place, None)
        elif len(cells) != width:
            s = "s" * (len(cells) > 1)
            raise UserError(f"{place}: {len(cells)} column{s}; expected {expected}")
        else:
            yield Row(place, {role: cells[at].strip() for role, at in places.items()})


def _places(header: list[str], columns: Columns, place: str) -> dict[str, int]:
    """Where in the rows each role is."""
    header = [name.strip() for name in header]
    found = {}
    for role, name in zip(columns.roles, columns.names, strict=True):
        if name in header:
            if (count := header.count(name)) > 1:
                raise UserError(
                    f"{place}: expected one column {name!r} in the header, found {count}"
                )
            found[role] = header.index(name)
        elif role not in columns.optional:
            hint = did_you_mean(name, header) or f"; found {', '.join(header)}"
            raise UserError(f"{place}: no column {name!r} in the header{hint}")
    return found


def _json_rows(path: str, columns: Columns, setting: str) -> Iterator[Row]:
    names = dict(zip(columns.roles, columns.names or columns.roles, strict=True))
    names.pop(UNREAD, None)
    lacking: set[str] | None = None  # of the optional ones, as the first row tells
    for number, line in enumerate(read_lines(path, setting), start=1):
        place = f"{path}:{number}"
        if not line.strip():
            yield Row(place, None)
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UserError(f"{place}: no JSON: {error}") from error
        if not isinstance(record, Mapping):
            raise UserError(f"{place}: expected a JSON object, found {line.strip()[:40]}")
        if lacking is None:
            lacking = {r for r, n in names.items() if r in columns.optional and n not in record}
        if extra := [names[role] for role in lacking if names[role] in record]:
            raise UserError(f"{place}: a key {extra[0]!r}; expected it in every row or in none")
        wanted = {role: name for role, name in names.items() if role not in lacking}
        yield Row(place, {role: _json_text(record, name, place) for role, name in wanted.items()})


def _json_text(record: Mapping[str, Any], name: str, place: str) -> str:
    """A value as text: a number or a boolean as JSON writes it."""
    if name not in record:
        hint = did_you_mean(name, record) or f"; found {', '.join(record)}"
        raise UserError(f"{place}: no key {name!r}{hint}")
    value = record[name]
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str):
        raise UserError(f"{place}: {name} is {json.dumps(value)[:40]}; expected text or a number")
    check_text(value, f"{place}: {name}")
    return value.strip()
