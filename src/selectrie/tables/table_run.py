"""Answers questions about every row of a table, as a run that can be resumed.

Units are evaluated by an engine of this process or by actors of a cluster. A folder
beside the results has the log of the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from selectrie.core.files import check_plain, is_temporary, replaced, writing
from selectrie.core.notation import count
from selectrie.core.vocabulary import TIME_ARGUMENT
from selectrie.decide.answers import Cell, Column, Decision, label_mass_advice
from selectrie.decide.asks import layout_of
from selectrie.decide.calibration import Calibration
from selectrie.decide.columns import AnswerColumns
from selectrie.decide.params import DecisionParams
from selectrie.decide.questions import Question
from selectrie.decide.states import RowStates, State, row_states
from selectrie.decide.threshold import Threshold
from selectrie.engine.cascade import Cascade, engines_of
from selectrie.engine.decisions import with_fitted_calibration, without_batch
from selectrie.engine.engine import Engine
from selectrie.engine.load import load
from selectrie.engine.requests.session import time_args
from selectrie.errors import InputFileError, OptionError, RequestError
from selectrie.results.advice import LOW_COVERAGE, Advice
from selectrie.runs.actors import ActorJob, Cluster, work_on
from selectrie.runs.data_files import reading
from selectrie.runs.folder import (
    FolderFormat,
    begin,
    check_same,
    open_log,
    plan_digest,
    read_resumable,
    resumable_or_none,
    signature_of,
)
from selectrie.tables.formats import Scan, Table, TableUnit, check_output, open_table, scan, units_of, writer_of
from selectrie.tables.table_questions import TableQuestions, absolute, table_questions_of_data

LoggedCells: TypeAlias = tuple[Cell, ...] | str
"""The cells of a row except the error's, or the error if the row has no answers."""
_SPECIAL_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""Floats that JSON cannot represent, by their text in the log."""
_TYPES: Mapping[str, type] = {"label": str, "text": str, "float": float, "int": int, "bool": bool}


@dataclass(frozen=True, slots=True)
class RowResults:
    """The results of the rows of a unit, as a line of the log has them.

    Attributes:
        digest: Digest of the unit's rows.
        rows: The cells or the error of each row.
    """

    digest: str
    rows: tuple[LoggedCells, ...]

    @property
    def n_errors(self) -> int:
        """Return the number of rows with an error."""
        return sum(isinstance(row, str) for row in self.rows)

    def n_low(self, columns: AnswerColumns) -> int:
        """Return the number of rows with an answer of low label mass."""
        answered = (row for row in self.rows if not isinstance(row, str))
        return sum(any(one.label_mass < LOW_COVERAGE for _, one in columns.answers(row)) for row in answered)

    def cells(self, n_columns: int) -> list[tuple[Cell, ...]]:
        """Return the cells of each row, with the error as the last of `n_columns`."""
        return [(*[None] * (n_columns - 1), row) if isinstance(row, str) else (*row, None) for row in self.rows]


def answer_rows(
    decide: Callable[[Sequence[State]], Sequence[Decision]],
    columns: AnswerColumns,
    states: Sequence[State | RequestError],
) -> tuple[LoggedCells, ...]:
    """Evaluate the states of several rows together, and return the results to log.

    Args:
        decide: Returns the decision on each state. The decision on a state that cannot
            be asked has its error.
        columns: The columns of the answers.
        states: The state of each row, or the error of a row without a state.
    """
    rows = columns.rows(decide, states)
    return tuple(row[:-1] if row[-1] is None else str(row[-1]) for row in rows)


class RowLines:
    """The format of the log's lines, a `runs.unit_log.LineFormat`.

    Args:
        columns: The columns of the answers.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._types = [_TYPES[column.kind] for column in columns[:-1]]
        self._floats = [at for at, kind in enumerate(self._types) if kind is float]

    def encode(self, values: RowResults) -> dict[str, object]:
        """Return the fields of a line; infinities and NaN are written as texts."""
        return {"digest": values.digest, "rows": [self._encode_row(row) for row in values.rows]}

    def decode(self, fields: Mapping[str, Any]) -> RowResults:
        """Return the results of a line.

        Raises `ValueError`, `KeyError` or `TypeError` for fields of another form.
        """
        if type(fields["digest"]) is not str:
            raise ValueError("digest has the wrong type")
        return RowResults(fields["digest"], tuple(self._decode_row(row) for row in fields["rows"]))

    def check(self, unit: TableUnit, values: RowResults) -> None:
        """Raise `ValueError` if the results are not those of the unit's rows."""
        if len(values.rows) != len(unit.rows) or values.digest != unit.rows.digest:
            raise ValueError(f"unit {unit.number} of the table has other rows")

    def _encode_row(self, row: LoggedCells) -> object:
        """Return a row as JSON data."""
        if isinstance(row, str):
            return row
        cells: list[Cell] = list(row)
        for at in self._floats:
            cell = cells[at]
            if isinstance(cell, float) and not math.isfinite(cell):
                cells[at] = repr(cell)
        return cells

    def _decode_row(self, row: object) -> LoggedCells:
        """Return a row from JSON data; raise `ValueError` for other types."""
        if isinstance(row, str):
            return row
        if not isinstance(row, list) or len(row) != len(self._types):
            raise ValueError("a row has another number of cells")
        for at in self._floats:
            if isinstance(row[at], str):
                row[at] = _SPECIAL_FLOATS[row[at]]
        for cell, kind in zip(row, self._types, strict=True):
            if cell is not None and type(cell) is not kind:
                raise ValueError(f"{cell!r} in a row has the wrong type")
        return tuple(row)


