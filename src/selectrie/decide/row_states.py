"""The state of each row of a table: one of its columns, or a pattern of several."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from selectrie.decide.states import State, of_json, text_of_state
from selectrie.errors import OptionError, RequestError, clip
from selectrie.options.checks import text as require_text

UNIT_ROWS = 64
"""Number of rows that are decided together, unless the caller says otherwise."""
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
"""A doubled brace, a column in braces, a brace alone, or text."""
_MAX_SHOWN = 20
"""Maximum number of columns that an error names."""
_MISSING = ("NAType", "NaTType")
"""Types of pandas for a value that is missing; pandas is not imported for them."""


@dataclass(frozen=True, slots=True)
class RowStates:
    """Makes the state of a row from the row's values.

    Attributes:
        columns: Names of the columns that are read, each once.
        _parts: Text, or the index into `columns` of a value. () if the value of the one
            column is the state.
    """

    columns: tuple[str, ...]
    _parts: tuple[str | int, ...] = ()

    def of(self, values: Sequence[object]) -> State:
        """Return the state of a row.

        A column alone may hold text, an object or array of JSON, or messages. In a
        pattern, these are written as text: arrays and objects as JSON, or as a
        transcript. Numbers, truth values and dates are written as text everywhere.

        Args:
            values: The values of `columns`, in their order.

        Raises:
            OptionError: For a value that is missing (None, NaN), blank, or of another
                type. It names the column.
            PromptError: For malformed messages.
        """
        states = [_value(name, value) for name, value in zip(self.columns, values, strict=True)]
        if not self._parts:
            return states[0]
        texts = [one if isinstance(one, str) else text_of_state(one) for one in states]
        return "".join(part if isinstance(part, str) else texts[part] for part in self._parts)

    def of_each(self, rows: Iterable[Sequence[object]]) -> list[State | RequestError]:
        """Return the state of each row, or why it has none."""
        return [self._or_error(values) for values in rows]

    def _or_error(self, values: Sequence[object]) -> State | RequestError:
        try:
            return self.of(values)
        except RequestError as error:
            return error


def row_states(state: str, columns: Sequence[str]) -> RowStates:
    """Return what makes the states of a table's rows.

    Args:
        state: The name of a column, or a pattern in which `{column}` stands for a value
            and `{{` and `}}` for braces.
        columns: The names of the table's columns.

    Raises:
        OptionError: For a column that the table does not have, with those it has, and
            for a pattern without a column or with a single brace.
    """
    require_text("state", state)
    if state in columns:
        return RowStates((state,))
    parts: list[str | int] = []
    used: list[str] = []
    for token in _TOKEN.finditer(state):
        name = token[1]
        if name is None:
            if token[0] in "{}":
                raise OptionError("state", state, f"braces in pairs; {token[0] * 2} stands for {token[0]!r}")
            parts.append(token[0][:1] if token[0] in ("{{", "}}") else token[0])
            continue
        if name not in columns:
            raise OptionError("state", name, f"a column of the table; it has {_listed(columns)}")
        if name not in used:
            used.append(name)
        parts.append(used.index(name))
    if not used:
        allowed = "the name of a column, or a pattern with columns in braces; the table has"
        raise OptionError("state", state, f"{allowed} {_listed(columns)}")
    return RowStates(tuple(used), tuple(parts))


def _listed(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - _MAX_SHOWN} more" if len(columns) > _MAX_SHOWN else ""
    return (", ".join(repr(clip(name, 48)) for name in columns[:_MAX_SHOWN]) or "none") + more


def _value(name: str, value: Any) -> State:
    """Return a value of a row as a state; raise `OptionError` if it cannot be one."""
    if isinstance(value, str):
        if not value.strip():
            raise OptionError(name, value, "a value that is not blank in this row")
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or _is_nan(value) or type(value).__name__ in _MISSING:
        raise OptionError(name, value, "a value in this row")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, date | time | timedelta | Decimal):
        return str(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping | list | tuple):
        return of_json(value)
    raise OptionError(name, value, "a text, a number, a date, or an object or array of JSON")


def _is_nan(value: object) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and math.isnan(value)
