"""Decides the rows of a table whose right answers are in its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from selectrie.decide.answers import Decision
from selectrie.decide.questions import Question
from selectrie.decide.states import row_states
from selectrie.engine.batch_calibration import with_fitted_calibration, without_batch
from selectrie.engine.cascade import Cascade
from selectrie.engine.engine import Engine
from selectrie.errors import InputFileError, OptionError, RequestError
from selectrie.runs.data_files import reading
from selectrie.tables.formats import open_table, scan, units_of
from selectrie.tables.table_questions import TableQuestions

OnRows = Callable[[int, int, int], None]
"""Is called with the number of rows done, of all rows, and of rows with an error."""


def decide_labelled(
    llm: Engine | Cascade, path: Path, asked: TableQuestions, gold: Mapping[str, str], on_rows: OnRows | None = None
) -> tuple[list[Decision], dict[str, list[Any]]]:
    """Return the decision on each row of a table, and the right values by question.

    The decisions are without their selections, so that many fit into memory. A row that
    cannot be asked has a decision with an error. The right value of a blank cell is
    None.

    Args:
        llm: The engine, or a cascade.
        path: The file of the table.
        asked: The questions about each row, with their options.
        gold: The column of right answers by the name of the question. A cell has the
            text or value of an option, yes or no in the question's words, true or
            false, or the text or number of a level.
        on_rows: Called after each unit of rows.

    Raises:
        InputFileError: If the table cannot be read, or a cell is no right answer.
        OptionError: If a column or question is missing.
    """
    table = open_table(path)
    with reading(path):
        scanned = scan(table, asked.unit_rows)
    states = row_states(asked.state, scanned.names)
    for name, column in gold.items():
        if name not in asked.questions:
            raise OptionError("gold", name, f"the name of a question: {', '.join(asked.questions)}")
        if column not in scanned.names:
            raise OptionError("gold", column, f"a column of the table: {', '.join(scanned.names)}")
    values_of = {name: _values_of(asked.questions[name]) for name in gold}
    units = [(unit, states.of_each(unit.rows.values(states.columns))) for unit in units_of(table, asked.unit_rows)]
    right: dict[str, list[Any]] = {name: [] for name in gold}
    n_rows = 0
    for unit, _ in units:
        for cells in unit.rows.values([*gold.values()]):
            n_rows += 1
            for name, cell in zip(gold, cells, strict=True):
                right[name].append(_right_value(path, n_rows, cell, values_of[name]))
    llm.decision_prompts("0", asked.questions, params=without_batch(asked.params))
    every = (state for _, unit_states in units for state in unit_states)
    params = with_fitted_calibration(llm.fit_calibration, every, asked.questions, asked.params)
    decisions: list[Decision] = []
    with llm.decision_scorer(asked.questions, params=params) as scorer:
        for _, unit_states in units:
            found = iter(scorer.decisions([one for one in unit_states if not isinstance(one, RequestError)]))
            decisions += [
                Decision({}, one) if isinstance(one, RequestError) else _lighten(next(found)) for one in unit_states
            ]
            if on_rows is not None:
                on_rows(len(decisions), n_rows, sum(one.error is not None for one in decisions))
    return decisions, right


def _lighten(decision: Decision) -> Decision:
    """Return a decision whose answers have no selections."""
    return replace(decision, answers={name: replace(one, selections=()) for name, one in decision.answers.items()})


def _values_of(question: Question) -> dict[str, Any]:
    """Return the values of a question's options by the texts that a cell may have."""
    named: dict[str, Any] = {}
    for option in question.options:
        value = option.value
        number = f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
        for text in (*option.spellings, str(value), str(value).lower(), number):
            named.setdefault(text, value)
    return named


def _right_value(path: Path, row: int, cell: Any, named: Mapping[str, Any]) -> Any:
    """Return the value that a cell names, or None if it is blank.

    `row` is the number of the row, from 1, for the error.
    """
    text = "" if cell is None else str(cell).strip()
    if not text:
        return None
    value = named.get(text, named.get(text.lower(), named))
    if value is named:
        shown = ", ".join(map(repr, list(named)[:20]))
        raise InputFileError(str(path), f"row {row} has the right answer {text!r}, which is none of {shown}")
    return value