WINDOW = 16
"""Maximum difference between the numbers of units that are evaluated concurrently."""
FOLDER_SUFFIX = ".run"
"""Suffix that is appended to the name of the results for the folder of the run."""

FOLDER = FolderFormat("decide")


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of a run.

    Attributes:
        rows, n_rows: Number of finished rows, and of all rows.
        errors: Number of finished rows with an error.
        rows_logged: Number of finished rows that an earlier process had logged.
        n_low: Number of finished rows in which an answer has a label mass below
            `LOW_COVERAGE`; 0 for a model without a chat template.
    """

    rows: int
    n_rows: int
    errors: int = 0
    rows_logged: int = 0
    n_low: int = 0

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return advice if rows have a low label mass, else ()."""
        if not self.n_low:
            return ()
        rows = count(self.rows - self.errors, "row")
        least = f"{100 * LOW_COVERAGE:g} %"
        text = f"in {self.n_low} of {rows} the options hold less than {least} of what the model would say."
        return (label_mass_advice(text),)


OnProgress = Callable[[TableProgress], None]
OnResults = Callable[[Sequence[State | RequestError], Sequence[tuple[Cell, ...]]], None]


@dataclass(frozen=True, slots=True)
class TableRunOptions:
    """Options of a run.

    Attributes:
        model: Data from which the caller can load the model again. It is stored, but
            not compared with an earlier process's: the signature is compared.
        other_machine: Whether to resume a run that began with another processor or
            build.
        on_progress: Function that is called at the start and after each unit.
        on_results: Function that is called with the states of a unit and the new cells
            of its rows, in order, while the results are written.
    """

    model: Mapping[str, object] = field(default_factory=dict)
    other_machine: bool = False
    on_progress: OnProgress | None = None
    on_results: OnResults | None = None


DEFAULT_TABLE_RUN = TableRunOptions()


@dataclass(frozen=True, slots=True, eq=False)
class TableRun:
    """A table, and the file to which its rows go with new columns.

    Attributes:
        table: The table.
        scan: The columns and the size of the table.
        states: Converts the values of a row to its state.
        out: The file of the results.
        columns: The new columns.
        unit_rows: Number of rows of a unit.
    """

    table: Table
    scan: Scan
    states: RowStates
    out: Path
    columns: AnswerColumns
    unit_rows: int

    @property
    def folder(self) -> Path:
        """Return the folder of the run."""
        return folder_of(self.out)

    def units(self) -> Iterator[TableUnit]:
        """Yield the units; raise `InputFileError` if the table cannot be read."""
        with reading(self.table.path):
            yield from units_of(self.table, self.unit_rows)

    def states_of(self, unit: TableUnit) -> list[State | RequestError]:
        """Return the state of each row of a unit, or the error of a row without one."""
        return self.states.of_each(unit.rows.values(self.states.columns))


@dataclass(frozen=True, slots=True, eq=False)
class TablePlan(TableRun):
    """A table with checked questions, before anything is written.

    Attributes:
        table_questions: The questions about each row, with their options.
        run_params: The options with the time and the calibration of the run; None
            before `run_table` has set them.
    """

    table_questions: TableQuestions
    run_params: DecisionParams | None = None

    @property
    def params(self) -> DecisionParams:
        """Return the options of the decision; `run_params` if they are set."""
        return self.run_params or self.table_questions.params

    def configuration(self) -> dict[str, object]:
        """Return the configuration from which a run is resumed, ready for JSON."""
        table = {"table": absolute(self.table.path), "format": self.out.suffix.lower()}
        return {**table, **self.table_questions.to_dict()}


