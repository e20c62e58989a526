"""Runs over tables, also with right answers, for `selectrie decide` and `classify`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from selectrie.cli import inputs, requests
from selectrie.cli.groups import CascadeGroup, ColumnPrefix, ResumedTable, RunGroup, TableOut, setting
from selectrie.cli.show import check_page, count_progress, show_json, show_report, write_page
from selectrie.core.files import TEXT_SUFFIXES
from selectrie.core.notation import count, written_tolerance
from selectrie.core.output import put, visible, write
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, words
from selectrie.options.selection import BASELINE_RULES

if TYPE_CHECKING:
    from selectrie.decide.answers import Cell
    from selectrie.decide.states import State
    from selectrie.errors import RequestError
    from selectrie.evaluation.label_report import LabelReport
    from selectrie.tables.table_questions import TableQuestions
    from selectrie.tables.table_run import OnProgress, TablePlan, TableProgress

_FURTHER = "predicted_"
"""Prefix of new columns if the table has columns of their names."""


@dataclass(frozen=True, slots=True)
class ColumnsGroup:
    """New columns.

    The options for the columns that answers add.
    """

    probabilities: str = setting(
        "none|json|wide", "Probabilities of all options: in one column, or one for each.", "none"
    )
    prefix: ColumnPrefix = ""


@dataclass(frozen=True, slots=True)
class TableRunGroup(RunGroup):
    """Run.

    The options for where results go, and how a run goes on and is distributed.
    """

    out: TableOut = None
    resume: ResumedTable = None
    html: str | None = setting(
        "FILE", "A page with pictures: answers, label mass, rows to look at; with --gold, errors."
    )


def _began(running: TableRunGroup, model: CascadeGroup) -> tuple[Path, TableQuestions, Path, CascadeGroup]:
    """Return the table, the questions, the results' file and the model of `--resume`.

    The model is the one with which the run began, unless the options name another.
    """
    from selectrie.tables.table_run import read_run_start

    folder = str(running.resume)
    if running.out is not None:
        raise OptionError("resume", folder, "no --out: the results are the folder's name without .run")
    table, asked, out, model_then = read_run_start(Path(folder))
    return table, asked, out, requests.resumed_model(model, model_then, folder)


def resume_table(model: CascadeGroup, running: TableRunGroup, *, as_json: bool) -> int:
    """Go on with the run over a table that `--resume` names."""
    source, asked, out, model = _began(running, model)
    return run_table(model, source, asked, replace(running, out=str(out)), as_json=as_json)


def run_table(
    model: CascadeGroup,
    table: Path,
    asked: TableQuestions,
    running: TableRunGroup,
    *,
    as_json: bool,
    verb: str = "decide",
) -> int:
    """Answer the questions for every row of a table, in a run or to standard output.

    Args:
        model: The options of the model.
        table: The file of the table.
        asked: The questions about every row.
        running: The options of the run; without `out` rows go to standard output.
        as_json: Whether the summary is JSON.
        verb: The command that goes on with the run.
    """
    requests.check_run(running)
    _check_page(running.html)
    if running.ray is not None and model.cascade:
        raise IncompatibleOptionsError("ray", OptionRef("cascade"), "actors load one model each")
    if model.cascade:
        asked = replace(asked, by_model=True)
    with long_fields():
        if running.out in (None, inputs.STDIN):
            return _stream_table(model, table, asked, running, as_json=as_json)
        plan = _plan(table, asked, Path(str(running.out)))
        is_kept = not inputs.is_stdin(table)
        with requests.resumable(f"selectrie {verb} --resume {plan.folder}") if is_kept else nullcontext():
            done = _run_plan(model, plan, running)
    return _show_table(plan, done, as_json=as_json)


def _stream_table(
    model: CascadeGroup, table: Path, asked: TableQuestions, running: TableRunGroup, *, as_json: bool
) -> int:
    """Write the rows of a table with their answers to standard output."""
    if as_json:
        raise OptionError("out", running.out, words("a file, with `json`, whose object would be among the rows"))
    suffix = table.suffix.lower()
    if suffix not in TEXT_SUFFIXES:
        raise OptionError("out", running.out, f"a file for the results: {suffix} cannot be written to stdout")
    with TemporaryDirectory() as folder:
        out = Path(folder) / f"out{suffix}"
        done = _run_plan(model, _plan(table, asked, out), running)
        for one in done.warnings:
            write(visible(f"! {one}"), sys.stderr)
        with out.open(encoding="utf-8", newline="") as file:
            while block := file.read(1 << 20):
                put(block, sys.stdout)
    return 0


def _plan(table: Path, asked: TableQuestions, out: Path) -> TablePlan:
    """Return the plan of a table.

    If the table has a column with the name of a new one that no question's name begins,
    a prefix is put before all new ones.
    """
    from selectrie.tables.table_run import plan_table

    try:
        return plan_table(table, asked, out)
    except OptionError as error:
        if error.name != "prefix" or asked.prefix or not asked.bare:
            raise
        taken = error.value
    plan = plan_table(table, replace(asked, prefix=_FURTHER), out)
    write(visible(f"! the table has a column {taken!r}, so the new ones begin with {_FURTHER}"), sys.stderr)
    return plan


def _run_plan(model: CascadeGroup, plan: TablePlan, running: TableRunGroup) -> TableProgress:
    """Answer the questions for every row of a planned table."""
    from selectrie.engine.cascade import engines_of
    from selectrie.tables.table_run import TableRunOptions, decide_on_cluster, run_table

    with ExitStack() as opened:
        llm = opened.enter_context(requests.open_decider(model))
        tolerance = max(map(written_tolerance, engines_of(llm)))
        page = None if running.html is None else _TablePage(plan, tolerance)
        on_progress = opened.enter_context(_progress_bar())
        on_results = None if page is None else page.add
        options = TableRunOptions(asdict(model), running.other_machine, on_progress, on_results)
        work = requests.on_cluster(decide_on_cluster, engines_of(llm)[0], running, model)
        done = run_table(llm, plan, options, work=work)
    if page is not None:
        write_page(str(running.html), page.table.page(plan.table.path.name))
    return done


def _check_page(path: str | None) -> None:
    """Raise `OptionError` if the page of `--html` cannot be written."""
    if path == inputs.STDIN:
        raise OptionError("html", path, "a file; rows and figures go to stdout")
    check_page(path, as_json=False)


class _TablePage:
    """The page of a run, which grows while the results are written.

    Args:
        plan: The plan of the run.
        tolerance: By how many nats the probabilities may move.
    """

    def __init__(self, plan: TablePlan, tolerance: float) -> None:
        from selectrie.evaluation.report.decided import DecidedTable

        questions = plan.table_questions.questions
        texts = {name: [option.scored for option in one.options] for name, one in questions.items()}
        truths = {name: ["true", "false"] for name, one in questions.items() if one.kind == "predicate"}
        self.table = DecidedTable({**texts, **truths}, tolerance)
        self._columns = plan.columns

    def add(self, states: Sequence[State | RequestError], rows: Sequence[tuple[Cell, ...]]) -> None:
        """Add the rows of a unit."""
        for state, cells in zip(states, rows, strict=True):
            error = cells[-1]
            self.table.add(state, self._columns.answers(cells) if error is None else str(error))


@contextmanager
def long_fields() -> Iterator[None]:
    """Allow long fields in CSV files in the `with` block."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@contextmanager
