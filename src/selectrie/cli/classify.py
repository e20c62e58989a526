"""The command `selectrie classify`, which labels the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from selectrie.cli import inputs, table_runs
from selectrie.cli.decide import DecisionGroup, params_of
from selectrie.cli.groups import Json, ModelGroup
from selectrie.cli.table_runs import ColumnsGroup, TableRunGroup
from selectrie.errors import OptionError

_SHOTS = 4
"""Examples of each label."""


@dataclass(frozen=True, slots=True)
class ClassifyGroup:
    """Table.

    The options that name the table and the labels.
    """

    table: Annotated[
        str | None, Argument(metavar="TABLE", help="The rows to label: .csv, .tsv, .jsonl or .parquet.")
    ] = None
    state: Annotated[
        str | None, Option(metavar="COLUMN", help="What is labelled: a column, or a pattern: '{subject}: {body}'.")
    ] = None
    labels: Annotated[str | None, Option(metavar="FILE", help="The labels: one a line, or a .json array of texts.")] = (
        None
    )
    question: Annotated[str, Option(metavar="TEXT", help="What is asked about each row.")] = ""
    prior: Annotated[
        str | None, Option(metavar="FILE", help="JSON object from label to weight; the labels' own if left out.")
    ] = None
    cue: Annotated[
        str | None, Option(metavar="TEXT", help="In place of a question, such as 'Topic:'; best on base models.")
    ] = None
    examples: Annotated[
        str | None, Option(metavar="FILE", help="A table of the same columns, and the right one in `label`.")
    ] = None
    shots: Annotated[
        int | None, Option(metavar="N", help="Examples of each label that the prompt shows.  [default: 4]")
    ] = None


@dataclass(frozen=True, slots=True)
class ClassifyOutput:
    """Output.

    The options of `selectrie classify` for its output.
    """

    json: Json = False


def classify(
    model: ModelGroup,
    table: ClassifyGroup,
    decision: DecisionGroup,
    columns: ColumnsGroup,
    *,
    running: TableRunGroup,
    output: ClassifyOutput,
) -> int:
    r"""Label every row of a table.

    The rows are kept, and get the columns label, probability, confidence, label_mass,
    margin, abstained and error. Labels are scored as whole texts, any number of any
    length. A run that was killed goes on where it was.

    \b
    selectrie classify tickets.csv --state body --labels labels.txt --out routed.csv
    selectrie classify tickets.csv --state "{subject}: {body}" --labels labels.txt --out routed.jsonl
    selectrie classify --resume routed.csv.run
    """
    if running.resume is not None:
        if (table, decision, columns) != (ClassifyGroup(), DecisionGroup(), ColumnsGroup()):
            raise OptionError("resume", running.resume, "no table or option of it: the run's folder has them")
        source, asked, out, model = table_runs.began(running, model)
        return table_runs.run(model, source, asked, out, running, as_json=output.json)
    from selectrie.decide.questions import Choice
    from selectrie.tables.table_questions import TableQuestions

    for name, value, allowed in (
        ("table", table.table, "the file whose rows get labels"),
        ("state", table.state, "the name of a column, or a pattern of columns in braces"),
        ("labels", table.labels, "the file of the labels"),
    ):
        if value is None:
            raise OptionError(name, None, allowed)
    labels = inputs.read_choices(str(table.labels))
    shown: list[tuple[str, str]] = []
    if table.examples is not None:
        n_each = _SHOTS if table.shots is None else table.shots
        shown = inputs.read_examples(table.examples, str(table.state), labels, n_each)
    elif table.shots is not None:
        raise OptionError("shots", table.shots, "--examples too, which names the table that has them")
    prior = None if table.prior is None else inputs.read_prior(table.prior, labels)
    asked = TableQuestions(
        state=str(table.state),
        questions={"label": Choice(table.question, labels, cue=table.cue, examples=shown)},
        params=params_of(decision, prior),
        probabilities=columns.probabilities,
        prefix=columns.prefix,
        bare=True,
    )
    out = table_runs.out_of(running)
    return table_runs.run(model, Path(str(table.table)), asked, out, running, as_json=output.json)
