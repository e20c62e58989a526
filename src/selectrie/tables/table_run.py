"""Decides about every row of a table, with a run on disk, here or in actors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from selectrie.core.files import check_plain, is_temporary, replaced, writing
from selectrie.core.output import count
from selectrie.core.vocabulary import TIME_ARGUMENT
from selectrie.decide.answers import Cell, Column, Decision, label_mass_advice
from selectrie.decide.calibration import Calibration
from selectrie.decide.columns import AnswerColumns
from selectrie.decide.params import DecisionParams, layout_of
from selectrie.decide.questions import Question
from selectrie.decide.states import RowStates, State, row_states
from selectrie.engine.decision_scorer import with_fitted_calibration
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
from selectrie.tables.formats import (
    Scan,
    Table,
    TableUnit,
    check_output,
    open_table,
    scan,
    units_of,
    writer_of,
)
from selectrie.tables.table_questions import TableQuestions, absolute, asked_of_data

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
    """The format of the lines, a `runs.unit_log.LineFormat`.

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


WINDOW = 16
"""Maximum distance between units that are worked on at once."""
ENDING = ".run"
"""What the name of the folder adds to that of the results."""

FOLDER = FolderFormat(
    kind="decide",
    version=1,
    parts={"configuration": dict, "model": dict, "plan": dict, "signature": dict},
    compared=("configuration", "signature", "plan"),
)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of a run.

    Attributes:
        rows, n_rows: Number of rows done, and of all rows.
        errors: Number of done rows that could not be asked.
        rows_logged: Number of done rows that were read from the log of an earlier
            process.
        n_low: Number of done rows with an answer of a chat model whose label mass is
            below `LOW_COVERAGE`.
    """

    rows: int
    n_rows: int
    errors: int = 0
    rows_logged: int = 0
    n_low: int = 0

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Return what to know before relying on the answers."""
        if not self.n_low:
            return ()
        rows = count(self.rows - self.errors, "row")
        text = f"in {self.n_low} of {rows} the options hold less than {LOW_COVERAGE:.0%} of what the model would say."
        return (label_mass_advice(text),)


OnProgress = Callable[[TableProgress], None]


@dataclass(frozen=True, slots=True)
class TableRunOptions:
    """Options of a run.

    Attributes:
        model: Data from which the caller can load the model again. It is stored but not
            compared, because the signature is.
        other_machine: Whether to go on although processor or build differ from those on
            which the run began.
        on_progress: Called at the start and after each unit.
    """

    model: Mapping[str, object] = field(default_factory=dict)
    other_machine: bool = False
    on_progress: OnProgress | None = None


DEFAULT_TABLE_RUN = TableRunOptions()


@dataclass(frozen=True, slots=True, eq=False)
class TablePlan:
    """A table that was read once, and what is asked of it. Nothing is written yet.

    Attributes:
        table: The table.
        scan: What the first pass found.
        asked: What is asked.
        states: Makes the states of rows.
        out: The file of the results.
        run_params: The options with the time that the chat template is told and the
            calibration of the run, once `run_table` has them.
    """

    table: Table
    scan: Scan
    asked: TableQuestions
    states: RowStates
    out: Path
    run_params: DecisionParams | None = None

    @property
    def folder(self) -> Path:
        """Return the folder of the run."""
        return self.out.with_name(self.out.name + ENDING)

    @property
    def params(self) -> DecisionParams:
        """Return the options of the decision, those of the run once they are fixed."""
        return self.run_params or self.asked.params

    def configuration(self) -> dict[str, object]:
        """Return what the run is made from again, ready for JSON."""
        own = {"table": absolute(self.table.path), "format": self.out.suffix.lower()}
        return {**own, **self.asked.to_dict()}

    def units(self) -> Iterator[TableUnit]:
        """Yield the units; raise `InputFileError` if the table cannot be read."""
        with reading(self.table.path):
            yield from units_of(self.table, self.asked.unit_rows)

    def states_of(self, unit: TableUnit) -> list[State | RequestError]:
        """Return the state of each row of a unit, or why it has none."""
        return self.states.of_each(unit.rows.values(self.states.columns))


Work = Callable[[TablePlan, Iterator[TableUnit]], Iterator[tuple[TableUnit, DecidedRows]]]
"""Decides about units of a plan, and yields them in any order within `WINDOW`."""


