"""Evaluations that survive a crash, as `runs` does it.

A run has a folder with its description, a log of finished units and, once all units are
finished, the results. `run.json` describes the run (`run_folder`), `log.jsonl` has a
line for each finished unit (`log`), `items.jsonl` a record for each item in the order
of the data, and `summary.json` the figures. The last two depend only on plan and log,
so a run that was killed and resumed ends with the same bytes on the same type of
processor and build.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from selectrie.core.whole_files import write_whole
from selectrie.engine.engine import Engine
from selectrie.errors import InputFileError
from selectrie.evaluation.checks import check, check_records, check_view
from selectrie.evaluation.evaluator import Counter, Done, Measure, OnProgress, measured, results_of
from selectrie.evaluation.items import ItemRecord
from selectrie.evaluation.log import UNIT_LINES, LoggedUnit
from selectrie.evaluation.metrics import named
from selectrie.evaluation.results import Evaluation, record_from_json, record_to_json
from selectrie.evaluation.run_folder import FOLDER, ITEMS, SUMMARY, describe, with_original_metrics
from selectrie.evaluation.work_units import TaskItems, plan
from selectrie.runs.files import writing
from selectrie.runs.folder import begin, check_same, open_log, plan_of, read_described, read_resumable


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    Attributes:
        configuration: Data, ready for JSON, from which the caller can make the same
            tasks again. It is stored, and compared when a run is resumed.
        model: Data from which the caller can load the model again. It is stored but not
            compared, because the signature is.
        other_machine: Whether to resume although processor or build differ from those
            on which the run began.
        on_progress: Called at the start and after each unit.
    """

    configuration: Mapping[str, object] = field(default_factory=dict)
    model: Mapping[str, object] = field(default_factory=dict)
    other_machine: bool = False
    on_progress: OnProgress | None = None


DEFAULT_RUN = RunOptions()


def run(
    llm: Engine,
    tasks: Sequence[TaskItems],
    out: Path,
    options: RunOptions = DEFAULT_RUN,
    *,
    measure: Measure | None = None,
) -> Evaluation:
    """Measure the units that a folder's log does not have yet, and write the results.

    The metrics may differ from those with which the run began: they are computed from
    the same log-likelihoods, and the run's files keep the original ones. Ctrl-C and
    errors leave a folder that can be resumed.

    Args:
        llm: The engine.
        tasks: The tasks, with their items and metrics.
        out: A new or empty folder, or that of a run of the same tasks, data, model and
            options, which is resumed.
        options: Options of the run.
        measure: Computes the log-likelihoods of units, and yields them in any order.
            None means that `llm` does this, one unit after the other.

    Raises:
        OptionError: Before anything is written, if the folder holds other files or
            another run (the error names the difference), or if a metric needs
            log-likelihoods that the run does not measure.
    """
    check(tasks)
    own, configuration = with_original_metrics(out, tasks, options.configuration)
    units = plan(llm.vocabulary, llm.limits, own)
    described = describe(llm, own, units, configuration, options.model)
    # Creates nothing in a folder of something else.
    check_same(out, FOLDER, described, other_machine=options.other_machine)
    for task, was in zip(tasks, own, strict=True):
        check_view(task, was.metrics)
    with open_log(out, UNIT_LINES) as log:
        run_json = begin(out, FOLDER, log, described, other_machine=options.other_machine)
        finished: dict[int, Done] = {}
        missing = log.recover(
            plan_of(run_json), units, lambda unit, values: finished.update({unit.number: values.measured(unit)})
        )
        counter = Counter(tasks, units, options.on_progress)
        for done in finished.values():
            counter.count(done, is_logged=True)
        for done in (measure or partial(measured, llm))(list(missing)):
            log.add(done.unit, LoggedUnit.of(done))
            finished[done.unit.number] = done
            counter.count(done)
        records = [record for done in finished.values() for record in done.records]
        rows = (counter.progress.rows_evaluated, counter.progress.rows_naive)
        evaluation = Evaluation(results_of(own, records), *rows, run_json["signature"])
        log.finish()
        with writing(out):
            _write_results(out, evaluation)
    return evaluation if own == tuple(tasks) else replace(evaluation, tasks=results_of(tasks, records))


def _write_results(out: Path, evaluation: Evaluation) -> None:
    records = (record for task in evaluation.tasks for record in task.records)
    write_whole(out / ITEMS, "".join(record_to_json(record) + "\n" for record in records))
    write_whole(out / SUMMARY, json.dumps(evaluation.to_dict(), ensure_ascii=False, indent=1) + "\n")


def began_with(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration and the model with which a run began.

    Raises `InputFileError` if the folder holds no run that can be resumed.
    """
    described = read_resumable(out, FOLDER)
    return described["configuration"], described["model"]


def read_run(out: Path, metrics: Sequence[str] = ()) -> Evaluation:
    """Return the results of a finished run.

    Args:
        out: The folder of the run.
        metrics: Names of metrics; empty for those with which the run began.

    Raises:
        InputFileError: If there are no results, or if they are not those of the run
            that began the folder.
        OptionError: For a metric that cannot be computed from the run's
            log-likelihoods.
    """
    named(metrics)
    described = read_described(out, FOLDER)
    if not (out / ITEMS).exists() or not (out / SUMMARY).exists():
        raise InputFileError(str(out), f"this run is not finished: selectrie eval --resume {out}")
    evaluated, naive = _rows(out / SUMMARY, described)
    tasks = [
        TaskItems(
            one["task"], (), tuple(metrics) or tuple(one["metrics"]), version=one["version"], n_shots=one["shots"]
        )
        for one in described["tasks"]
    ]
    records = list(_read_items(out / ITEMS, {task.task for task in tasks}))
    for task in tasks if metrics else ():
        check_records(task.task, metrics, [record for record in records if record.task == task.task])
    return Evaluation(results_of(tasks, records), evaluated, naive, described["signature"])


def _rows(path: Path, described: Mapping[str, Any]) -> tuple[int, int]:
    """Return `rows_evaluated` and `rows_naive` from a summary.

    Raises `InputFileError` if the summary is of another run.
    """
    try:
        summary = json.loads(_read_text(path))
        for name, was in _summarised(described).items():
            if (now := _summarised(summary)[name]) != was:
                raise InputFileError(str(path), _OTHER_RUN.format(name=name, was=was, now=now))
        return int(summary["rows_evaluated"]), int(summary["rows_naive"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputFileError(str(path), f"not the summary of a run: {error}") from error


_OTHER_RUN = (
    "figures of another run than run.json began: {name} was {was!r}, here it is {now!r}. Two runs that began at once "
    "could leave this behind before run folders had format 2; run both again, each in a new folder"
)


def _summarised(of: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields that `run.json` and a summary of the same run must share."""
    tasks = [[task["task"], task["version"], task["shots"], list(task["metrics"])] for task in of["tasks"]]
    return {**of["signature"], "tasks": tasks}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(str(path), str(error)) from error


def _read_items(path: Path, tasks: set[str]) -> Iterator[ItemRecord]:
    for number, text in enumerate(_read_text(path).split("\n")[:-1], start=1):
        record = record_from_json(text, path=str(path), line=number)
        if record.task not in tasks:
            raise InputFileError(
                str(path), f"a record of a task {record.task!r} that the run does not have", line=number
            )
        yield record
