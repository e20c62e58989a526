"""What a line of a table's log holds: the cells of a unit's rows.

`runs.unit_log` reads and writes the lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from selectrie.decide.answers import Decision
from selectrie.decide.columns import AnswerColumns, Cell, Column
from selectrie.decide.states import State
from selectrie.errors import RequestError
from selectrie.results.advice import LOW_COVERAGE
from selectrie.tables.rows import TableUnit

LoggedRow: TypeAlias = tuple[Cell, ...] | str
"""The cells of a row without that of the error, or the error."""
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""Floats that JSON does not have, by the text that stands for them."""
_TYPES: Mapping[str, type] = {"label": str, "text": str, "float": float, "int": int, "bool": bool}


@dataclass(frozen=True, slots=True)
class DecidedRows:
    """The values of a line.

    Attributes:
        digest: Digest of the unit's rows.
        rows: What was found for each row.
    """

    digest: str
    rows: tuple[LoggedRow, ...]

    @property
    def n_errors(self) -> int:
        """Return the number of rows that could not be asked."""
        return sum(isinstance(row, str) for row in self.rows)

    def n_low(self, columns: AnswerColumns) -> int:
        """Return the number of rows with an answer of low label mass."""
        answered = (row for row in self.rows if not isinstance(row, str))
        return sum(any(mass < LOW_COVERAGE for mass in columns.label_masses(row)) for row in answered)

    def cells(self, n_columns: int) -> list[tuple[Cell, ...]]:
        """Return the cells of each row, the error among them."""
        return [(*[None] * (n_columns - 1), row) if isinstance(row, str) else (*row, None) for row in self.rows]


def decided_rows(
    decide: Callable[[Sequence[State]], Sequence[Decision]],
    columns: AnswerColumns,
    states: Sequence[State | RequestError],
) -> tuple[LoggedRow, ...]:
    """Return what is logged for rows: their answers, or why they have none.

    Args:
        decide: Decides about states, and keeps errors of a state in its decision.
        columns: The columns of the answers.
        states: The state of each row, or why it has none.
    """
    rows = columns.rows(decide, states)
    return tuple(row[:-1] if row[-1] is None else str(row[-1]) for row in rows)


class RowLines:
    """The format of the lines, a `runs.log_lines.LineFormat`.

    Args:
        columns: The columns of the answers.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._types = [_TYPES[column.kind] for column in columns[:-1]]
        self._floats = [at for at, kind in enumerate(self._types) if kind is float]

    def encode(self, values: DecidedRows) -> dict[str, object]:
        """Return the fields of a line; floats that JSON does not have are texts."""
        return {"digest": values.digest, "rows": [self._encoded(row) for row in values.rows]}

    def decode(self, fields: Mapping[str, Any]) -> DecidedRows:
        """Return the values of a line.

        Raises `ValueError` or another of Python's errors for fields of another form.
        """
        if type(fields["digest"]) is not str:
            raise ValueError("digest has the wrong type")
        return DecidedRows(fields["digest"], tuple(self._decoded(row) for row in fields["rows"]))

    def check(self, unit: TableUnit, values: DecidedRows) -> None:
        """Raise `ValueError` if the values cannot belong to the unit."""
        if len(values.rows) != len(unit.rows) or values.digest != unit.rows.digest:
            raise ValueError(f"unit {unit.number} of the table has other rows")

    def _encoded(self, row: LoggedRow) -> object:
        if isinstance(row, str):
            return row
        cells: list[Cell] = list(row)
        for at in self._floats:
            cell = cells[at]
            if isinstance(cell, float) and not math.isfinite(cell):
                cells[at] = repr(cell)
        return cells

    def _decoded(self, row: object) -> LoggedRow:
        if isinstance(row, str):
            return row
        if not isinstance(row, list) or len(row) != len(self._types):
            raise ValueError("a row has another number of cells")
        for at in self._floats:
            if isinstance(row[at], str):
                row[at] = _SPECIAL[row[at]]
        for cell, kind in zip(row, self._types, strict=True):
            if cell is not None and type(cell) is not kind:
                raise ValueError(f"{cell!r} in a row has the wrong type")
        return tuple(row)