Work = Callable[[TablePlan, Iterator[TableUnit]], Iterator[tuple[TableUnit, RowResults]]]
"""A function that evaluates the units of a plan, and yields each with its results.

It may yield them in any order within `WINDOW`.
"""


def folder_of(out: Path) -> Path:
    """Return the folder of the run that writes a file of results."""
    return out.with_name(out.name + FOLDER_SUFFIX)


def open_run_table(table: Path, out: Path, form: FolderFormat, unit_rows: int) -> tuple[Table, Scan]:
    """Return a table, and what a first pass over it finds.

    Raises `InputFileError` and `OptionError` as `plan_table` does for both files.
    """
    source = open_table(table)
    check_output(out, table)
    folder = folder_of(out)
    if resumable_or_none(folder, form) is None and out.exists():
        raise OptionError("out", str(out), f"a new file: it exists, and there is no run in {folder.name}")
    with reading(table):
        scanned = scan(source, unit_rows)
    check_output(out, table, scanned)
    return source, scanned


def run_time(llms: Sequence[Engine], out: Path, form: FolderFormat, given: str | None) -> str | None:
    """Return the time of the prompts of a run: the given one, the run's, or now.

    It is None if no chat template of the engines shows the time.
    """
    run_json = resumable_or_none(folder_of(out), form)
    given = given or (None if run_json is None else run_json["signature"].get("time"))
    times = [time_args(one.vocabulary, given).get(TIME_ARGUMENT) for one in llms]
    return next(filter(None, times), None)


def plan_table(table: Path, table_questions: TableQuestions, out: Path) -> TablePlan:
    """Read a table once, and check everything that needs no model.

    Args:
        table: The file, with one of the suffixes `files.TABLE_SUFFIXES`.
        table_questions: The questions about each row, with their options.
        out: The file of the results, in any of these formats.

    Raises:
        InputFileError: If the table cannot be read; the error names the line.
        OptionError: If a column is missing or a new column already exists. Also if
            `out` cannot be written, or exists without the folder of a run.
        MissingExtraError: For Parquet if pyarrow is not installed.
    """
    source, scanned = open_run_table(table, out, FOLDER, table_questions.unit_rows)
    columns = table_questions.columns()
    columns.check(scanned.names)
    states = row_states(table_questions.state, scanned.names)
    return TablePlan(source, scanned, states, out, columns, table_questions.unit_rows, table_questions)


def with_run_params(llm: Engine | Cascade, plan: TablePlan) -> TablePlan:
    """Return a copy of the plan with the time and the calibration of its run.

    A resumed run keeps both from its beginning. For a new run, the time is the one of
    the options or now, and the calibration "batch" is fitted to the table's states.

    Raises `RequestError` if the questions cannot be asked about any state.
    """
    table_questions, run_json = plan.table_questions, resumable_or_none(plan.folder, FOLDER)
    before = {} if run_json is None else run_json["signature"]
    time = run_time(engines_of(llm), plan.out, FOLDER, table_questions.params.time)
    params = replace(table_questions.params, time=time)
    if params.calibration == "batch" and run_json is not None:
        saved = before.get("calibration")
        params = replace(params, calibration=None if saved is None else Calibration.from_dict(saved))
    elif params.calibration == "batch":
        llm.decision_prompts("0", table_questions.questions, params=without_batch(params))
        states = (one for unit in plan.units() for one in plan.states_of(unit))
        params = with_fitted_calibration(llm.fit_calibration, states, table_questions.questions, params)
    llm.decision_prompts("0", table_questions.questions, params=params)
    return replace(plan, run_params=params)


