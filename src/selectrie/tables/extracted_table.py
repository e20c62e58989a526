"""Extracts a value of a type from every row of a table in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from selectrie.core.files import replaced, writing
from selectrie.decide.answers import Cell, Column
from selectrie.decide.columns import ERROR, AnswerColumns
from selectrie.decide.states import row_states
from selectrie.engine.engine import Engine
from selectrie.errors import RequestError
from selectrie.results import Extraction
from selectrie.runs.data_files import reading
from selectrie.tables.formats import check_output, open_table, scan, units_of, writer_of

UNIT_ROWS = 64
"""Number of rows that are extracted together."""


def extracted_table(
    llm: Engine,
    table: Path,
    state: str,
    kind: Any,
    *,
    out: Path,
    on_rows: Callable[[int, int, int], None] = lambda _done, _all, _errors: None,
    **options: Any,
) -> tuple[int, int]:
    """Write a table with the columns `value`, `probability` and `probability_low`.

    `value` is the JSON text. The column `error` says why a row has no value. The file
    is written when all rows are done.

    Args:
        llm: The engine.
        table: The file that is read.
        state: The name of a column, or a pattern in which `{column}` is a value.
        kind: The type, as for `Engine.extract`.
        out: The file that is written; its suffix is the format.
        on_rows: Called with the numbers of rows done, of all rows, and of errors.
        options: Further options of `Engine.extract_many`.

    Returns:
        The number of rows, and of those with an error.

    Raises:
        InputFileError: If the table cannot be read.
        OptionError: If a column is missing or exists already, or `out` cannot be
            written.
    """
    source = open_table(table)
    check_output(out, table)
    with reading(table):
        found = scan(source, UNIT_ROWS)
    check_output(out, table, found)
    numbers = (Column(name, "float") for name in ("probability", "probability_low"))
    columns = AnswerColumns((Column("value", "text"), *numbers, Column(ERROR, "text")), ())
    columns.check(found.names)
    states, n_done, n_errors = row_states(state, found.names), 0, 0
    with writing(out.parent), replaced(out) as file, reading(table):
        writer = writer_of(file, out, source, found, columns)
        for unit in units_of(source, UNIT_ROWS):
            asked = states.of_each(unit.rows.values(states.columns))
            valid = [one for one in asked if not isinstance(one, RequestError)]
            found_values = iter(llm.extract_many(valid, kind, on_error="keep", **options) if valid else ())
            rows = [_cells(columns, one if isinstance(one, RequestError) else next(found_values)) for one in asked]
            writer.write(unit.rows, rows)
            n_done, n_errors = n_done + len(rows), n_errors + sum(row[-1] is not None for row in rows)
            on_rows(n_done, found.n_rows, n_errors)
        writer.close()
    return n_done, n_errors


def _cells(columns: AnswerColumns, found: Extraction[Any] | RequestError) -> tuple[Cell, ...]:
    """Return the cells of a row."""
    error = found.error if isinstance(found, Extraction) else found
    if error is not None:
        return columns.error_row(error)
    return found.text, found.probability, found.probability_low, None  # type: ignore[union-attr]  # no error
