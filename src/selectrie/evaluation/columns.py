"""Builds a task from the names of a table's columns, in place of a task file."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from selectrie.decide.columns import Frame
from selectrie.decide.states import is_missing, list_columns, row_states
from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError, OptionRef, words
from selectrie.evaluation.dataset import Data, DataRecord, RecordReader, read_data, read_gold, text_of_value
from selectrie.evaluation.tasks import FieldError, Format, Task, parse_task

MAX_LABELS = 1000
"""Maximum number of distinct labels in a column; each question asks about all."""
READINGS = ("index", "number", "letter", "column", "text")
"""Meanings of a right answer in a column of a table.

They are the index of a choice from 0, its number from 1, its letter from A, the name of
its column, and its text.
"""
TEXT_COLUMN, LABEL_COLUMN = "text", "label"
"""Columns that are read if `context` or the right choice is not named."""
QUESTION_COLUMNS = ("question", "choices", "answer")
"""Columns of context, choices and right choice of a table without those two."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names the columns of a table that become questions.

    Attributes:
        context: The column with the text before every choice, or a pattern in which
            `{column}` is replaced by a value and `{{` and `}}` by single braces.
        choices: The columns with one choice each; or one column with a list of texts.
        labels: In place of `choices`, the texts that all questions have as choices; or
            one column, whose distinct texts are the choices and whose value in a row is
            the right one.
        gold: The column with the right choice of each row; None if `labels` names it.
        gold_as: What its values are, one of `READINGS`. None means the only meaning
            that fits every row.
    """

    context: str
    choices: str | Sequence[str] = ()
    labels: str | Sequence[str] = ()
    gold: str | None = None
    gold_as: str | None = None

    def __post_init__(self) -> None:
        for name in ("choices", "labels"):
            object.__setattr__(self, name, _as_texts(name, getattr(self, name)))
        if self.choices and self.labels:
            raise IncompatibleOptionsError("labels", OptionRef("choices"), "leave one of them out")
        if not self.choices and not self.labels:
            raise OptionError("choices", None, "the columns of the choices, or the labels of a classification")
        if self.is_label_column and self.gold is not None:
            raise OptionError(
                "labels", self.labels, words("a list of texts, because `gold` names the column of labels")
            )
        if not self.is_label_column and self.gold is None:
            raise OptionError("gold", None, "the column with the right choice")
        if not self.is_label_column and 0 < len(self.labels) < 2:
            raise OptionError(
                "labels", self.labels, words("at least two labels; for a column of them leave out `gold`")
            )
        if self.gold_as is not None and (self.gold_as not in READINGS or self.is_label_column):
            allowed = (
                "nothing, because the labels are texts" if self.is_label_column else f"one of {', '.join(READINGS)}"
            )
            raise OptionError("gold_as", self.gold_as, allowed)

    @property
    def is_label_column(self) -> bool:
        """Return whether `labels` names a column."""
        return isinstance(self.labels, str) and bool(self.labels)


def _as_texts(name: str, value: object) -> str | tuple[str, ...]:
    """Return a text, or an iterable of different texts as a tuple."""
    if isinstance(value, str):
        return value
    texts = tuple(value) if isinstance(value, Iterable) and not isinstance(value, AbstractSet) else (None,)
    if not all(isinstance(one, str) and one for one in texts) or len(set(texts)) < len(texts):
        raise OptionError(name, value, "the name of a column, or a list of different texts")
    return texts


def columns_with_defaults(
    names: Iterable[str],
    *,
    context: str | None = None,
    choices: str | Sequence[str] = (),
    labels: str | Sequence[str] = (),
    gold: str | None = None,
    gold_as: str | None = None,
) -> Columns:
    """Return the columns that become questions, with defaults for those not named.

    The context is the column "text", and the right choice is in the column "label".
    Without choices and labels, the distinct texts of "label" are the choices. A default
    counts only if the table has its column. If none is named and there is no "text",
    they are "question", "choices" and "answer".

    Args:
        names: Names of the table's columns.
        context, choices, labels, gold, gold_as: As in `Columns`; None or empty for a
            default.

    Raises:
        OptionError: For a column that is needed, not named and not in the table.
    """
    known = list(names)
    choices, labels = _as_texts("choices", choices), _as_texts("labels", labels)
    is_usual = TEXT_COLUMN not in known and {*QUESTION_COLUMNS} <= {*known}
    if is_usual and context is gold is None and not choices and not labels:
        context, choices, gold = QUESTION_COLUMNS
    if context is None:
        if TEXT_COLUMN not in known:
            allowed = f"the column of the questions; the table has no column {TEXT_COLUMN!r}, but {list_columns(known)}"
            raise OptionError("context", None, allowed)
        context = TEXT_COLUMN
    if gold is None and LABEL_COLUMN in known:
        if not choices and not labels:
            labels = LABEL_COLUMN
        elif choices or not isinstance(labels, str):
            gold = LABEL_COLUMN
    return Columns(context, choices, labels, gold, gold_as)


def names_of(data: Data) -> list[str]:
    """Return the names of a table's columns, in the order of their first rows."""
    return list(dict.fromkeys(name for record in data.records for name in record.fields))