def plan_table(table: Path, asked: TableQuestions, out: Path) -> TablePlan:
    """Read a table once, and check all that can be checked without a model.

    Args:
        table: The file, with one of the suffixes `files.TABLE_SUFFIXES`.
        asked: What is asked about its rows.
        out: The file of the results, in any of these formats.

    Raises:
        InputFileError: If the table cannot be read, with its line.
        OptionError: If a column is missing or exists already, or if `out` cannot be
            written, or exists and is not that of a run.
        MissingExtraError: For Parquet without pyarrow.
    """
    source = open_table(table)
    check_output(out, table)
    folder = out.with_name(out.name + ENDING)
    if resumable_or_none(folder, FOLDER) is None and out.exists():
        raise OptionError("out", str(out), f"a new file: it exists, and there is no run in {folder.name}")
    with reading(table):
        found = scan(source, asked.unit_rows)
    check_output(out, table, found)
    asked.columns().check(found.names)
    return TablePlan(source, found, asked, row_states(asked.state, found.names), out)


def with_run_params(llm: Engine, plan: TablePlan) -> TablePlan:
    """Return the plan with the time and the calibration of its run.

    They are those given, those with which the run began, or now, and fitted to the
    states of the table.

    Raises `RequestError` if the questions cannot be asked about any state.
    """
    asked, begun = plan.asked, resumable_or_none(plan.folder, FOLDER)
    before = {} if begun is None else begun["signature"]
    time = time_args(llm.vocabulary, asked.params.time or before.get("time")).get(TIME_ARGUMENT)
    params = replace(asked.params, time=time)
    if params.calibration == "batch" and begun is not None:
        kept = before.get("calibration")
        params = replace(params, calibration=None if kept is None else Calibration.from_dict(kept))
    elif params.calibration == "batch":
        states = (one for unit in plan.units() for one in plan.states_of(unit))
        params = with_fitted_calibration(llm, states, asked.questions, params)
    llm.decision_prompts("0", asked.questions, params=params)
    return replace(plan, run_params=params)


def run_table(
    llm: Engine, plan: TablePlan, options: TableRunOptions = DEFAULT_TABLE_RUN, *, work: Work | None = None
) -> TableProgress:
    """Decide about the rows that the log does not have yet, and write the results.

    A row that cannot be asked has its error in the column `error`, and the run goes on.
    Ctrl-C and errors of the model leave a folder with which the same call goes on.

    Args:
        llm: The engine.
        plan: What `plan_table` returned.
        options: Options of the run.
        work: Decides about units. None means that `llm` does, one unit after the other.

    Raises:
        OptionError: Before anything is written, if the folder holds other files or
            another run; the error names the difference.
        InputFileError: If the table has changed since it was planned.
        ModelError: If the model fails.
    """
    plan = with_run_params(llm, plan)
    folder, columns = plan.folder, plan.asked.columns()
    described = FOLDER.describe(_parts(llm, plan, options), llm.identity.backend)
    check_same(folder, FOLDER, described, other_machine=options.other_machine)
    with writing(plan.out.parent):
        check_plain(plan.out)
    with open_log(folder, RowLines(columns.columns), window=WINDOW) as log:
        run_json = begin(folder, FOLDER, log, described, other_machine=options.other_machine)
        progress = TableProgress(0, plan.scan.n_rows)
        tell = options.on_progress or (lambda _: None)
        tell(progress)

        is_chat = llm.vocabulary.chat_template is not None and plan.params.template in ("auto", "chat")

        def add(unit: TableUnit, values: DecidedRows, *, logged: int = 0) -> None:
            nonlocal progress
            n = len(unit.rows)
            progress = replace(
                progress,
                rows=progress.rows + n,
                errors=progress.errors + values.n_errors,
                rows_logged=progress.rows_logged + n * logged,
                n_low=progress.n_low + (values.n_low(columns) if is_chat else 0),
            )
            tell(progress)

        missing = log.recover(plan_digest(run_json), plan.units(), lambda unit, values: add(unit, values, logged=1))
        for unit, values in (work or decided_by(llm))(plan, missing):
            log.add(unit, values)
            add(unit, values)
        log.finish()
        with writing(plan.out.parent):
            _remove_temporary(plan.out)
            _write(plan, log.in_order(plan.units()))
    return progress


