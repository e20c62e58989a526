"""The command `selectrie extract`, also about tables."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from selectrie.cli import inputs, requests
from selectrie.cli.decide import StateGroup, read_state
from selectrie.cli.groups import (
    ColumnPrefix,
    Json,
    ModelGroup,
    OtherMachine,
    ResumedTable,
    TableOut,
    argument,
    setting,
    switch,
)
from selectrie.cli.show import count_progress, show_json, show_report
from selectrie.core.files import SHOWN_SUFFIXES
from selectrie.core.notation import count
from selectrie.core.output import visible, write
from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError, OptionRef, words
from selectrie.options import BeamSearchParams, SearchParams


@dataclass(frozen=True, slots=True)
class TypeGroup:
    """Type.

    The options for what is extracted, and how.
    """

    type: str | None = setting(
        "MODULE:CLASS|FILE|JSON",
        "A class that can be imported, also of a file (models.py:Ticket), or a JSON Schema (.json).",
        flags="--type --schema",
    )
    instructions: str = setting("TEXT", "What to extract, before the fields.", "")
    layout: str = setting("LAYOUT", "auto, 'state first' or 'questions first'.", "auto")
    value_only: bool = switch("Stop once the best value is certain.")
    exact: bool = switch("Evaluate every value, so that all numbers are exact.")
    width: int | None = setting("N", "Width of the beam that searches a type of many values.  [default: 4]")
    max_tokens: int = setting("N", "Tokens of a text of such a type at most.", 128, flags="--max-tokens -t")
    rescore: bool = switch("Score near ties again, as `selectrie select` does.")


@dataclass(frozen=True, slots=True)
class ExtractStateGroup(StateGroup):
    """State (one of these, or text on stdin).

    The argument and the options that give the state.
    """

    about: str | None = argument("TEXT", "What the value is extracted from (- for stdin).")


@dataclass(frozen=True, slots=True)
class ExtractOutput:
    """Output.

    The options of `selectrie extract` for its output.
    """

    table: str | None = setting("FILE", f"Extract from every row ({SHOWN_SUFFIXES}); --out too.")
    out: TableOut = None
    resume: ResumedTable = None
    other_machine: OtherMachine = False
    prefix: ColumnPrefix = ""
    top: int = setting("K", "Show the K most probable values.", 1)
    json: Json = False


def extract(model: ModelGroup, kind: TypeGroup, state: ExtractStateGroup, output: ExtractOutput) -> int:
    r"""Extract a value of a type from a text, or from every row of a table.

    The value is one JSON text, scored as a whole. Of types of up to 20 000 values the
    most probable one is found for certain, with the probability of each field's values.

    \b
    selectrie extract "My parcel is late!" --type tickets.py:Ticket
    selectrie extract - --schema ticket.json --json < mail.txt
    selectrie extract --type ticket.json --table mails.csv --state body --out made.jsonl
    selectrie extract --resume made.jsonl.run
    """
    if output.resume is not None:
        model, kind, state, output = _began(model, kind, state, output)
    if state.about is not None and (output.table is not None or (state.state, state.state_file) != (None, None)):
        raise OptionError("about", state.about, words("no TEXT beside `state`, `state_file` or `table`: give it once"))
    asked, options = _type(kind.type), _options(kind)
    if output.table is not None:
        return _table(model, kind, asked, options, state, output)
    if output.out is not None:
        raise OptionError("table", None, "a table, or no --out: one text has no file of results")
    about = read_state(state, state.about)
    with requests.open_engine(model) as engine:
        found = engine.extract(about, asked, **options)
    unnamed = requests.unnamed_model(model)
    if output.json:
        top = [one.to_dict() for one in found.top(output.top)]
        return show_json({**found.to_dict(), "top": top, **({} if unnamed is None else {"model": unnamed})})
    from selectrie.cli.report.results import extraction_report

    return show_report(extraction_report(found, top=output.top, unnamed=unnamed))


def _options(group: TypeGroup) -> dict[str, Any]:
    """Return the arguments of `Engine.extract` that the options give."""
    from selectrie.decide.params import DecisionParams

    if group.exact and group.value_only:
        raise IncompatibleOptionsError("exact", OptionRef("value_only"), "give one of the two")
    width = (1 if group.value_only else 4) if group.width is None else group.width
    return {
        "instructions": group.instructions,
        "params": DecisionParams(layout=group.layout),
        "marginals": not group.value_only,
        "search": SearchParams(stop="all") if group.exact else None,
        "beam": BeamSearchParams(width=width, n=width, max_tokens=group.max_tokens),
        "rescore": group.rescore,
    }


def _type(given: str | None) -> Any:
    """Return the type that `--type` names."""
    if given is None:
        expected = "a class as MODULE:CLASS or FILE.py:CLASS, or the file of a JSON Schema"
        raise OptionError("type", None, expected)
    from selectrie.decide.extraction import extracted_type

    try:
        return extracted_type(inputs.read_type(given))
    except OptionError as error:  # of a mapping that is no JSON Schema
        raise OptionError("type", given, error.allowed) if error.name == "kind" else error from error


def _began(
    model: ModelGroup, kind: TypeGroup, state: ExtractStateGroup, output: ExtractOutput
) -> tuple[ModelGroup, TypeGroup, ExtractStateGroup, ExtractOutput]:
    """Return the options with which the run of `--resume` began.

    The model may be another one.
    """
    from selectrie.runs.folder import read_resumable
    from selectrie.tables.extracted_table import FOLDER

    folder = str(output.resume)
    plain = replace(output, resume=None, other_machine=False, json=False)
    if (kind, state, plain) != (TypeGroup(), ExtractStateGroup(), ExtractOutput()):
        raise OptionError("resume", folder, words("no TEXT or other option but `model`: the run's folder has them"))
    then = read_resumable(Path(folder), FOLDER)["model"]
    try:
        kind, state = TypeGroup(**then["type"]), ExtractStateGroup(state=then["state"])
        out = folder.rstrip("/").removesuffix(".run")
        output = replace(output, table=then["table"], out=out, prefix=then["prefix"])
    except (KeyError, TypeError) as error:
        raise InputFileError(folder, "the run began in Python; go on with the call that began it") from error
    return requests.resumed_model(model, then["options"], folder), kind, state, output


def _table(
    model: ModelGroup, group: TypeGroup, kind: Any, options: dict[str, Any], state: StateGroup, output: ExtractOutput
) -> int:
    """Extract from every row of a table; return the exit code."""
    from selectrie.tables.extracted_table import extracted_table
    from selectrie.tables.table_questions import absolute
    from selectrie.tables.table_run import TableProgress, TableRunOptions

    if output.out is None:
        raise OptionError("out", None, "a file for the results, with --table; its suffix is the format")
    if state.state is None or state.state_file is not None:
        raise OptionError("state", None, "the name of a column, or a pattern of columns in braces, for --table")
    table, out = Path(str(output.table)), Path(output.out)
    then = {"type": asdict(group), "state": state.state, "table": absolute(table), "prefix": output.prefix}
    resume = requests.resumable(f"selectrie extract --resume {out}.run")
    with resume, requests.open_engine(model) as engine, count_progress("rows") as tell:

        def show_progress(done: TableProgress) -> None:
            tell(done.rows, done.n_rows, resumed=done.rows_logged, about=f"{done.errors} with an error")

        run = TableRunOptions({**then, "options": asdict(model)}, output.other_machine, show_progress)
        done = extracted_table(engine, table, state.state, kind, out=out, run=run, prefix=output.prefix, **options)
    if output.json:
        return show_json({"kind": "extracted_table", "out": str(out), "rows": done.rows, "errors": done.errors})
    write(visible(f"{out}: {count(done.rows, 'row')}, {done.errors} with an error"), sys.stdout)
    return 0
