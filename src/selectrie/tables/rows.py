"""What all formats of tables share: rows that were read, and what a first pass finds.

A table is read several times, so it is a plain file. It is never in memory as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

from selectrie.decide.columns import Cell
from selectrie.decide.row_states import UNIT_ROWS

INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column of the table.

    Attributes:
        name: Its name.
        kind: "text", "bool", "int", "float", "json" (anything else), or "arrow".
        type: The type of a column of Parquet (`pyarrow.DataType`), else None.
    """

    name: str
    kind: str = "text"
    type: Any = None


class Rows(Protocol):
    """Consecutive rows of a table, as its format holds them."""

    def __len__(self) -> int: ...

    @property
    def digest(self) -> str:
        """Return a digest of the rows, 16 hexadecimal digits."""
        ...

    def values(self, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
        """Yield the values of some columns for each row; None for those it lacks."""
        ...


class Table(Protocol):
    """A table in a file, which may be read again and again."""

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        ...

    def units(self, n_rows: int) -> Iterator[Rows]:
        """Yield all rows, `n_rows` at a time.

        Raises `InputFileError` with file and line for what cannot be read.
        """
        ...

    def columns(self, units: Iterator[Rows]) -> tuple[InputColumn, ...]:
        """Return the columns, after reading all of `units`."""
        ...


class TableWriter(Protocol):
    """Writes rows with their new cells."""

    def write(self, rows: Rows, cells: Sequence[Sequence[Cell]]) -> None:
        """Write rows, each followed by its cells."""
        ...

    def close(self) -> None:
        """Write what comes after the last row."""
        ...


@dataclass(frozen=True, slots=True)
class Scan:
    """What a first pass over a table finds.

    Attributes:
        columns: The columns in their order.
        n_rows: Number of rows.
        n_units: Number of units.
        unit_rows: Rows of a unit.
        digest: Digest of all rows and of how they are cut into units.
    """

    columns: tuple[InputColumn, ...]
    n_rows: int
    n_units: int
    unit_rows: int
    digest: str

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class TableUnit:
    """A unit of work: consecutive rows.

    Attributes:
        number: Its number among the units of the table, from 0.
        rows: The rows.
    """

    number: int
    rows: Rows


def units_of(table: Table, unit_rows: int) -> Iterator[TableUnit]:
    """Yield the units of a table, which the order of its rows alone decides."""
    for number, rows in enumerate(table.units(unit_rows)):
        yield TableUnit(number, rows)


def scan(table: Table, unit_rows: int = UNIT_ROWS) -> Scan:
    """Read a table once; raise `InputFileError` for what cannot be read."""
    digest, n_rows, n_units = blake2b(digest_size=16), 0, 0

    def counted() -> Iterator[Rows]:
        nonlocal n_rows, n_units
        for rows in table.units(unit_rows):
            digest.update(rows.digest.encode())
            n_rows, n_units = n_rows + len(rows), n_units + 1
            yield rows

    columns = table.columns(counted())
    for column in columns:
        digest.update(f"\0{column.name}\0{column.kind}\0{column.type}".encode("utf-8", "surrogatepass"))
    return Scan(columns, n_rows, n_units, unit_rows, digest.hexdigest())


def text_of_cell(value: object) -> str:
    """Return a value as a text file has it: "" for None, JSON for what is nested."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def json_of_cell(value: object) -> str:
    """Return a value as JSON; null for None, NaN and infinities."""
    if isinstance(value, float) and not (-float("inf") < value < float("inf")):
        return "null"
    return json.dumps(value, ensure_ascii=False, default=str)
