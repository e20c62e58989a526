"""Evaluations that survive a crash: their folder, its log, and how they resume.

A run's configuration is data that can be stored and reloaded: it names data files,
tasks, metrics, and the examples (shots) before questions.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from selectrie.core.files import write_whole, writing
from selectrie.engine.engine import Engine
from selectrie.engine.requests.loglikelihood import LogLikelihoods
from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError, OptionRef
from selectrie.evaluation.columns import Columns, build_task, columns_with_defaults, names_of
from selectrie.evaluation.dataset import Data, Shots, items_of, read_data, task_for
from selectrie.evaluation.evaluator import (
    Measure,
    MeasuredUnit,
    OnProgress,
    ProgressCounter,
    check,
    check_records,
    check_view,
    measure_units,
    results_of,
)
from selectrie.evaluation.metrics import ItemRecord, find_metrics
from selectrie.evaluation.results import Evaluation, record_from_json, record_to_json
from selectrie.evaluation.tasks import Task, load_task, parse_task
from selectrie.evaluation.work_units import TaskItems, WorkUnit, plan
from selectrie.options import at_least
from selectrie.runs.folder import (
    RUN,
    FolderFormat,
    begin,
    check_same,
    open_log,
    other_run_error,
    plan_digest,
    read_described,
    read_resumable,
    resumable_or_none,
    signature_of,
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a run.

    Attributes:
        data: Data files, each `PATH` or `TASK=PATH`.
        task: The task of files without `TASK=`. None means that it is found by file
            name and fields (`dataset.task_for`), else made of columns with usual names
            (`columns_with_defaults`).
        columns: The columns that become questions, in place of a task; `TASK=` is then
            the task's name, else the file's name.
        metrics: Names of metrics; empty for those of each task.
        n_shots: Number of examples before each question.
        shots_file: File of the examples; None means the data file itself.
        shots_seed: Seed with which examples are drawn for each question; None takes the
            first ones.
        limit: Maximum number of items of each file, from the first one; None means all.
    """

    data: tuple[str, ...]
    task: str | None = None
    columns: Columns | None = None
    metrics: tuple[str, ...] = ()
    n_shots: int = 0
    shots_file: str | None = None
    shots_seed: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if not self.data:
            raise OptionError("data", self.data, "at least one data file")
        if self.task is not None and self.columns is not None:
            raise IncompatibleOptionsError("task", OptionRef("context"), "the columns are a task already")
        find_metrics(self.metrics)
        at_least("shots", self.n_shots, 0, optional=False)
        at_least("limit", self.limit, 1)
        if self.shots_file is not None and not self.n_shots:
            raise OptionError("shots_file", self.shots_file, "a number of --shots too")

    def read(self) -> Loaded:
        """Read every data file and task.

        Raises `InputFileError` with file and line. No model is needed.
        """
        shots = None if self.shots_file is None else read_data(Path(self.shots_file))
        return _load_items(self, tuple(self._source(one) for one in self.data), shots)

    def _source(self, argument: str) -> tuple[Task, Data]:
        """Return the task and the data of an argument `PATH` or `TASK=PATH`."""
        name, _, rest = argument.partition("=")
        path = argument
        task = self.task
        if rest and not os.path.exists(argument):  # noqa: PTH110 - `Path.exists` raises for a name that is too long
            task, path = name, rest
        data = read_data(Path(path))
        if self.columns is not None:
            return build_task(task or data.path.stem, self.columns, data), data
        if task is not None:
            return load_task(task), data
        try:
            return task_for(data), data
        except InputFileError:
            columns = None
            with suppress(OptionError):
                columns = columns_with_defaults(names_of(data))
            if columns is None:
                raise
            return build_task(data.path.stem, columns, data), data


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A configuration with the contents of its files.

    Attributes:
        configuration: The configuration.
        sources: The task and the data of each data file.
        tasks: The items of each data file.
        shots: The data of `shots_file`, or None.
    """

    configuration: Configuration
    sources: tuple[tuple[Task, Data], ...]
    tasks: tuple[TaskItems, ...]
    shots: Data | None

    def to_dict(self) -> dict[str, object]:
        """Return everything that the items of a run depend on, ready for JSON.

        Tasks are included as text, data files by absolute path and digest.
        """
        own = asdict(self.configuration)
        del own["columns"]  # the texts of the tasks hold them
        shots_file = self.configuration.shots_file
        return {
            **own,
            "data": [
                {"task": task.name, "path": absolute_path(data.path), "digest": data.digest}
                for task, data in self.sources
            ],
            "shots_file": None if shots_file is None else absolute_path(Path(shots_file)),
            "shots_digest": None if self.shots is None else self.shots.digest,
            "tasks": {task.name: task.text for task, _ in self.sources},
        }


def absolute_path(path: Path) -> str:
    """Return a path as an absolute one, without resolving links."""
    return os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps `..`


_FIELD_TYPES: dict[Any, Any] = {
    **get_type_hints(Configuration),
    "data": list,
    "metrics": list,
    "tasks": dict,
    "shots_digest": str | None,
}
_DATA_FIELD_TYPES: dict[Any, Any] = {"task": str, "path": str, "digest": str}
"""Types of the fields of `Loaded.to_dict` and of its data files, by name."""


def check_kinds(mapping: object, kinds: Mapping[Any, Any], where: str) -> None:
    """Raise `InputFileError` unless an object has only known fields of the right types.

    Args:
        mapping: The value to check. It may lack some of the fields.
        kinds: The types of the known fields, by name.
        where: The run that it comes from, for errors.
    """
    if not isinstance(mapping, dict):
        raise InputFileError(where, "not the description of a run: a part of it has the wrong type")
    for name, value in mapping.items():
        if name not in kinds:
            raise InputFileError(where, f"{name!r} is not known to this version; go on with the one that began the run")
        kind = kinds[name]
        is_flag = isinstance(value, bool) and bool not in (kind, *get_args(kind))
        if is_flag or not isinstance(value, kind):
            raise InputFileError(where, f"not the description of a run: {name!r} has the wrong type")


def reload(described: Mapping[str, Any], where: str) -> Loaded:
    """Read the files and tasks of a configuration that `Loaded.to_dict` stored.

    The tasks are those stored, even if the shipped ones have changed since.

    Args:
        described: The stored dictionary.
        where: The run, for errors.

    Raises:
        InputFileError: If `described` has another form, or a data file is missing or
            has changed.
    """
    check_kinds(described, _FIELD_TYPES, where)
    for one in described.get("data", ()):
        check_kinds(one, _DATA_FIELD_TYPES, where)
    for texts in (described.get("tasks", {}), dict(enumerate(described.get("metrics", ())))):
        check_kinds(texts, dict.fromkeys(texts, str), where)
    try:
        known = {one.name for one in fields(Configuration)}
        own = {name: value for name, value in described.items() if name in known}
        files = [(one["task"], one["path"], one["digest"]) for one in described["data"]]
        own["metrics"] = tuple(own["metrics"])
        configuration = Configuration(**{**own, "data": tuple(path for _, path, _ in files)})
        tasks = {name: parse_task(text, f"{name}.toml of {where}") for name, text in described["tasks"].items()}
        named_tasks = [tasks[name] for name, _, _ in files]
        shots_digest = described["shots_digest"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InputFileError(where, f"not the configuration of a run: {error}") from error
    shots = None
    if configuration.shots_file is not None:
        shots = _read_unchanged(configuration.shots_file, shots_digest)
    read = [_read_unchanged(path, digest) for _, path, digest in files]
    sources = tuple(zip(named_tasks, read, strict=True))
    return _load_items(configuration, sources, shots)


def _read_unchanged(path: str, digest: str) -> Data:
    """Return a data file; raise `InputFileError` if its digest has changed."""
    data = read_data(Path(path))
    if data.digest != digest:
        raise InputFileError(path, "the file has changed since the run began; begin a new run in another folder")
    return data


def _load_items(configuration: Configuration, sources: tuple[tuple[Task, Data], ...], shots: Data | None) -> Loaded:
    """Return a configuration with the items of every source.

    Items of one task from several files are named after their files too.
    """
    how = Shots(configuration.n_shots, shots, configuration.shots_seed)
    files: dict[str, list[Path]] = {}
    known: dict[str, Task] = {}
    for task, data in sources:
        if known.setdefault(task.name, task) != task:
            named = "in its file" if configuration.columns is None else "(NAME=FILE)"
            raise OptionError("task", task.name, f"one task of this name; give the other one another name {named}")
        if any(absolute_path(data.path) == absolute_path(path) for path in files.setdefault(task.name, [])):
            raise OptionError("data", str(data.path), "each file once")
        files[task.name].append(data.path)
    tasks = []
    for task, data in sources:
        one = items_of(task, data, shots=how, limit=configuration.limit)
        name = _name_items(task.name, data.path, files[task.name])
        tasks.append(replace(one, task=name, metrics=configuration.metrics or one.metrics))
    return Loaded(configuration, sources, tuple(tasks), shots)


def _name_items(task: str, path: Path, files: list[Path]) -> str:
    """Return the name of a task's items from one file.

    It includes the file if there are several, and the whole path if two files have the
    same name.
    """
    if len(files) == 1:
        return task
    stems = [one.stem for one in files]
    return f"{task}:{path.stem if stems.count(path.stem) == 1 else absolute_path(path)}"


@dataclass(frozen=True, slots=True)
class LoggedUnit:
    """A line of the log: the log-likelihoods of a unit's sequences, in their order."""

    rows_evaluated: int
    logp: tuple[float, ...]
    is_greedy: tuple[bool, ...]

    @staticmethod
    def of(done: MeasuredUnit) -> LoggedUnit:
        """Return the line for a measured unit."""
        loglikelihoods = done.loglikelihoods
        return LoggedUnit(
            loglikelihoods.rows_evaluated, tuple(loglikelihoods.logp.tolist()), tuple(loglikelihoods.is_greedy.tolist())
        )

    def to_measured_unit(self, unit: WorkUnit) -> MeasuredUnit:
        """Return `unit` with the log-likelihoods of this line.

        They must fit (`UnitLines.check`).
        """
        loglikelihoods = LogLikelihoods(
            logp=np.array(self.logp, dtype=np.float64),
            is_greedy=np.array(self.is_greedy, dtype=np.bool_),
            n_scored=unit.sequences.n_scored,
            rows_evaluated=self.rows_evaluated,
            rows_naive=unit.sequences.rows_naive,
        )
        return MeasuredUnit(unit, loglikelihoods)


