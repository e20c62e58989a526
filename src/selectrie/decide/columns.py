"""Defines the columns that answers add to a table, and wraps data frames."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

from selectrie.decide.answers import Answer, Cell, Column, Decision
from selectrie.decide.questions import Predicate, Question
from selectrie.decide.states import State
from selectrie.errors import MissingExtraError, OptionError, RequestError, SelectrieError
from selectrie.options.checks import one_of, text

PROBABILITIES = ("none", "json", "wide")
ERROR = "error"
"""Name of the column with the error of a row that has no answers."""
_TRUST_COLUMNS = ("confidence", "label_mass", "margin")


@dataclass(frozen=True, slots=True, eq=False)
class _QuestionColumns:
    """The columns of one question.

    Attributes:
        name: Name of the question.
        columns: The columns, in order.
        first_cells: Returns the cells of an answer up to the column of its probability.
        texts: The scored text of each value.
        probabilities: How the probabilities of all options are added: "none", "json" or
            "wide"; "none" for a predicate.
        label_mass: Index into `columns` of the label mass.
        by_model: Whether the last column names the model of a cascade that answered.
        is_predicate: Whether the probability is that of true, whatever the value is.
    """

    name: str
    columns: tuple[Column, ...]
    first_cells: Callable[[Answer], list[Cell]]
    texts: Mapping[Any, str]
    probabilities: str
    label_mass: int
    by_model: bool
    is_predicate: bool

    def row(self, answer: Answer) -> list[Cell]:
        """Return the cells of an answer, in the order of the columns."""
        cells = [*self.first_cells(answer), answer.confidence, answer.label_mass, answer.margin, answer.abstained]
        if self.probabilities == "wide":
            cells += [answer.probabilities.get(value) for value in self.texts]
        if self.probabilities == "json":
            by_text = {self.texts.get(value, value): p for value, p in answer.probabilities.items()}
            cells.append(json.dumps(by_text, ensure_ascii=False))
        if self.by_model:
            cells.append(None if answer.decided_by is None else answer.decided_by.model)
        return cells

    def read(self, cells: Sequence[Cell]) -> AnswerCells:
        """Return what the cells of this question say."""
        at = self.label_mass
        # The columns before the label mass are value, probability and confidence.
        value, p = cells[at - 3], cast("float", cells[at - 2])
        if self.is_predicate:
            text, p = ("true", p) if value else ("false", 1 - p)
        else:
            text = str(self.texts.get(value, value))
        mass, abstained = cast("tuple[float, str]", (cells[at], cells[at + 2]))
        return AnswerCells(text, p, cast("float", cells[at - 1]), mass, abstained)


@dataclass(frozen=True, slots=True)
class AnswerCells:
    """An answer, as its cells have it.

    Attributes:
        text: The text of the option or level; "true" or "false" for a predicate.
        probability: The probability of the value.
        confidence, label_mass, abstained: As in the answer.
    """

    text: str
    probability: float
    confidence: float
    label_mass: float
    abstained: str


@dataclass(frozen=True, slots=True, eq=False)
class AnswerColumns:
    """The columns that answers to some questions add to a table.

    Attributes:
        columns: The columns of each question in order, then the column of errors.
    """

    columns: tuple[Column, ...]
    _questions: tuple[_QuestionColumns, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)

    def check(self, existing: Iterable[str]) -> None:
        """Raise `OptionError` if a table already has a column of one of these names."""
        taken = [name for name in existing if name in set(self.names)]
        if taken:
            raise OptionError("prefix", taken[0], "a prefix for the new columns: the table has a column of this name")

    def answers(self, row: Sequence[Cell]) -> Iterator[tuple[str, AnswerCells]]:
        """Yield the name of each question, and what the cells of a row say about it."""
        start = 0
        for question in self._questions:
            yield question.name, question.read(row[start : start + len(question.columns)])
            start += len(question.columns)

    def row(self, decision: Decision) -> tuple[Cell, ...]:
        """Return the cells of a decision; `error_row` if it has an error."""
        if decision.error is not None:
            return self.error_row(decision.error)
        cells: list[Cell] = []
        for question in self._questions:
            cells += question.row(decision[question.name])
        return (*cells, None)

    def rows(
        self, decide: Callable[[Sequence[State]], Sequence[Decision]], states: Sequence[State | RequestError]
    ) -> list[tuple[Cell, ...]]:
        """Evaluate the states of several rows together, and return the cells of each.

        Args:
            decide: Returns the decision on each state. The decision on a state that
                cannot be asked has its error.
            states: The state of each row, or the error of a row without a state.
        """
        valid = [state for state in states if not isinstance(state, RequestError)]
        decisions = iter(decide(valid) if valid else ())
        return [self.error_row(one) if isinstance(one, RequestError) else self.row(next(decisions)) for one in states]

    def error_row(self, error: SelectrieError) -> tuple[Cell, ...]:
        """Return the cells of a row without answers: None, and its error at the end."""
        return (*(None for _ in self.columns[1:]), error_text(error))


def error_text(error: SelectrieError) -> str:
    """Return an error as `code: message`, without the index of its state."""
    without_index = copy(error)
    without_index.request = None
    return f"{error.code}: {without_index}"


def columns_of(
    questions: Mapping[str, Question],
    *,
    probabilities: str = "none",
    prefix: str = "",
    bare: bool = False,
    by_model: bool = False,
) -> AnswerColumns:
    """Return the columns that the answers to questions add to a table.

    A question `q` adds `q` (the value of a choice, true or false, or the score),
    `q_level` for a score, `q_probability` (of the value, of true, or of the level),
    `q_confidence`, `q_label_mass`, `q_margin` and `q_abstained`.

    The values of a choice are a column of labels if all are texts, and of bool or int
    if all are. An Enum member is represented by its value. If the values are of several
    types, the column has the options' texts.

    Args:
        questions: The questions by name.
        probabilities: "json" adds `q_probabilities`, a JSON object from the text of
            each option to its probability. "wide" adds a column `q_probability_TEXT`
            for each option. Neither applies to a predicate.
        prefix: Text before the name of every added column.
        bare: Whether column names omit the name of the only question: `label` (`value`
            for a predicate, `score` for a score), `probability` and so on.
        by_model: Whether each question adds `q_model`, the name of the model of a
            cascade that gave the answer.

    Raises:
        OptionError: For two columns of one name, a choice of a grammar with "wide", an
            unknown value of `probabilities`, or several questions with `bare`.
    """
    one_of("probabilities", probabilities, PROBABILITIES)
    text("prefix", prefix)
    if bare and len(questions) != 1:
        raise OptionError("bare", bare, "False for several questions, whose columns need names")
    question_columns = tuple(
        _make_question_columns(name, question, probabilities, prefix, "" if bare else name, by_model=by_model)
        for name, question in questions.items()
    )
    columns = (*(column for one in question_columns for column in one.columns), Column(prefix + ERROR, "text"))
    name, n = Counter(column.name for column in columns).most_common(1)[0]
    if n > 1:
        raise OptionError("questions", name, "names whose columns differ: two columns would have this name")
    return AnswerColumns(columns, question_columns)


def _make_question_columns(
    name: str, question: Question, probabilities: str, prefix: str, base: str, *, by_model: bool
) -> _QuestionColumns:
    """Return the columns of a question; their names begin with `prefix` and `base`."""
    stem = f"{prefix}{base}_" if base else prefix
    kind_columns, first_cells = question.columns()
    columns = [replace(one, name=stem + one.name) for one in kind_columns]
    if base:
        columns[0] = replace(kind_columns[0], name=prefix + base)
    columns.append(Column(f"{stem}probability", "float"))
    label_mass = len(columns) + _TRUST_COLUMNS.index("label_mass")
    columns += [Column(f"{stem}{part}", "float") for part in _TRUST_COLUMNS]
    columns.append(Column(f"{stem}abstained", "text"))
    texts = {one.value: one.scored for one in question.options}
    if not question.lists_probabilities:
        probabilities = "none"
    if probabilities == "wide":
        if question.grammar is not None:
            raise OptionError(
                "probabilities", "wide", f"'json' for the choice {name!r}: a grammar has no list of texts"
            )
        columns += [Column(f"{stem}probability_{one}", "float") for one in texts.values()]
    elif probabilities == "json":
        columns.append(Column(f"{stem}probabilities", "text"))
    if by_model:
        columns.append(Column(f"{stem}model", "text"))
    return _QuestionColumns(
        name, tuple(columns), first_cells, texts, probabilities, label_mass, by_model, question.kind == Predicate.kind
    )


_ALLOWED_FRAMES = "a data frame of pandas, polars or pyarrow, in memory"
_PANDAS_TYPES = {"text": "string", "float": "float64", "int": "Int64", "bool": "boolean"}
"""Pandas types that allow missing values, so that errors do not change a type."""


def pandas_type(pandas: Any, column: Column) -> Any:
    """Return the type of a column in pandas: categorical for labels."""
    labels = list(dict.fromkeys(column.labels))
    return pandas.CategoricalDtype(labels) if column.kind == "label" else _PANDAS_TYPES[column.kind]


class Frame:
    """A data frame with a row for each state, of pandas, polars or pyarrow.

    Args:
        table: The data frame.

    Raises:
        OptionError: For anything else, such as a lazy frame, and for a frame with two
            columns of one name.
        MissingExtraError: If narwhals is not installed.
    """

    def __init__(self, table: object) -> None:
        try:
            import narwhals
        except ImportError as error:
            raise MissingExtraError("a data frame", "tables") from error
        self._narwhals = narwhals
        try:
            frame = narwhals.from_native(table, eager_only=True)
            names = frame.columns
        except narwhals.exceptions.DuplicateError as error:
            raise OptionError("table", table, "a data frame whose columns have different names") from error
        except TypeError as error:
            lazy = "; collect() a lazy one first" if hasattr(table, "collect") else ""
            raise OptionError("table", table, _ALLOWED_FRAMES + lazy) from error
        self._frame: Any = frame
        self.columns = tuple(name for name in names if isinstance(name, str))  # pandas allows other names

    def __len__(self) -> int:
        return len(self._frame)

    def units(self, columns: Sequence[str], n_rows: int) -> Iterator[list[tuple[object, ...]]]:
        """Yield lists of `n_rows` rows; a row is a tuple of the values of `columns`."""
        rows = self._frame.select(*columns).iter_rows(buffer_size=n_rows)
        while unit := list(islice(rows, n_rows)):
            yield unit

    def with_columns(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Any:
        """Return a frame of the same library with new columns after the existing ones.

        A pandas index is kept. Columns of labels are categorical, in the order of
        `Column.labels`. A cell None becomes the missing value of the library.

        Args:
            columns: The new columns.
            rows: The cells of each row, in the order of `columns`.
        """
        cells = list(zip(*rows, strict=True)) or [()] * len(columns)
        added = [self._make_series(*pair) for pair in zip(columns, cells, strict=True)]
        return self._frame.with_columns(*added).to_native()

    def _make_series(self, column: Column, cells: Sequence[Cell]) -> Any:
        """Return the narwhals series of a new column, with the library's own type."""
        nw, kind = self._narwhals, self._frame.implementation
        native = kind.to_native_namespace()
        labels = list(dict.fromkeys(column.labels))
        if kind.is_pandas_like():
            dtype = pandas_type(native, column)
            series = native.Series(list(cells), dtype=dtype, index=self._frame.to_native().index)
            return nw.from_native(series, series_only=True).alias(column.name)
        if kind.is_pyarrow() and column.kind == "label":
            at = {label: i for i, label in enumerate(labels)}
            indices = native.array([None if cell is None else at[str(cell)] for cell in cells], native.int32())
            categories = native.DictionaryArray.from_arrays(indices, native.array(labels, native.string()))
            return nw.from_native(native.chunked_array([categories]), series_only=True).alias(column.name)
        dtypes = {"text": nw.String, "float": nw.Float64, "int": nw.Int64, "bool": nw.Boolean}
        dtype = nw.Enum(labels) if column.kind == "label" else dtypes[column.kind]
        return nw.new_series(column.name, list(cells), dtype, backend=kind)