SOURCE = "columns of a table"
"""The `source` of a task that is made of columns."""
Table: TypeAlias = Any
"""A list of objects, the path of a data file, or a data frame."""


def data_of(table: Table) -> Data:
    """Return the records of a list of objects, of a data file, or of a data frame.

    Raises:
        InputFileError: For a file, as `read_data` does.
        OptionError: For anything else, and for a table without rows.
        MissingExtraError: For a data frame without narwhals.
    """
    if isinstance(table, str | Path):
        return read_data(Path(table))
    if isinstance(table, Sequence) and all(isinstance(one, Mapping) for one in table):
        rows: Iterable[Mapping[str, Any]] = table
    else:
        frame = Frame(table)
        rows = (dict(zip(frame.columns, row, strict=True)) for unit in frame.units(frame.columns, 64) for row in unit)
    plain = ({name: _to_plain(value) for name, value in row.items()} for row in rows)
    records = tuple(DataRecord(number, row) for number, row in enumerate(plain, start=1))
    if not records:
        raise OptionError("data", table, "at least one row")
    return Data(Path("data"), records, "")


def _to_plain(value: Any) -> Any:
    """Return a cell as a value of Python, with None for a missing one."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else None if is_missing(value) else value


def build_task(name: str, columns: Columns, data: Data) -> Task:
    """Return the task that asks the questions in some columns of a table.

    It is parsed from the text of a task file (`Task.text`), which can be kept and
    edited.

    Args:
        name: Name of the task.
        columns: The columns.
        data: The table. Its rows decide what the values of `gold` are, and which labels
            there are.

    Raises:
        OptionError: For a column that is not in the table; if the values of `gold` have
            several meanings that differ; or if there are too few or too many labels.
        InputFileError: With the row, for a missing value, and for a right choice that
            does not exist.
    """
    rules = _TaskRules(name, columns, data)
    if columns.gold is None:
        return rules.parse(str(columns.labels), Format(gold_as="text"))
    readings = _list_readings(columns)
    reading = _find_reading(rules.parse("", Format()), columns.gold, readings, data)
    return rules.parse(columns.gold, reading)


class _TaskRules:
    """The text of a task file for some columns, except for the reading of `gold`."""

    def __init__(self, name: str, columns: Columns, data: Data) -> None:
        self._name, self._data = name, data
        self._known = names_of(data)
        self._prefix = "column"
        while any(key.startswith(self._prefix) for key in self._known):
            self._prefix += "_"
        self._aliases: dict[str, str] = {}
        state = row_states(columns.context, self._known, "context")
        asked = [self._alias_of(key) for key in state.columns]
        self._context = _join_template(
            [part if isinstance(part, str) else (asked[part],) for part in state.parts or (0,)]
        )
        self._content_free = {alias: ["N/A", "[MASK]", ""] for alias in asked}
        for option in ("gold", "choices"):
            for key in _as_tuple(getattr(columns, option)):
                self._require(key, option)
        self._choices = self._choices_of(columns)
        _check_cells(data, (*state.columns, *_as_tuple(columns.gold)), _as_tuple(columns.choices))
        if columns.labels and not state.parts:
            _check_texts(data, state.columns[0])

    def _choices_of(self, columns: Columns) -> str | list[str]:
        """Return the choices as a task file has them: a field, or templates."""
        if isinstance(columns.choices, str) and columns.choices:
            return columns.choices
        if columns.choices:
            return [_join_template([(self._alias_of(key),)]) for key in columns.choices]
        labels = columns.labels
        if isinstance(labels, str):
            labels = _distinct_labels(self._data, self._require(labels, "labels"))
        return [_join_template([text]) for text in labels]

    def _require(self, key: str, option: str) -> str:
        """Return `key`; raise `OptionError` if it is no column of the table."""
        # A nested field is one of the reader's errors.
        if key not in self._known and key.partition(".")[0] not in self._known:
            raise OptionError(option, key, f"a column of {self._data.path.name}; it has {list_columns(self._known)}")
        return key

    def _alias_of(self, key: str) -> str:
        """Return the name by which templates call a column: any text may name one."""
        return self._aliases.setdefault(key, f"{self._prefix}_{len(self._aliases) + 1}")

    def parse(self, gold: str, reading: Format) -> Task:
        """Return the task whose right choices are in the column `gold`, or the first.

        Args:
            gold: The column; "" if the first choice is right.
            reading: A format with the fields `gold_as` and `labels`.
        """
        prepare = ", ".join(
            f"{{ field = {_quote(alias)}, of = {_quote(key)} }}" for key, alias in self._aliases.items()
        )
        free = ", ".join(f"{alias} = {_quote(texts)}" for alias, texts in self._content_free.items())
        lines = [
            f"name = {_quote(self._name)}",
            "version = 1",
            'kind = "multiple_choice"',
            f"source = {_quote(SOURCE)}",
            'metrics = ["acc", "acc_norm"]',
            "",
            "[[format]]",
            f"prepare = [{prepare}]",
            f"context = {_quote(self._context)}",
            f"choices = {_quote(self._choices)}",
            f"gold = {_quote(gold)}",
            f"gold_as = {_quote(reading.gold_as)}",
            f"labels = {_quote(list(reading.labels))}",
            f"content_free = {{ {free} }}",
        ]
        return parse_task("\n".join(lines) + "\n", f"{self._name}.toml")


def _check_cells(data: Data, columns: Iterable[str], choices: Iterable[str]) -> None:
    """Raise `InputFileError` for a missing value in the columns, or an empty choice."""
    for record in data.records:
        for key in columns:
            if key in record.fields and is_missing(record.fields[key]):
                raise InputFileError(str(data.path), f"the column {key!r} has no value", line=record.number)
        for key in choices:
            if key in record.fields and (is_missing(record.fields[key]) or record.fields[key] == ""):
                reason = f"the column {key!r} has no choice; one column with a list may hold fewer in a row"
                raise InputFileError(str(data.path), reason, line=record.number)


def _check_texts(data: Data, column: str) -> None:
    """Raise `InputFileError` for a blank text in a column that gets labels."""
    for record in data.records:
        text = record.fields.get(column)
        if isinstance(text, str) and not text.strip():
            reason = f"the column {column!r} has a blank text, which no label fits; remove the row"
            raise InputFileError(str(data.path), reason, line=record.number)


def _as_tuple(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return one name or several as a tuple, empty for none."""
    return (value,) if isinstance(value, str) and value else tuple(value or ())


