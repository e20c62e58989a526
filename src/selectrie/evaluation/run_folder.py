"""The folder of a run, and the check whether a resumed run is the same one.

`run.json` in the folder holds configuration, plan, model and environment. The process
that holds the log's lock writes it once, so that it and the log's lines always belong
to one run.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from selectrie.backends.entry import versions_of
from selectrie.backends.table import BACKENDS
from selectrie.core.whole_files import check_plain, is_temporary, write_whole
from selectrie.engine.engine import Engine
from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation.checks import check_view
from selectrie.evaluation.evaluator import signature_of
from selectrie.evaluation.files import writing
from selectrie.evaluation.log import Log
from selectrie.evaluation.metrics import named
from selectrie.evaluation.work_units import TaskItems, WorkUnit
from selectrie.version import __version__

RUN, LOG, ITEMS, SUMMARY = "run.json", "log.jsonl", "items.jsonl", "summary.json"

RUN_FORMAT = 2
"""Format of `run.json` and `log.jsonl`.

Format 1 had records in its log and no digest of the plan.
"""

_READ_FORMATS = (1, RUN_FORMAT)
"""Formats whose finished runs can be shown and compared.

Only a run of `RUN_FORMAT` can go on.
"""

_OF_THE_MACHINE = ("processor", "build", "tolerance", "largest_move", "rows_compared", "support")
"""Parts of a signature that move a log-probability only within the tolerance."""

_PARTS = {"configuration": dict, "model": dict, "tasks": list, "plan": dict, "signature": dict}
"""What `run.json` has besides format, kind and environment."""


def describe(
    llm: Engine,
    tasks: Sequence[TaskItems],
    units: Sequence[WorkUnit],
    configuration: Mapping[str, object],
    model: Mapping[str, object],
) -> dict[str, Any]:
    """Return the content of `run.json` for a run that begins now."""
    return {
        "format": RUN_FORMAT,
        "kind": "run",
        "configuration": json.loads(json.dumps(configuration)),
        "model": json.loads(json.dumps(model)),
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
        "plan": {"n_units": len(units), "digest": _digest(units)},
        "signature": json.loads(json.dumps(signature_of(llm))),
        "environment": environment(llm.identity.backend),
    }


def _digest(units: Iterable[WorkUnit]) -> str:
    """Return a digest of the units: their sequences, and the items they belong to."""
    digest = blake2b(digest_size=16)
    for unit in units:
        for array in (unit.sequences.tokens, unit.sequences.offsets, unit.sequences.first_scored):
            digest.update(str(array.shape).encode() + array.tobytes())
        for entry in unit.entries:
            item = entry.item
            fields = [unit.task, entry.index, item.id, item.subset, list(item.gold), list(item.choices), entry.problem]
            digest.update(json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def plan_of(run_json: Mapping[str, Any]) -> str:
    """Return the digest of a run's plan, which its log lines carry.

    It covers the run's units and the signature with which it began, so that runs of
    other data, tokens or models never share a line. Metrics are not included, since
    they are computed from the log-likelihoods afterwards.
    """
    text = json.dumps([run_json["plan"], run_json["signature"]], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def environment(backend: str) -> dict[str, object]:
    """Return the machine and versions of this process.

    Args:
        backend: Name of the back end in use. One that is not in the table, as of a
            model of the caller's, adds no versions.
    """
    in_use = [versions_of(one) for one in BACKENDS if one.name == backend]
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "selectrie": __version__,
        "numpy": version("numpy"),
        **{name: number for versions in in_use for name, number in versions.items()},
    }


def open_log(out: Path) -> Log:
    """Create the folder if there is none, and return its log, locked.

    Raises `OptionError` if another process holds the log or the folder cannot be used.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    return Log(out / LOG)


def begin(out: Path, log: Log, described: dict[str, Any], *, other_machine: bool) -> dict[str, Any]:
    """Write `run.json`, or check that it is of the same run, and return its content.

    The caller must hold `log`. Raises `OptionError` as `check_same` does, and for a log
    that has lines but no `run.json`.
    """
    run_json = check_same(out, described, other_machine=other_machine)
    with writing(out):
        for name in (RUN, ITEMS, SUMMARY):
            check_plain(out / name)
        for path in out.iterdir():  # left by a process that was killed
            if is_temporary(path.name, (RUN, ITEMS, SUMMARY)):
                path.unlink()
        if run_json is None:
            if not log.is_empty():
                raise _no_new_folder(out, f"there is a {LOG} but no {RUN}")
            write_whole(out / RUN, json.dumps(described, ensure_ascii=False, indent=1) + "\n")
    return run_json or described


def check_folder(out: Path, configuration: Mapping[str, object], tasks: Sequence[TaskItems] = ()) -> None:
    """Check, without the model, whether a run can use or resume a folder.

    Raises `OptionError` if the folder holds other files, a run of another
    configuration, or a run that has not measured enough for the metrics of these tasks.
    """
    run_json = _resumable_or_none(out)
    if run_json is None:
        return
    own = run_json["configuration"]
    expected = json.loads(json.dumps({**configuration, **_metrics_of(own)}))
    if own != expected:
        raise OptionError("out", str(out), f"a folder of the same run: {_difference('configuration', own, expected)}")
    for task, was in zip(tasks, _with_metrics_of(out, run_json, tasks), strict=True):
        check_view(task, was.metrics)