def _progress_bar() -> Iterator[OnProgress]:
    """Yield a callback that shows how many rows are done, and their errors."""
    with count_progress("rows") as tell:

        def report_progress(progress: TableProgress) -> None:
            tell(progress.rows, progress.n_rows, resumed=progress.rows_logged, about=f"{progress.errors} with an error")

        yield report_progress


def _show_table(plan: TablePlan, done: TableProgress, *, as_json: bool) -> int:
    """Write a summary of a run over a table, and return the exit code."""
    if as_json:
        from selectrie.results.advice import advice_fields

        fields = {"out": str(plan.out), "run": str(plan.folder), "rows": done.rows, "errors": done.errors}
        return show_json({**fields, **advice_fields(done.warnings)}, "decided_table")
    for one in done.warnings:
        write(visible(f"! {one}"), sys.stderr)
    write(visible(f"{plan.out}: {count(done.rows, 'row')}, {done.errors} with an error"), sys.stdout)
    return 0


_LONGEST_FIELD = 16 << 20
"""Characters of a field of CSV; the csv module's own limit is 131 072."""


@dataclass(frozen=True, slots=True)
class LabelsGroup:
    """Right answers.

    The options that judge a labelled table, and fit a calibration or threshold to it.
    """

    gold: list[str] | None = setting("[NAME=]COLUMN", "The column of right answers; the answers are judged by it.")
    fit_calibration: str | None = setting("FILE", "Fit a calibration to the right answers, for --calibration.")
    calibration_method: str = setting(
        "temperature|bias|vector", "One scale, an offset for each option, or both for each.", "temperature"
    )
    ridge: str = setting("N|auto", "Weight of the penalty of the calibration, or the best by cross-validation.", "1")
    fit_threshold: str | None = setting("FILE", "Fit a threshold to the right answers, for --min-confidence.")
    error: float = setting("P", "Largest share of wrong answers above the threshold.", 0.05)
    confidence: float = setting("P", "Probability that this share is kept.", 0.9)