def _quote(value: object) -> str:
    """Return a text, or a list of texts, as TOML."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _join_template(parts: Iterable[str | tuple[str]]) -> str:
    """Return a template of literal texts and of fields, which are tuples of a name."""
    written = ""
    for part in parts:
        if isinstance(part, str):
            written += re.sub(r"(\\*)<<", r"\1\1\\<<", part)
        else:
            # A backslash before a tag would make it a text.
            written = re.sub(r"(\\*)(<?)\Z", r"\1\1\2", written, count=1) + f"<<{part[0]}>>"
    return written


def _distinct_labels(data: Data, column: str) -> tuple[str, ...]:
    """Return the distinct texts of a column, sorted."""
    labels = set()
    for record in data.records:
        text = text_of_value(record.fields.get(column))
        if is_missing(record.fields.get(column)) or not text:
            raise InputFileError(str(data.path), f"the column {column!r} has no value", line=record.number)
        labels.add(text)
    if not 1 < len(labels) <= MAX_LABELS:
        allowed = f"a column with 2 to {MAX_LABELS} different labels; it has {len(labels)}"
        raise OptionError("labels", column, allowed)
    return tuple(sorted(labels))


def _list_readings(columns: Columns) -> dict[str, Format]:
    """Return the possible readings of `gold`: formats with `gold_as` and `labels`."""
    readings = {
        "index": Format(gold_as="place"),
        "number": Format(gold_as="number"),
        "letter": Format(gold_as="label", labels=tuple(string.ascii_uppercase)),
        "text": Format(gold_as="text"),
    }
    if isinstance(columns.choices, tuple) and columns.choices:
        names = tuple(_join_template([key]) for key in columns.choices)
        readings["column"] = Format(gold_as="label", labels=names)
    if columns.gold_as is None:
        return readings
    if columns.gold_as not in readings:
        raise OptionError("gold_as", columns.gold_as, f"one of {', '.join(readings)}, because no column is a choice")
    return {columns.gold_as: readings[columns.gold_as]}


def _find_reading(task: Task, gold: str, readings: Mapping[str, Format], data: Data) -> Format:
    """Return the reading of the column `gold` that fits every row.

    Raises `InputFileError` for the first row that no reading fits, and `OptionError` if
    several fit that differ in a row.
    """
    reader = RecordReader(task, data.path)
    found: dict[str, list[tuple[int, ...]]] = {name: [] for name in readings}
    for record in data.records:
        question = reader.read_question(record)
        fitting = {}
        for name in found:
            with suppress(FieldError):
                form = replace(readings[name], gold=gold)
                fitting[name] = read_gold(form, question.fields, question.choices)
        if not fitting:
            meant = " or ".join(found)
            before = ", as in the rows before" if len(found) < len(readings) else ""
            reason = f"{gold} is {question.fields.get(gold)!r}: expected the {meant} of a choice{before}"
            raise InputFileError(str(data.path), reason, line=record.number)
        found = {name: found[name] for name in fitting}
        for name, right in fitting.items():
            found[name].append(right)
    names = list(found)
    for record, *rights in zip(data.records, *found.values(), strict=True):
        if len(set(rights)) > 1:
            meant = ", ".join(f"{name} (choice {right[0]})" for name, right in zip(names, rights, strict=True))
            allowed = (
                f"one of the meanings that fit all rows of {gold!r}, which differ in line {record.number}: {meant}"
            )
            raise OptionError("gold_as", None, allowed)
    return readings[names[0]]