def run_table(
    llm: Engine | Cascade, plan: TablePlan, options: TableRunOptions = DEFAULT_TABLE_RUN, *, work: Work | None = None
) -> TableProgress:
    """Evaluate all rows that are not yet in the log, and write the results.

    A row that cannot be asked has its error in the column `error`; the run continues.
    After Ctrl-C or an error of the model, the same call resumes the run.

    Args:
        llm: The engine, or a cascade.
        plan: The plan from `plan_table`.
        options: Options of the run.
        work: Evaluates the units. None means `decide_on_engine(llm)`.

    Raises:
        OptionError: If the folder has other files or belongs to another run; the error
            names the difference, and nothing was written.
        InputFileError: If the table has changed since it was planned.
        ModelError: If the model fails.
    """
    plan = with_run_params(llm, plan)
    engines, signature = engines_of(llm), _signature(llm, plan)
    has_chat = any(one.vocabulary.chat_template is not None for one in engines)
    is_chat = has_chat and plan.params.template in ("auto", "chat")
    evaluate, backend = work or decide_on_engine(llm), engines[0].identity.backend
    return run_logged(
        plan,
        FOLDER,
        configuration=plan.configuration(),
        signature=signature,
        work=partial(evaluate, plan),
        options=options,
        backend=backend,
        is_chat=is_chat,
    )


def run_logged(
    plan: TableRun,
    form: FolderFormat,
    *,
    configuration: Mapping[str, object],
    signature: Mapping[str, object],
    work: Callable[[Iterator[TableUnit]], Iterator[tuple[TableUnit, RowResults]]],
    options: TableRunOptions,
    backend: str,
    is_chat: bool = False,
) -> TableProgress:
    """Evaluate the units that are not yet in the log, and write the results.

    Args:
        plan: The table and its new columns.
        form: The format of the folder.
        configuration, signature: Parts of `run.json`; a resumed run must have the same.
        work: Evaluates units.
        options: Options of the run.
        backend: Name of the back end in use.
        is_chat: Whether rows with a low label mass are counted.

    Raises `OptionError`, `InputFileError` and `ModelError` as `run_table` does.
    """
    folder, columns, scanned = plan.folder, plan.columns, plan.scan
    units = {"n_units": scanned.n_units, "n_rows": scanned.n_rows, "digest": scanned.digest}
    parts = {"configuration": configuration, "model": options.model, "plan": units, "signature": signature}
    description = form.describe(parts, backend)
    check_same(folder, form, description, other_machine=options.other_machine)
    with writing(plan.out.parent):
        check_plain(plan.out)
    with open_log(folder, RowLines(columns.columns), window=WINDOW) as log:
        run_json = begin(folder, form, log, description, other_machine=options.other_machine)
        progress = TableProgress(0, plan.scan.n_rows)
        report = options.on_progress or (lambda _: None)
        report(progress)

        def add_progress(unit: TableUnit, values: RowResults, *, logged: int = 0) -> None:
            nonlocal progress
            n = len(unit.rows)
            progress = replace(
                progress,
                rows=progress.rows + n,
                errors=progress.errors + values.n_errors,
                rows_logged=progress.rows_logged + n * logged,
                n_low=progress.n_low + (values.n_low(columns) if is_chat else 0),
            )
            report(progress)

        missing = log.recover(
            plan_digest(run_json), plan.units(), lambda unit, values: add_progress(unit, values, logged=1)
        )
        for unit, values in work(missing):
            log.add(unit, values)
            add_progress(unit, values)
        log.finish()
        with writing(plan.out.parent):
            _remove_temporary(plan.out)
            _write_results(plan, log.in_order(plan.units()), options.on_results)
    return progress


def _signature(llm: Engine | Cascade, plan: TablePlan) -> dict[str, object]:
    """Return the facts that the numbers of a run depend on, ready for JSON."""
    table_questions = plan.table_questions
    questions = table_questions.questions
    layouts = [layout_of(one, table_questions.params, len(questions)) for one in questions.values()]
    signature = {
        **signature_of(engines_of(llm)[0]),
        "templates": table_questions.templates(),
        "layout": ", ".join(dict.fromkeys(layouts)),
    }
    if isinstance(llm, Cascade):
        signature["cascade"] = [signature_of(one) for one in llm.engines[1:]]
        least = llm.min_confidence
        signature["cascade_confidence"] = least.to_dict() if isinstance(least, Threshold) else least
    if plan.params.time is not None:
        signature["time"] = plan.params.time
    if table_questions.params.calibration == "batch" and isinstance(plan.params.calibration, Calibration):
        signature["calibration"] = plan.params.calibration.to_dict()
    return signature


def decide_on_engine(llm: Engine | Cascade) -> Work:
    """Return a function that evaluates units on an engine, one after the other."""

    def work(plan: TablePlan, units: Iterator[TableUnit]) -> Iterator[tuple[TableUnit, RowResults]]:
        columns = plan.table_questions.columns()
        with llm.decision_scorer(plan.table_questions.questions, params=plan.params) as scorer:
            for unit in units:
                rows = answer_rows(scorer.decisions, columns, plan.states_of(unit))
                yield unit, RowResults(unit.rows.digest, rows)

    return work


