"""The command `selectrie eval`, which scores benchmarks, resumes and compares runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from selectrie.cli import inputs, requests
from selectrie.cli.arguments import command
from selectrie.cli.groups import STDIN_ROWS, Json, JsonOutput, ModelGroup, RunGroup, argument, setting
from selectrie.cli.show import check_page, count_progress, show_json, show_report, write_page
from selectrie.core.files import SHOWN_ITEM_SUFFIXES
from selectrie.core.output import visible, write
from selectrie.errors import IncompatibleOptionsError, OptionError, OptionRef, RequestError, words

if TYPE_CHECKING:
    from selectrie.evaluation.columns import Columns
    from selectrie.evaluation.evaluator import OnProgress, Progress
    from selectrie.evaluation.metrics import Item
    from selectrie.evaluation.results import Evaluation
    from selectrie.evaluation.runner import Configuration, Loaded


class _DefaultToRun(TyperGroup):
    """A typer group in which `selectrie eval DATA` means `selectrie eval run DATA`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


eval_app = typer.Typer(
    name="eval",
    cls=_DefaultToRun,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Benchmarks: score data files, go on with a run, compare two.\n\n"
    "\b\nselectrie eval hellaswag.jsonl arc_easy.jsonl -m model.gguf --out runs/q8\n"
    "selectrie eval --resume runs/q8\nselectrie eval compare runs/q8 runs/q4\n\n"
    "Without a command, `run`.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True, slots=True)
class DataGroup:
    """Data.

    The options of `selectrie eval run` for the data files.
    """

    data: list[str] | None = argument(
        "DATA", f"Files ({SHOWN_ITEM_SUFFIXES}; - for stdin), each FILE or TASK=FILE.", mark=STDIN_ROWS
    )
    task: str | None = setting("TASK", "A shipped task or a TOML file. [default: by file name and fields]")
    context: str | None = setting(
        "COLUMN",
        "In place of a task: the column of the questions or texts, or a pattern with columns in braces, in "
        "which \\n and \\t are read. [default with --labels: text]",
        flags="--context --text",
    )
    choices: list[str] | None = setting(
        "COLUMNS", "The columns of the choices, separated by commas; or one with a list."
    )
    labels: list[str] | None = setting(
        "COLUMN|TEXTS",
        "For --choices: the column of the labels, whose texts are the choices; with --gold, the "
        "labels themselves, separated by commas.",
    )
    gold: str | None = setting("COLUMN", "The column of the right choice. [default with several --labels: label]")
    gold_as: str | None = setting(
        "NAME", "What it holds: index (from 0), number (from 1), letter, column or text. [default: what all rows fit]"
    )
    metric: list[str] | None = setting("NAMES", "Metrics, separated by commas. [default: those of the task]")
    shots: int = setting("N", "Examples before each question.", 0)
    shots_file: str | None = setting(
        "FILE", "Where examples come from. [default: the other questions]", mark=STDIN_ROWS
    )
    shots_seed: int | None = setting("N", "Draw them for each question. [default: the first ones for all]")
    limit: int | None = setting("N", "The first N items of each file.")


@dataclass(frozen=True, slots=True)
class EvalOutput:
    """Output.

    The options of `selectrie eval` for its output.
    """

    json: Json = False
    html: str | None = setting("FILE", "A page with pictures; - for stdout.")


@dataclass(frozen=True, slots=True)
class RunsGroup:
    """Runs.

    The arguments of `selectrie eval compare`: the folders of the runs.
    """

    runs: list[str] = argument("FIRST OTHER...", "The folders of finished runs on the same items.", MISSING)


@dataclass(frozen=True, slots=True)
class OneRunGroup:
    """Run.

    The options of `selectrie eval report` that name a run.
    """

    folder: str = argument("FOLDER", "The folder of a finished run.", MISSING)
    metric: list[str] | None = setting("NAMES", "Metrics, separated by commas. [default: those of the run]")


@dataclass(frozen=True, slots=True)
class CompareOutput(EvalOutput):
    """Output.

    The options of `selectrie eval compare` for its output.
    """

    flips: int = setting("N", "Items shown that one run alone has right.", 10)
    format: str | None = setting(
        "NAME", "In place of the report: markdown, latex, csv, svg (a chart) or html (the page)."
    )


@command(eval_app)
def run(model: ModelGroup, data: DataGroup, running: RunGroup, output: EvalOutput) -> int:
    r"""Score data files.

    Every item is measured once, whatever the metrics; what items share is evaluated
    once. With --out each finished unit is logged before the next one begins, and a run
    that was killed goes on where it was.

    \b
    selectrie eval hellaswag.jsonl arc_easy.jsonl -m model.gguf --out runs/q8
    selectrie eval piqa.jsonl -m model.gguf --metric acc,acc_bytes,brier --json
    selectrie eval mmlu=test.jsonl -m model.gguf --shots 5 --shots-file dev.jsonl
    selectrie eval quiz.csv --context question --choices A,B,C,D --gold answer
    selectrie eval reviews.csv --text text --labels sentiment
    selectrie eval reviews.jsonl --labels positive,negative
    selectrie eval --resume runs/q8
    """
    check_page(output.html, as_json=output.json)
    loaded, out, source = _read_request(model, data, running)
    if data.shots and data.shots_file is None and data.shots_seed is None:
        first = f"the first {data.shots} items of the data; for those items themselves, the next {data.shots}"
        write(f"examples: {first} (--shots-file takes them from another file)", sys.stderr)
    from selectrie.evaluation.evaluator import evaluate_tasks, measure_on
    from selectrie.evaluation.runner import RunOptions
    from selectrie.evaluation.runner import run as run_in

    with requests.open_engine(source) as engine, _progress_bar() as on_progress:
        measure = requests.on_cluster(measure_on, engine, running, source)
        if out is None:
            evaluation = evaluate_tasks(engine, loaded.tasks, on_progress=on_progress, measure=measure)
        else:
            options = RunOptions(
                loaded.to_dict(), asdict(source), other_machine=running.other_machine, on_progress=on_progress
            )
            with requests.resumable(f"selectrie eval --resume {out}"):
                evaluation = run_in(engine, loaded.tasks, out, options, measure=measure)
    _show(evaluation, output)
    return 0


@command(eval_app)
def compare(runs: RunsGroup, output: CompareOutput) -> int:
    r"""Compare runs of the same items with the first one.

    Differences with intervals, an exact paired test, the divergence of the models'
    probabilities, and the items that one run alone has right.

    \b
    selectrie eval compare runs/q8 runs/q4 --flips 20
    selectrie eval compare runs/f16 runs/q8 runs/q4 --format markdown
    """
    from selectrie.evaluation.comparison import compare as compared
    from selectrie.evaluation.comparison import comparison_dict, with_texts
    from selectrie.evaluation.report.formats import FORMATS
    from selectrie.evaluation.runner import read_run

    check_page(output.html, as_json=output.json)
    names = (*FORMATS, "html")
    if output.format is not None and output.format not in names:
        raise OptionError("format", output.format, f"one of {', '.join(names)}")
    other = OptionRef("json") if output.json else OptionRef("html", output.html)
    if output.format is not None and (output.json or output.html == inputs.STDIN):
        raise IncompatibleOptionsError("format", other, "leave one of them out")
    if len(runs.runs) < 2:
        raise OptionError("runs", runs.runs[0], "two folders of runs or more")
    evaluations = [read_run(Path(folder)) for folder in runs.runs]
    found = compared(*evaluations)
    if output.flips and any(one.gained or one.lost for one in found):
        found = with_texts(found, _items_of(runs.runs[0]))
    fields = comparison_dict(found, runs.runs)

    def page() -> str:
        from selectrie.evaluation.report.html import comparison_page

        return comparison_page(found, evaluations, runs.runs)

    if output.json:
        show_json(fields)
    elif output.format is not None:
        text = page() if output.format == "html" else FORMATS[output.format](fields, output.flips)
        write(text, sys.stdout, end="")
    elif output.html != inputs.STDIN:
        from selectrie.cli.report.evaluation import comparison_report

        show_report(comparison_report(fields, flips=output.flips), is_cut=False)
    if output.html is not None:
        write_page(output.html, page())
    return 0


def _items_of(folder: str) -> dict[str, Sequence[Item]]:
    """Return the items of a run by task; if they cannot be read, say why on stderr."""
    from selectrie.evaluation.runner import began_with, reload

    try:
        loaded = reload(began_with(Path(folder))[0], folder)
    except RequestError as error:
        write(f"texts of items are not shown: {error}", sys.stderr)
        return {}
    return {task.task: task.items for task in loaded.tasks}


@command(eval_app)
def report(run: OneRunGroup, output: EvalOutput) -> int:
    r"""Show a finished run again.

    \b
    selectrie eval report runs/q8 --html q8.html
    selectrie eval report runs/q8 --metric acc,brier
    """
    from selectrie.evaluation.runner import read_run

    check_page(output.html, as_json=output.json)
    _show(read_run(Path(run.folder), _split(run.metric)), output)
    return 0


@command(eval_app)
def tasks(output: JsonOutput) -> int:
    """List the tasks that come with selectrie."""
    from selectrie.cli.report.evaluation import tasks_report
    from selectrie.evaluation.tasks import load_task, shipped

    result = [load_task(name) for name in shipped()]
    shapes = [[", ".join(one.needs) for one in task.formats] for task in result]
    rows = [(task.name, task.kind, task.metrics, own) for task, own in zip(result, shapes, strict=True)]
    if output.json:
        names = ("task", "kind", "metrics", "needs")
        return show_json({"tasks": [dict(zip(names, row, strict=True)) for row in rows]}, "tasks")
    return show_report(tasks_report(rows))


def _read_request(model: ModelGroup, data: DataGroup, running: RunGroup) -> tuple[Loaded, Path | None, ModelGroup]:
    """Return the loaded data and tasks, the results' folder, and the model's options.

    The folder is None if no results are stored. Wrong options are reported here, before
    a model is loaded.
    """
    from selectrie.evaluation.evaluator import check
    from selectrie.evaluation.runner import Configuration, began_with, check_folder, reload

    requests.check_run(running)
    if running.resume is None:
        configuration = Configuration(
            data=tuple(data.data or ()),
            task=data.task,
            columns=_columns(data),
            metrics=_split(data.metric),
            n_shots=data.shots,
            shots_file=data.shots_file,
            shots_seed=data.shots_seed,
            limit=data.limit,
        )
        files = [one.rpartition("=")[2] for one in configuration.data]
        if running.out is not None and any(map(inputs.is_stdin, [running.out, *files])):
            raise OptionError("out", running.out, "a folder, and files as data, which are read again")
        loaded, out = configuration.read(), None if running.out is None else Path(running.out)
        check(loaded.tasks)
        _tell_columns(configuration, loaded)
        if out is not None:
            check_folder(out, loaded.to_dict(), loaded.tasks)
        return loaded, out, model
    if running.out is not None or data != DataGroup():
        raise OptionError("resume", running.resume, "no DATA, --out or option of the data: the run's folder has them")
    configuration_then, model_then = began_with(Path(running.resume))
    loaded = reload(configuration_then, running.resume)
    return loaded, Path(running.resume), requests.resumed_model(model, model_then, running.resume)


def _columns(data: DataGroup) -> Columns | None:
    """Return the columns that the options name, or None if they name none."""
    from selectrie.evaluation.columns import Columns

    choices, labels = _split(data.choices), _split(data.labels)
    if data.context is None and labels and not choices:
        data = replace(data, context="text", gold="label" if data.gold is None and len(labels) > 1 else data.gold)
    if data.context is None:
        if given := [name for name in ("choices", "labels", "gold", "gold_as") if getattr(data, name)]:
            raise OptionError(
                "context", None, words("the column of the questions, because {} is given", OptionRef(given[0]))
            )
        return None
    is_label_column = data.gold is None and len(labels) == 1
    is_pattern = "{" in data.context
    return Columns(
        inputs.parse_escapes("context", data.context) if is_pattern else data.context,
        choices[0] if len(choices) == 1 else choices,
        labels[0] if is_label_column else labels,
        data.gold,
        data.gold_as,
    )


_HOW_LABELS = (
    "labels are scored as what follows the text, without a question; `selectrie classify --gold` asks which label fits,"
    " and its accuracy differs"
)


def _tell_columns(configuration: Configuration, loaded: Loaded) -> None:
    """Report which columns are read by their names, and how labels are scored."""
    from selectrie.evaluation.columns import SOURCE, columns_with_defaults, names_of

    for data in (data for task, data in loaded.sources if task.source == SOURCE):
        columns = configuration.columns or columns_with_defaults(names_of(data))
        if configuration.columns is None:
            names = {"--text": columns.context, "--choices": columns.choices, "--labels": columns.labels}
            given = " ".join(f"{flag} {name}" for flag, name in {**names, "--gold": columns.gold}.items() if name)
            write(visible(f"{data.path}: no task reads it, so it is scored as with {given}"), sys.stderr)
        if columns.labels:
            write(visible(f"{data.path}: {_HOW_LABELS}"), sys.stderr)


def _split(options: list[str] | None) -> tuple[str, ...]:
    """Return the names in all uses of an option that takes names between commas."""
    return tuple(name.strip() for one in options or () for name in one.split(",") if name.strip())


@contextmanager
def _progress_bar() -> Iterator[OnProgress]:
    """Yield a callback that shows how many items are done, and the rows saved."""
    with count_progress("items") as tell:

        def report_progress(progress: Progress) -> None:
            saved = 1 - progress.rows_evaluated / progress.rows_naive if progress.rows_naive else 0
            about = f"{100 * saved:.0f} % of rows saved"
            tell(progress.items, progress.n_items, resumed=progress.items_logged, about=about)

        yield report_progress


def _show(evaluation: Evaluation, output: EvalOutput) -> None:
    """Write an evaluation as JSON or as a report, and its HTML page."""
    if output.json:
        fields = evaluation.to_dict()
        show_json({**fields, **_accuracy(fields)})
    elif output.html != inputs.STDIN:
        from selectrie.cli.report.evaluation import evaluation_report

        show_report(evaluation_report(evaluation.to_dict()), is_cut=False)
    if output.html is not None:
        from selectrie.evaluation.report.html import evaluation_page

        write_page(output.html, evaluation_page(evaluation))


def _accuracy(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return `accuracy`, the value of the metric `acc`, if there is one task."""
    tasks = evaluation["tasks"]
    is_one = len(tasks) == 1 and "acc" in tasks[0]["metrics"]
    return {"accuracy": tasks[0]["metrics"]["acc"]["value"]} if is_one else {}