class UnitLines:
    """The format of the log's lines, a `runs.unit_log.LineFormat`."""

    def encode(self, values: LoggedUnit) -> dict[str, object]:
        """Return the fields of a line as JSON values; -inf becomes the text "-inf"."""
        logp = ["-inf" if value == -math.inf else value for value in values.logp]
        return {"rows_evaluated": values.rows_evaluated, "logp": logp, "is_greedy": values.is_greedy}

    def decode(self, fields: Mapping[str, Any]) -> LoggedUnit:
        """Return the values in the fields of a line.

        Raises `ValueError`, `KeyError` or `TypeError` for fields of another form.
        """
        logp = tuple(-math.inf if value == "-inf" else value for value in fields["logp"])
        line = LoggedUnit(fields["rows_evaluated"], logp, tuple(fields["is_greedy"]))
        if type(line.rows_evaluated) is not int or not all(type(value) is float and value <= 0 for value in logp):
            raise ValueError("rows_evaluated or a value of logp has the wrong type")
        if not all(type(value) is bool for value in line.is_greedy):
            raise ValueError("is_greedy has a value that is neither true nor false")
        return line

    def check(self, unit: WorkUnit, values: LoggedUnit) -> None:
        """Raise `ValueError` if the values cannot belong to the unit."""
        sequences = unit.sequences
        for name, column in (("logp", values.logp), ("is_greedy", values.is_greedy)):
            if len(column) != len(sequences):
                raise ValueError(
                    f"{name} has {len(column)} values for the {len(sequences)} sequences of unit {unit.number}"
                )
        if not 0 <= values.rows_evaluated <= sequences.rows_naive:
            raise ValueError(
                f"rows_evaluated is {values.rows_evaluated}, and unit {unit.number} has {sequences.rows_naive}"
            )