def _metrics_of(configuration: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in configuration.items() if name == "metrics"}


def with_original_metrics(
    out: Path, tasks: Sequence[TaskItems], configuration: Mapping[str, object]
) -> tuple[tuple[TaskItems, ...], dict[str, object]]:
    """Return tasks and configuration with the metrics that the folder's run began with.

    A run may be resumed with other metrics, because metrics are computed afterwards;
    its files keep the original ones. If no run has begun, both are returned unchanged.
    """
    run_json = _resumable_or_none(out)
    if run_json is None:
        return tuple(tasks), dict(configuration)
    return _with_metrics_of(out, run_json, tasks), {**configuration, **_metrics_of(run_json["configuration"])}


def _with_metrics_of(out: Path, run_json: Mapping[str, Any], tasks: Sequence[TaskItems]) -> tuple[TaskItems, ...]:
    try:
        known = {one["task"]: tuple(one["metrics"]) for one in run_json["tasks"]}
    except (KeyError, TypeError) as error:
        raise InputFileError(str(out / RUN), f"not the description of a run: {error}") from error
    own = tuple(replace(task, metrics=known.get(task.task, task.metrics)) for task in tasks)
    for task in own:
        named(task.metrics)
    return own


def check_same(out: Path, described: dict[str, Any], *, other_machine: bool) -> dict[str, Any] | None:
    """Return the `run.json` of a folder, None if no run has begun in it.

    Raises `OptionError` if the folder holds other files, or another run. Configuration
    is compared first, then the model, then the units planned from both.
    """
    run_json = _resumable_or_none(out)
    if run_json is None:
        return None
    _check_parts(out, run_json, described, ("configuration", "tasks"))
    for name, value in described["signature"].items():
        was = run_json["signature"].get(name)
        if was == value or (name in _OF_THE_MACHINE and other_machine):
            continue
        remedy = "; --other-machine goes on all the same" if name in _OF_THE_MACHINE else ""
        raise OptionError("out", str(out), f"a folder of the same run: {name} was {was!r}, now {value!r}{remedy}")
    _check_parts(out, run_json, described, ("plan",))
    return run_json


def _resumable_or_none(out: Path) -> dict[str, Any] | None:
    """Return the `run.json` of a run that can be resumed, None if no run has begun.

    No run has begun if there is no folder, or if it holds only a log and temporary
    files of killed processes.
    """
    try:
        with writing(out):
            names = [path.name for path in out.iterdir()]
    except OptionError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        if isinstance(error.__cause__, NotADirectoryError):
            raise _no_new_folder(out, "Not a directory") from error
        raise
    if RUN in names:
        return read_resumable(out)
    for name in names:
        if name != LOG and not is_temporary(name, (RUN,)):
            raise _no_new_folder(out, f"there is {name!r}")
    return None


def _no_new_folder(out: Path, reason: str) -> OptionError:
    return OptionError("out", str(out), f"a new folder, an empty one, or that of a run to go on with ({reason})")


def read_resumable(out: Path) -> dict[str, Any]:
    """Return the `run.json` of a run that can be resumed.

    Raises `InputFileError` if the folder holds no run, or one of an earlier format.
    """
    run_json = read_described(out)
    if run_json["format"] != RUN_FORMAT:
        raise InputFileError(
            str(out / RUN),
            f"a run of format {run_json['format']}, whose log does not say what each line was measured for: `selectrie "
            "eval report` and `compare` show it, but it cannot go on; begin it again in a new folder",
        )
    return run_json


def read_described(out: Path) -> dict[str, Any]:
    """Return the `run.json` of a run of any format that can be shown.

    Raises `InputFileError` if the folder holds no run.
    """
    path = out / RUN
    try:
        check_plain(path)
        described: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if described["format"] not in _READ_FORMATS or described["kind"] != "run":
            read = " and ".join(map(str, _READ_FORMATS))
            raise InputFileError(str(path), f"a run of format {described['format']}; this version reads {read}")
        for name, kind in _PARTS.items():
            if name not in described:
                raise InputFileError(str(path), f"not the description of a run: it has no {name!r}")
            if not isinstance(described[name], kind):
                raise InputFileError(str(path), f"not the description of a run: {name!r} has the wrong type")
    except FileNotFoundError:
        raise InputFileError(str(out), f"it holds no run: there is no {RUN}") from None
    except OSError as error:
        raise InputFileError(str(path), f"not the description of a run: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputFileError(str(path), f"not the description of a run: {error}") from error
    return described


def _check_parts(out: Path, run_json: dict[str, Any], described: dict[str, Any], parts: tuple[str, ...]) -> None:
    for part in parts:
        if run_json[part] != described[part]:
            raise OptionError(
                "out", str(out), f"a folder of the same run: {_difference(part, run_json[part], described[part])}"
            )


def _difference(part: str, was: Any, now: Any) -> str:
    """Return the first difference between two parts, in words."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in [*was, *(name for name in now if name not in was)]:
            if was.get(name) != now.get(name):
                return _difference(f"{part}.{name}", was.get(name), now.get(name))
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for i, (one, other) in enumerate(zip(was, now, strict=True)):
            if one != other:
                return _difference(f"{part}[{i}]", one, other)
    return f"{part} was {_short(was)}, now {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"
