"""Options and output of the commands that ask about every row of a table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Option

from selectrie.cli import requests
from selectrie.cli.groups import ModelGroup
from selectrie.cli.progress import count_progress
from selectrie.cli.show import show_json
from selectrie.core.output import visible, write
from selectrie.errors import OptionError

if TYPE_CHECKING:
    from selectrie.engine.engine import Engine
    from selectrie.tables.table_questions import TableQuestions
    from selectrie.tables.table_run import OnProgress, TablePlan, TableProgress, Work

_LONGEST_FIELD = 16 << 20
"""Characters of a field of CSV; the csv module's own limit is 131 072."""


@dataclass(frozen=True, slots=True)
class ColumnsGroup:
    """New columns.

    The options for the columns that answers add.
    """

    probabilities: Annotated[
        str, Option(metavar="none|json|wide", help="Probabilities of all options: in one column, or one for each.")
    ] = "none"
    prefix: Annotated[str, Option(metavar="TEXT", help="Before the name of every new column.")] = ""


@dataclass(frozen=True, slots=True)
class TableRunGroup:
    """Run.

    The options for where results go, and how a run goes on and is distributed.
    """

    out: Annotated[
        str | None,
        Option(metavar="FILE", help="Results (.csv .tsv .jsonl .parquet); the run is in FILE.run, and goes on there."),
    ] = None
    resume: Annotated[str | None, Option(metavar="FOLDER", help="Go on with a run from its folder FILE.run alone.")] = (
        None
    )
    other_machine: Annotated[
        bool, Option("--other-machine", help="Go on with one that began on another processor or build.")
    ] = False
    ray: Annotated[str | None, Option(metavar="ADDRESS", help="Over a Ray cluster; `local`: one on this machine.")] = (
        None
    )
    actors: Annotated[int | None, Option(metavar="N", help="Models at once. [default: as many as fit]")] = None


def out_of(running: TableRunGroup) -> Path:
    """Return the file of the results; raise `OptionError` if it is not given."""
    if running.out is None:
        raise OptionError("out", None, "a file for the results, with --table; its suffix is the format")
    return Path(running.out)


def began(running: TableRunGroup, model: ModelGroup) -> tuple[Path, TableQuestions, Path, ModelGroup]:
    """Return the table, the questions, the results and the model of `--resume`.

    The model is the one that the run began with, unless one is given.
    """
    from selectrie.evaluation.configuration import check_kinds
    from selectrie.tables.table_run import began_with

    folder = str(running.resume)
    if running.out is not None:
        raise OptionError("resume", folder, "no --out: the results are the folder's name without .run")
    table, asked, out, model_then = began_with(Path(folder))
    check_kinds(model_then, get_type_hints(ModelGroup), folder)
    return table, asked, out, ModelGroup(**model_then) if model == ModelGroup() else model


def run(
    model: ModelGroup, table: Path, asked: TableQuestions, out: Path, running: TableRunGroup, *, as_json: bool
) -> int:
    """Ask about every row of a table, and say what came of it."""
    from selectrie.tables.table_run import TableRunOptions, plan_table, run_table

    if running.actors is not None and running.ray is None:
        raise OptionError("actors", running.actors, "--ray too, which starts the actors")
    with _long_fields(), ExitStack() as opened:
        plan = plan_table(table, asked, out)
        engine = opened.enter_context(requests.open_engine(model))
        on_progress = opened.enter_context(_progress_bar())
        options = TableRunOptions(asdict(model), other_machine=running.other_machine, on_progress=on_progress)
        try:
            done = run_table(engine, plan, options, work=_work(engine, running, model))
        except KeyboardInterrupt:
            command = f"selectrie decide --resume {plan.folder}"
            write(visible(f"interrupted; go on with: {command}"), sys.stderr)
            raise
    return _show(plan, done, as_json=as_json)


def _work(engine: Engine, running: TableRunGroup, model: ModelGroup) -> Work | None:
    """Return what distributes units to a cluster; None if none is asked for."""
    if running.ray is None:
        return None
    from selectrie.runs.folder import signature_of
    from selectrie.tables.table_run import decided_on

    return decided_on(requests.cluster(model, running.ray, running.actors), signature_of(engine))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let fields of CSV be long in the block."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@contextmanager
def _progress_bar() -> Iterator[OnProgress]:
    """Yield a callback that shows how many rows are done, and their errors."""
    with count_progress("rows") as tell:

        def told(progress: TableProgress) -> None:
            tell(progress.rows, progress.n_rows, resumed=progress.rows_logged, about=f"{progress.errors} with an error")

        yield told


def _show(plan: TablePlan, done: TableProgress, *, as_json: bool) -> int:
    from selectrie.core.output import count

    if as_json:
        from selectrie.results import FORMAT_VERSION
        from selectrie.results.advice import advice_fields

        fields: dict[str, Any] = {
            "format": FORMAT_VERSION,
            "kind": "decided_table",
            "out": str(plan.out),
            "run": str(plan.folder),
        }
        advice = advice_fields(done.warnings)
        return show_json({**fields, "rows": done.rows, "errors": done.errors, **advice})
    for one in done.warnings:
        write(visible(f"! {one}"), sys.stderr)
    write(visible(f"{plan.out}: {count(done.rows, 'row')}, {done.errors} with an error"), sys.stdout)
    return 0
