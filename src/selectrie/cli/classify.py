"""The command `selectrie classify`: labels of a text, or of every row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from selectrie.cli import inputs, requests
from selectrie.cli.decide import DecisionGroup, StateGroup, params_of, read_state
from selectrie.cli.groups import STDIN_ROWS, CascadeGroup, JsonOutput, argument, setting, switch
from selectrie.cli.show import show_json, show_report
from selectrie.cli.tables import (
    ColumnsGroup,
    LabelsGroup,
    TableRunGroup,
    check_labels,
    long_fields,
    resume_table,
    run_labelled,
    run_table,
)
from selectrie.core.files import DELIMITERS, SHOWN_SUFFIXES, TABLE_SUFFIXES
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, joined, words

if TYPE_CHECKING:
    from selectrie.decide.classification import LabelQuestions
    from selectrie.decide.params import DecisionParams
    from selectrie.tables.table_questions import TableQuestions

_SHOTS = 4
"""Examples of each label."""
_TEXT_COLUMN = "text"
"""Name of the column that is labelled if no other is named."""


@dataclass(frozen=True, slots=True)
class ClassifyGroup:
    """Texts and labels.

    The options that name what is labelled, and the labels.
    """

    table: str | None = argument(
        "TABLE|TEXT",
        f"The rows to label ({SHOWN_SUFFIXES}), or one text. - is stdin: each line is a text, or with --state "
        "or --gold a row of a table; JSON Lines are rows.",
        mark=STDIN_ROWS,
    )
    text: str | None = setting("TEXT", "One text to label, in place of a table.")
    state_file: str | None = setting("FILE", "The same from a file (- for stdin); a .json file is JSON, or messages.")
    state: str | None = setting(
        "COLUMN",
        "What is labelled: a column, or a pattern: '{subject}: {body}'.  [default: 'text', or the only one]",
        flags="--state --column --text-column",
    )
    labels: str | None = setting(
        "A,B,…|FILE",
        "The labels, or a file of them: one a line, or a .json array of texts.",
        flags="--labels -l --choices",
    )
    none: str | None = setting("TEXT", "One more label for what no other fits, such as 'none of these'.")
    multi_label: bool = switch("Any number of labels may be true; each gets its own columns.")
    instructions: str | None = setting(
        "TEXT", "The question; with --multi-label a statement: 'It is about {label}.'.", flags="--question"
    )
    prior: str | None = setting(
        "FILE", "JSON object from label to weight, or of yes and no; the labels' own if left out."
    )
    cue: str | None = setting("TEXT", "In place of a question, such as 'Topic:'; best on base models.")
    examples: str | None = setting(
        "FILE", "A table of the same columns, and the right one in `label`.", mark=STDIN_ROWS
    )
    shots: int | None = setting("N", "Examples of each label that the prompt shows.  [default: 4]")

    @property
    def is_one(self) -> bool:
        """Return whether one text is labelled, and no table."""
        return self.text is not None or self.state_file is not None


def classify(
    model: CascadeGroup,
    table: ClassifyGroup,
    decision: DecisionGroup,
    columns: ColumnsGroup,
    *,
    running: TableRunGroup,
    right: LabelsGroup,
    output: JsonOutput,
) -> int:
    r"""Label a text, or every row of a table.

    The rows are kept, and get the columns label, probability, confidence, label_mass,
    margin, abstained and error; if the table has one of these, all begin with
    predicted_. Labels are scored as whole texts, any number of any length. Without
    --out the rows go to stdout. With it, a run that was killed goes on where it was.

    \b
    selectrie classify "It broke!" --labels refund,praise --none "none of these"
    selectrie classify - -l refund,praise < mails.txt
    selectrie classify --state-file mail.txt -l refund,praise
    selectrie classify tickets.csv --state body --labels refund,praise > routed.csv
    selectrie classify tickets.csv --state body --labels labels.txt --out routed.jsonl
    selectrie classify labelled.csv --state body --labels refund,praise --gold kind
    selectrie classify --resume routed.csv.run
    """
    if running.resume is not None:
        if (table, decision, columns, right) != (ClassifyGroup(), DecisionGroup(), ColumnsGroup(), LabelsGroup()):
            raise OptionError("resume", running.resume, "no table or option of it: the run's folder has them")
        return resume_table(model, running, as_json=output.json)
    table = _with_text(table, may_be_line=output.json and (running, right) == (TableRunGroup(), LabelsGroup()))
    if right != LabelsGroup():
        check_labels(right, running, is_one=table.is_one)
    if table.is_one:
        return _label_text(model, table, decision, columns, running=running, output=output)
    source = _source_of(table, right)
    with long_fields():
        state = _state_of(table, source)
        questions, params = _questions_of(table, decision, state)
        asked = _asked(questions, params, columns, state)
        if right != LabelsGroup():
            return run_labelled(model, source, asked, right, html=running.html, as_json=output.json)
        return run_table(model, source, asked, running, as_json=output.json, verb="classify")


def _with_text(table: ClassifyGroup, *, may_be_line: bool) -> ClassifyGroup:
    """Return the options with an argument that names no table as `text`.

    With `may_be_line`, the only line of standard input is a text too.
    """
    given = table.table
    if given is not None and may_be_line and table == replace(table, text=None, state=None) and _has_lines(given):
        line = inputs.read_prompt(given)
        return table if "\n" in line or not line else replace(table, table=None, text=line)
    if given is None or table.is_one or inputs.is_stdin(given) or inputs.is_file(given):
        return table
    if given.lower().endswith(TABLE_SUFFIXES):
        return table
    remedy = words(f"a table is a file {SHOWN_SUFFIXES}, and such a text is given as {{}}", OptionRef("text"))
    if inputs.resembles_file(given):
        raise OptionError("table", given, words("a text, or the name of a file that exists; {}", remedy))
    return replace(table, table=None, text=given)


def _label_text(
    model: CascadeGroup,
    table: ClassifyGroup,
    decision: DecisionGroup,
    columns: ColumnsGroup,
    *,
    running: TableRunGroup,
    output: JsonOutput,
) -> int:
    """Label one text, and show the answer."""
    given = "text" if table.state_file is None else "state_file"
    others = ("table", "state", "text") if given == "state_file" else ("table", "state")
    for name in others:
        if getattr(table, name) is not None:
            raise IncompatibleOptionsError(given, OptionRef(name), "label one text, or the rows of a table")
    if (columns, running) != (ColumnsGroup(), TableRunGroup()):
        raise OptionError("table", None, words("a table, or no `out`, `probabilities` or other option of tables"))
    _require(table)
    read_questions = partial(_questions_of, table, decision, _TEXT_COLUMN)
    (questions, params), about = requests.read_all(
        read_questions, partial(read_state, StateGroup(table.text, table.state_file))
    )
    with requests.open_decider(model) as decider:
        result = decider.decide(about, questions.questions, params=params)
    unnamed = requests.unnamed_model(model)
    if output.json:
        value = questions.answer(result).value
        return show_json({**result.to_dict(), "value": value, **({} if unnamed is None else {"model": unnamed})})
    from selectrie.cli.report.results import decision_report

    return show_report(decision_report(result, unnamed=unnamed))


def _require(table: ClassifyGroup, *further: str) -> None:
    """Raise one `OptionError` that names all missing options; return if none is.

    `further` are options that are missing for another reason.
    """
    allowed = {
        "table": "the file whose rows get labels, one text, or - for the lines of stdin",
        "labels": "the labels with commas between them, or their file",
        "state": "the name of a column, or a pattern of columns in braces",
    }
    has_source = table.table is not None or table.is_one
    given = {"table": has_source, "labels": table.labels is not None, "state": "state" not in further}
    missing = [name for name, is_given in given.items() if not is_given]
    if missing:
        first, others = allowed[missing[0]], missing[1:]
        also = words("{}; also missing: {}", first, joined(map(OptionRef, others))) if others else first
        raise OptionError(missing[0], None, also)


def _source_of(table: ClassifyGroup, right: LabelsGroup) -> Path:
    """Return the file of the table, which may be made of the lines of stdin."""
    if table.table is None:  # the call raises, because the table is missing
        _require(table, *(() if table.state else ("state",)))
    source = Path(str(table.table))
    has_columns = table.state is not None or right.gold is not None
    return inputs.save_lines(source) if _has_lines(source) and not has_columns else source


def _has_lines(path: str | Path) -> bool:
    """Return whether a path is standard input whose content is not JSON."""
    return inputs.is_stdin(path) and Path(path).suffix in DELIMITERS


def _state_of(table: ClassifyGroup, source: Path) -> str:
    """Return the column that is labelled, by its name or because it is the only one."""
    from selectrie.runs.data_files import reading
    from selectrie.tables.formats import open_table

    if table.state is not None:
        _require(table)
        return table.state
    with reading(source):
        opened = open_table(source)
        names = [one.name for one in opened.columns(islice(opened.units(1), 1))]
    found = [name for name in names if name == _TEXT_COLUMN] or [name for name in names if name != "label"]
    if len(found) == 1:
        _require(table)
        return found[0]
    if table.labels is None:
        _require(table, "state")
    raise OptionError("state", None, f"the column to label; the table has {', '.join(map(repr, names))}")


def _questions_of(table: ClassifyGroup, decision: DecisionGroup, state: str) -> tuple[LabelQuestions, DecisionParams]:
    """Return the questions of the labels, and the `DecisionParams` to ask them with."""
    from selectrie.decide.classification import label_questions

    labels = inputs.read_listed("labels", str(table.labels))
    own = labels if table.none is None or table.multi_label else [*labels, table.none]
    weights: Sequence[float] | None = None
    if table.prior is not None:
        weights = inputs.read_weights(table.prior, ["yes", "no"] if table.multi_label else own)
    params = params_of(decision, weights)
    if table.multi_label and (table.examples is not None or table.none is not None):
        name = "examples" if table.none is None else "none"
        remedy = "its rows have one label each" if table.none is None else "a row that no label fits has none"
        raise IncompatibleOptionsError(name, OptionRef("multi_label", value=True), remedy)
    shown: list[tuple[str, str]] = []
    if table.examples is not None:
        n_each = _SHOTS if table.shots is None else table.shots
        shown = inputs.read_examples(table.examples, state, own, n_each)
    elif table.shots is not None:
        raise OptionError("shots", table.shots, "--examples too, which names the table that has them")
    questions = label_questions(
        own,
        multi_label=table.multi_label,
        instructions=table.instructions,
        cue=table.cue,
        examples=shown,
        params=params,
    )
    return questions, params


def _asked(questions: LabelQuestions, params: DecisionParams, columns: ColumnsGroup, state: str) -> TableQuestions:
    """Return the questions about every row, with the options of the run's columns."""
    from selectrie.tables.table_questions import TableQuestions

    return TableQuestions(
        state=state, questions=questions.questions, params=params, bare=not questions.is_multi, **asdict(columns)
    )