def _parts(llm: Engine, plan: TablePlan, options: TableRunOptions) -> dict[str, object]:
    """Return the parts of `run.json`."""
    found = plan.scan
    units = {"n_units": found.n_units, "n_rows": found.n_rows, "digest": found.digest}
    asked = plan.asked
    layouts = [layout_of(one, asked.params, len(asked.questions)) for one in asked.questions.values()]
    signature = {
        **signature_of(llm),
        "templates": asked.templates(),
        "layout": ", ".join(dict.fromkeys(layouts)),
    }
    if plan.params.time is not None:
        signature["time"] = plan.params.time
    if asked.params.calibration == "batch" and isinstance(plan.params.calibration, Calibration):
        signature["calibration"] = plan.params.calibration.to_dict()
    return {"configuration": plan.configuration(), "model": options.model, "plan": units, "signature": signature}


def decided_by(llm: Engine) -> Work:
    """Return what decides about units on an engine, one after the other."""

    def work(plan: TablePlan, units: Iterator[TableUnit]) -> Iterator[tuple[TableUnit, DecidedRows]]:
        columns = plan.asked.columns()
        with llm.decision_scorer(plan.asked.questions, params=plan.params) as scorer:
            for unit in units:
                rows = decided_rows(scorer.decisions, columns, plan.states_of(unit))
                yield unit, DecidedRows(unit.rows.digest, rows)

    return work


def _write(plan: TablePlan, units: Iterable[tuple[TableUnit, DecidedRows]]) -> None:
    """Replace the file of the results."""
    columns = plan.asked.columns()
    with replaced(plan.out) as file:
        writer = writer_of(file, plan.out, plan.table, plan.scan, columns)
        for unit, values in units:
            writer.write(unit.rows, values.cells(len(columns.columns)))
        writer.close()


def _remove_temporary(out: Path) -> None:
    """Remove what a process left that was killed while it wrote the results.

    The caller holds the lock of the run, so no other one is writing them.
    """
    for path in out.parent.iterdir():
        if is_temporary(path.name, (out.name,)):
            with suppress(FileNotFoundError):
                path.unlink()


def began_with(folder: Path) -> tuple[Path, TableQuestions, Path, dict[str, Any]]:
    """Return what a run began with, from its folder alone.

    Returns:
        The table, what is asked, the file of the results, and the data of the model.

    Raises:
        InputFileError: If the folder holds no run that can go on.
    """
    where = str(folder)
    described = read_resumable(folder, FOLDER)
    configuration = described["configuration"]
    asked = asked_of_data(configuration, where)
    table, suffix = configuration.get("table"), configuration.get("format")
    if not isinstance(table, str) or not isinstance(suffix, str):
        raise InputFileError(where, "not the configuration of a run: it names no table")
    name = Path(absolute(folder)).name
    out = folder.with_name(name.removesuffix(ENDING))
    if not name.endswith(ENDING) or out.suffix.lower() != suffix:
        reason = f"its name is that of the results and {ENDING!r}, as in decided{suffix}{ENDING}; name it so again"
        raise InputFileError(where, reason)
    return Path(table), asked, out, described["model"]


class DecisionActor:
    """A model that decides about states; actors are made of this class."""

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
        """Return the facts that the model's log-probabilities depend on."""
        return signature_of(self._engine)

    def measure(self, work: Sequence[State | RequestError]) -> tuple[LoggedRow, ...]:
        """Return what is logged for the rows of one unit."""
        return decided_rows(self._scorer.decisions, self._columns, work)


def decided_on(
    cluster: Cluster, signature: Mapping[str, object], on_actor: Callable[[Any], None] | None = None
) -> Work:
    """Return what decides about units for `run_table` on a cluster's actors.

    The function yields units in the order in which they finish.

    Args:
        cluster: The cluster.
        signature: `signature_of` the engine that begins the run, which that of every
            actor must equal.
        on_actor: Called with each actor when it is made.
    """

    def work(plan: TablePlan, units: Iterator[TableUnit]) -> Iterator[tuple[TableUnit, DecidedRows]]:
        arguments = (dict(plan.asked.questions), plan.params, plan.asked.columns())
        job: ActorJob[TableUnit] = ActorJob(
            DecisionActor, arguments, plan.states_of, signature, window=WINDOW, on_actor=on_actor
        )
        for unit, rows in work_on(cluster, job, units):
            yield unit, DecidedRows(unit.rows.digest, rows)

    return work