def _write_results(plan: TableRun, units: Iterable[tuple[TableUnit, RowResults]], on_results: OnResults | None) -> None:
    """Replace the file of the results by the units' rows with their new cells."""
    with replaced(plan.out) as file:
        writer = writer_of(file, plan.out, plan.table, plan.scan, plan.columns)
        for unit, values in units:
            cells = values.cells(len(plan.columns.columns))
            writer.write(unit.rows, cells)
            if on_results is not None:
                on_results(plan.states_of(unit), cells)
        writer.close()


def _remove_temporary(out: Path) -> None:
    """Remove temporary files of a process that was killed while writing the results.

    The caller has the lock of the run, so no other process is writing them.
    """
    for path in out.parent.iterdir():
        if is_temporary(path.name, (out.name,)):
            with suppress(FileNotFoundError):
                path.unlink()


def read_run_start(folder: Path) -> tuple[Path, TableQuestions, Path, dict[str, Any]]:
    """Read from a run's folder the arguments with which the run was started.

    Returns:
        The file of the table, the questions, the file of the results, and the data of
        the model.

    Raises:
        InputFileError: If the folder has no run that can be resumed.
    """
    where = str(folder)
    description = read_resumable(folder, FOLDER)
    configuration = description["configuration"]
    table_questions = table_questions_of_data(configuration, where)
    table, suffix = configuration.get("table"), configuration.get("format")
    if not isinstance(table, str) or not isinstance(suffix, str):
        raise InputFileError(where, "not the configuration of a run: it names no table")
    name = Path(absolute(folder)).name
    out = folder.with_name(name.removesuffix(FOLDER_SUFFIX))
    if not name.endswith(FOLDER_SUFFIX) or out.suffix.lower() != suffix:
        example = f"decided{suffix}{FOLDER_SUFFIX}"
        reason = f"its name is that of the results and {FOLDER_SUFFIX!r}, as in {example}; name it so again"
        raise InputFileError(where, reason)
    return Path(table), table_questions, out, description["model"]


class DecisionActor:
    """An engine in an actor, which answers questions about units of states.

    Args:
        source: The argument of `load` for the model.
        options: Further arguments of `load`.
        questions: The questions by name.
        params: The options of the decision.
        columns: The columns of the answers.
    """

    def __init__(
        self,
        source: str | None,
        options: Mapping[str, Any],
        questions: Mapping[str, Question],
        params: DecisionParams,
        columns: AnswerColumns,
    ) -> None:
        self._engine, self._columns = load(source, **options), columns
        self._scorer = self._engine.decision_scorer(questions, params=params)  # lives as long as the actor

    def signature(self) -> dict[str, object]:
        """Return the facts that determine the model's log-probabilities."""
        return signature_of(self._engine)

    def measure(self, work: Sequence[State | RequestError]) -> tuple[LoggedCells, ...]:
        """Return the results to log for the rows of a unit, given their states."""
        return answer_rows(self._scorer.decisions, self._columns, work)


def decide_on_cluster(
    cluster: Cluster, signature: Mapping[str, object], on_actor: Callable[[Any], None] | None = None
) -> Work:
    """Return a function for `run_table` that evaluates units on a cluster's actors.

    It yields units in the order in which they finish.

    Args:
        cluster: The cluster.
        signature: The signature of the engine that runs the table (`signature_of`).
            Every actor must have the same.
        on_actor: Function that is called with each new actor.
    """

    def work(plan: TablePlan, units: Iterator[TableUnit]) -> Iterator[tuple[TableUnit, RowResults]]:
        arguments = (dict(plan.table_questions.questions), plan.params, plan.table_questions.columns())
        job: ActorJob[TableUnit] = ActorJob(
            DecisionActor, arguments, plan.states_of, signature, window=WINDOW, on_actor=on_actor
        )
        for unit, rows in work_on(cluster, job, units):
            yield unit, RowResults(unit.rows.digest, rows)

    return work


OnRows = Callable[[int, int, int], None]
"""Is called with the number of rows done, of all rows, and of rows with an error."""


def decide_labelled(
    llm: Engine | Cascade, path: Path, asked: TableQuestions, gold: Mapping[str, str], on_rows: OnRows | None = None
) -> tuple[list[Decision], dict[str, list[Any]], list[State | RequestError]]:
    """Return the decision on each row of a table, right values by question, and states.

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
    return decisions, right, [one for _, unit_states in units for one in unit_states]


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
