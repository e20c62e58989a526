"""The configuration of a run, as data that can be stored and reloaded.

It names data files, tasks, metrics, and the examples (shots) before questions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from selectrie.errors import IncompatibleOptionsError, InputFileError, OptionError, OptionRef
from selectrie.evaluation.columns import Columns, build_task, columns_with_defaults, names_of
from selectrie.evaluation.dataset import Data, Shots, items_of, read_data, task_for
from selectrie.evaluation.metrics import find_metrics
from selectrie.evaluation.tasks import Task, load_task, parse_task
from selectrie.evaluation.work_units import TaskItems
from selectrie.options import at_least


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
