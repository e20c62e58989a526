"""Runs over tables, for the commands `selectrie decide` and `selectrie classify`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from typer import Option

from selectrie.cli import inputs, requests
from selectrie.cli.groups import CascadeGroup, ColumnPrefix, ResumedTable, RunGroup, TableOut
from selectrie.cli.show import count_progress, show_json
from selectrie.core.files import TEXT_SUFFIXES
from selectrie.core.output import put, visible, write
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, words

if TYPE_CHECKING:
    from selectrie.tables.table_questions import TableQuestions
    from selectrie.tables.table_run import OnProgress, TablePlan, TableProgress

_FURTHER = "predicted_"
"""Prefix of new columns if the table has columns of their names."""


@dataclass(frozen=True, slots=True)
class ColumnsGroup:
    """New columns.

    The options for the columns that answers add.
    """

    probabilities: Annotated[
        str, Option(metavar="none|json|wide", help="Probabilities of all options: in one column, or one for each.")
    ] = "none"
    prefix: ColumnPrefix = ""


@dataclass(frozen=True, slots=True)
class TableRunGroup(RunGroup):
    """Run.

    The options for where results go, and how a run goes on and is distributed.
    """

    out: TableOut = None
    resume: ResumedTable = None


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
        on_progress = opened.enter_context(_progress_bar())
        options = TableRunOptions(asdict(model), other_machine=running.other_machine, on_progress=on_progress)
        work = requests.on_cluster(decide_on_cluster, engines_of(llm)[0], running, model)
        return run_table(llm, plan, options, work=work)


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
    from selectrie.core.output import count

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