UNIT_LINES = UnitLines()

ITEMS, SUMMARY = "items.jsonl", "summary.json"

FOLDER = FolderFormat(
    kind="run",
    version=2,
    parts={"configuration": dict, "model": dict, "tasks": list, "plan": dict, "signature": dict},
    compared=("configuration", "tasks", "signature", "plan"),
    results=(ITEMS, SUMMARY),
    earlier=(1,),
    remedy=(
        "whose log does not say what each line was measured for: `selectrie "
        "eval report` and `compare` show it, but it cannot go on; begin it again in a new folder"
    ),
)
"""The format of run folders. Format 1 logged records and had no digest of the plan."""


def describe(
    llm: Engine,
    tasks: Sequence[TaskItems],
    units: Sequence[WorkUnit],
    configuration: Mapping[str, object],
    model: Mapping[str, object],
) -> dict[str, Any]:
    """Return the content of `run.json` for a new run.

    Args:
        llm: The engine.
        units: The units of the run.
        configuration, model: As in `RunOptions`.
    """
    parts = {
        "configuration": configuration,
        "model": model,
        "tasks": [
            {
                "task": task.task,
                "version": task.version,
                "shots": task.n_shots,
                "metrics": list(task.metrics),
                "n_items": len(task.items),
                "unit_rows": task.unit_rows,
            }
            for task in tasks
        ],
        "plan": {"n_units": len(units), "digest": _digest_units(units)},
        "signature": signature_of(llm),
    }
    return FOLDER.describe(parts, llm.identity.backend)