def run_labelled(
    model: CascadeGroup, source: Path, asked: TableQuestions, labels: LabelsGroup, *, html: str | None, as_json: bool
) -> int:
    """Decide the rows of a labelled table, show figures, and write what is fitted.

    `html` is the file of a page with the figures; None for no page.
    """
    from selectrie.decide.calibration import Calibration
    from selectrie.decide.threshold import Threshold
    from selectrie.evaluation.label_report import label_reports
    from selectrie.results import FORMAT_VERSION
    from selectrie.tables.table_run import decide_labelled

    _check_page(html)
    gold = _columns_of(labels, asked)
    _check_fits(labels, asked)
    ridge = _ridge_of(labels.ridge)
    method = labels.calibration_method if labels.fit_calibration is not None else ""
    with requests.open_decider(model) as llm, count_progress("rows") as tell:

        def report_rows(done: int, total: int, n_errors: int) -> None:
            tell(done, total, resumed=0, about=f"{n_errors} with an error")

        decisions, right, states = decide_labelled(llm, source, asked, gold, report_rows)
    reports = label_reports(decisions, right, method=method, ridge=ridge)
    if html is not None:
        from selectrie.evaluation.report.decided import decided_page

        write_page(html, decided_page(states, decisions, right, reports=reports, title=source.name))
    written: dict[str, object] = {} if html is None else {"html": html}
    if labels.fit_calibration is not None:
        calibration = Calibration.fit(decisions, right, method=method, ridge=ridge)
        _save(labels.fit_calibration, "fit_calibration", calibration)
        written["calibration"] = labels.fit_calibration
    threshold = None
    if labels.fit_threshold is not None:
        threshold = Threshold.fit(decisions, right, error=labels.error, confidence=labels.confidence)
        _save(labels.fit_threshold, "fit_threshold", threshold)
        written |= {"threshold": labels.fit_threshold, "guarantee": threshold.describe()}
    if as_json:
        figures = {name: one.to_dict() for name, one in reports.items()}
        return show_json({"format": FORMAT_VERSION, "kind": "labelled_table", "questions": figures, **written})
    for name, report in reports.items():
        _show(name, report)
    for path in (labels.fit_calibration, labels.fit_threshold):
        if path is not None:
            write(visible(f"wrote {path}"), sys.stdout)
    if threshold is not None:
        write(visible(threshold.describe()), sys.stdout)
    return 0


def check_labels(labels: LabelsGroup, running: TableRunGroup, *, is_one: bool = False) -> None:
    """Raise `OptionError` if options go with no column of right answers, or with a run.

    `is_one` says whether one text is labelled, and no table.
    """
    if labels.gold is None:
        raise OptionError("gold", None, "the column of right answers, for what is fitted")
    for name in ("fit_calibration", "fit_threshold"):
        if getattr(labels, name) == inputs.STDIN:
            raise OptionError(name, inputs.STDIN, "a file; the figures go to stdout")
    if is_one or replace(running, html=None) != TableRunGroup():
        raise IncompatibleOptionsError("gold", OptionRef("out"), "rows are judged, or answered and written")


def _columns_of(labels: LabelsGroup, asked: TableQuestions) -> dict[str, str]:
    """Return the column of right answers by the name of the question."""
    columns: dict[str, str] = {}
    for one in labels.gold or ():
        name, equals, column = one.partition("=")
        if not equals or name not in asked.questions:
            if len(asked.questions) > 1:
                names = ", ".join(asked.questions)
                raise OptionError("gold", one, f"NAME=COLUMN with the name of a question: {names}")
            name, column = next(iter(asked.questions)), one
        if name in columns:
            raise OptionError("gold", one, f"one column for each question; {name!r} has {columns[name]!r} already")
        columns[name] = column
    return columns


def _check_fits(labels: LabelsGroup, asked: TableQuestions) -> None:
    """Raise before the model is asked if nothing could be fitted to the answers."""
    if labels.fit_calibration is None:
        return
    fit, params = "fit_calibration", asked.params
    if labels.fit_threshold is not None:
        raise IncompatibleOptionsError(fit, OptionRef("fit_threshold"), "fit the threshold to other rows, calibrated")
    for name, is_given in (("calibration", params.calibration is not None), ("prior", params.prior is not None)):
        if is_given:
            raise IncompatibleOptionsError(fit, OptionRef(name), "a calibration is fitted to plain answers")
    if params.rule in BASELINE_RULES:
        raise IncompatibleOptionsError(fit, OptionRef("rule", params.rule), "it compares with a baseline itself")


def _ridge_of(given: str) -> float | Literal["auto"]:
    """Return the ridge of the options; raise `OptionError` if it is none."""
    from selectrie.decide.calibration import MIN_RIDGE, check_ridge

    if given == "auto":
        return "auto"
    try:
        ridge = float(given)
    except ValueError:
        raise OptionError("ridge", given, f"a number of at least {MIN_RIDGE:g}, or auto") from None
    check_ridge(ridge)
    return ridge


def _save(path: str, name: str, fitted: object) -> None:
    """Save a calibration or threshold; raise `OptionError` if that is not possible."""
    try:
        fitted.save(path)  # type: ignore[attr-defined]  # both have it
    except OSError as error:
        raise OptionError(name, path, f"a file that can be written ({error.strerror or error})") from error


def _show(name: str, report: LabelReport) -> None:
    """Write the figures of a question as a table."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    after = f"{report.method},\n{report.folds} parts" if report.after is not None else ""
    for column in ("", "as it is", after, "difference\n(95 % interval)" if after else ""):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for row in report.rows():
        table.add_row(*map(Text, row))
    show_report(Group(Text(visible(f"{name}: {report.before.n} labelled rows"), style="bold"), table))