def _digest_units(units: Iterable[WorkUnit]) -> str:
    """Return a digest of the units: their sequences, and the items they measure."""
    digest = blake2b(digest_size=16)
    for unit in units:
        for array in (unit.sequences.tokens, unit.sequences.offsets, unit.sequences.first_scored):
            digest.update(str(array.shape).encode() + array.tobytes())
        for entry in unit.entries:
            item = entry.item
            fields = [unit.task, entry.index, item.id, item.subset, list(item.gold), list(item.choices), entry.problem]
            digest.update(json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def check_folder(out: Path, configuration: Mapping[str, object], tasks: Sequence[TaskItems] = ()) -> None:
    """Check, without the model, whether a run can use or resume a folder.

    Raises `OptionError` if the folder holds other files, a run of another
    configuration, or a run that has not measured enough for the metrics of `tasks`.
    """
    run_json = resumable_or_none(out, FOLDER)
    if run_json is None:
        return
    own = run_json["configuration"]
    expected = json.loads(json.dumps({**configuration, **_metrics_of(own)}))
    if own != expected:
        raise other_run_error(out, "configuration", own, expected)
    for task, was in zip(tasks, _with_metrics_of(out, run_json, tasks), strict=True):
        check_view(task, was.metrics)


def _metrics_of(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in configuration.items() if name == "metrics"}


def with_original_metrics(
    out: Path, tasks: Sequence[TaskItems], configuration: Mapping[str, object]
) -> tuple[tuple[TaskItems, ...], dict[str, object]]:
    """Return tasks and configuration with the metrics with which the run began.

    A run may be resumed with other metrics, because metrics are computed afterwards;
    its files keep the original ones. Both are returned unchanged if no run has begun in
    the folder.
    """
    run_json = resumable_or_none(out, FOLDER)
    if run_json is None:
        return tuple(tasks), dict(configuration)
    return _with_metrics_of(out, run_json, tasks), {**configuration, **_metrics_of(run_json["configuration"])}


def _with_metrics_of(out: Path, run_json: Mapping[str, Any], tasks: Sequence[TaskItems]) -> tuple[TaskItems, ...]:
    """Return the tasks with the metrics that `run.json` has for them."""
    try:
        known = {one["task"]: tuple(one["metrics"]) for one in run_json["tasks"]}
    except (KeyError, TypeError) as error:
        raise InputFileError(str(out / RUN), f"not the description of a run: {error}") from error
    own = tuple(replace(task, metrics=known.get(task.task, task.metrics)) for task in tasks)
    for task in own:
        find_metrics(task.metrics)
    return own


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
    """Measure the units that are missing in a folder's log, and write the results.

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
        finished: dict[int, MeasuredUnit] = {}
        missing = log.recover(
            plan_digest(run_json),
            units,
            lambda unit, values: finished.update({unit.number: values.to_measured_unit(unit)}),
        )
        counter = ProgressCounter(tasks, units, options.on_progress)
        for done in finished.values():
            counter.count(done, is_logged=True)
        for done in (measure or partial(measure_units, llm))(list(missing)):
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
    find_metrics(metrics)
    described = read_described(out, FOLDER)
    if not (out / ITEMS).exists() or not (out / SUMMARY).exists():
        raise InputFileError(str(out), f"this run is not finished: selectrie eval --resume {out}")
    evaluated, naive = _read_rows(out / SUMMARY, described)
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


def _read_rows(path: Path, described: Mapping[str, Any]) -> tuple[int, int]:
    """Return `rows_evaluated` and `rows_naive` of a run from its summary.

    Raises `InputFileError` if the summary belongs to another run.
    """
    try:
        summary = json.loads(_read_text(path))
        for name, was in _shared_fields(described).items():
            if (now := _shared_fields(summary)[name]) != was:
                raise InputFileError(str(path), _OTHER_RUN.format(name=name, was=was, now=now))
        return int(summary["rows_evaluated"]), int(summary["rows_naive"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputFileError(str(path), f"not the summary of a run: {error}") from error


_OTHER_RUN = (
    "figures of another run than run.json began: {name} was {was!r}, here it is {now!r}. Two runs that began at once "
    "could leave this behind before run folders had format 2; run both again, each in a new folder"
)


def _shared_fields(of: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields that `run.json` and the summary of a run must share."""
    tasks = [[task["task"], task["version"], task["shots"], list(task["metrics"])] for task in of["tasks"]]
    return {**of["signature"], "tasks": tasks}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(str(path), str(error)) from error


def _read_items(path: Path, tasks: set[str]) -> Iterator[ItemRecord]:
    """Yield the records of `items.jsonl`; raise `InputFileError` for unknown tasks."""
    for number, text in enumerate(_read_text(path).split("\n")[:-1], start=1):
        record = record_from_json(text, path=str(path), line=number)
        if record.task not in tasks:
            raise InputFileError(
                str(path), f"a record of a task {record.task!r} that the run does not have", line=number
            )
        yield record
