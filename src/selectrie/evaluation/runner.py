"""Runs that survive a crash: a folder that says what is run, a log of finished units, and the results once all are.

`run.json` configuration, plan and environment, `log.jsonl` a line for each finished unit (`log`), `items.jsonl` a record for each item in the order of the data,
`summary.json` the figures. The two last are functions of the log alone, so a run that was killed and taken up again ends with the same bytes on
the same type of processor and build.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from selectrie.engine import Engine
from selectrie.errors import InputFileError, OptionError
from selectrie.evaluation.checking import check
from selectrie.evaluation.evaluating import Counter, Measure, OnProgress, measured_by, results_of, signature_of
from selectrie.evaluation.items import ItemRecord
from selectrie.evaluation.log import Line, Log, write_whole, writing
from selectrie.evaluation.planning import TaskItems, Unit, plan
from selectrie.evaluation.results import Evaluation, record_from_json, record_to_json
from selectrie.results.records import FORMAT_VERSION
from selectrie.version import __version__

RUN, LOG, ITEMS, SUMMARY = "run.json", "log.jsonl", "items.jsonl", "summary.json"
_OF_THE_MACHINE = ("processor", "build", "tolerance")
"""Parts of a signature by which a log-probability moves within the tolerance only."""

_PARTS = ("configuration", "model", "tasks", "plan", "signature")
"""What `run.json` has beside format, kind and environment."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """configuration: what the caller needs to make the same tasks again, JSON-ready; it is kept and compared. model: what it needs to
    load the model again; kept, and not compared, for the signature is. other_machine: go
    on although processor or build are others than those the run began on. on_progress: told after each unit."""

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
    """Measure what a folder's log does not have yet, and write the results.

    out: a new or empty folder, or one of a run of the same tasks, data, model and options, which goes on where it was. measure: who measures
    units, in any order (default: this engine, one after the other).

    Raises `OptionError` where the folder holds something else or another run, naming what differs, before anything is
    written; Ctrl-C and errors leave a folder that can be taken up again.
    """
    check(tasks)
    units = plan(llm.vocabulary, llm.limits, tasks)
    described = _describe(llm, tasks, units, options)
    begun = _open(out, described, other_machine=options.other_machine)
    with Log(out / LOG) as log:
        lines = log.recover([unit.number for unit in units])
        counter = Counter(tasks, units, options.on_progress)
        for line in lines.values():
            counter.count(len(line.records), line.rows_evaluated, line.rows_naive, is_logged=True)
        missing = [unit for unit in units if unit.number not in lines]
        for done in measured_by(measure, llm, missing):
            line = Line(done.unit.number, done.found.rows_evaluated, done.found.rows_naive, done.records)
            log.add(line)
            lines[line.unit] = line
            counter.count(len(line.records), line.rows_evaluated, line.rows_naive)
        evaluation = Evaluation(
            results_of(tasks, (record for line in lines.values() for record in line.records)),
            counter.rows_evaluated,
            counter.rows_naive,
            begun["signature"],
        )
        with writing(out):
            _write_results(out, evaluation)
    return evaluation


def _write_results(out: Path, evaluation: Evaluation) -> None:
    records = (record for task in evaluation.tasks for record in task.records)
    write_whole(out / ITEMS, "".join(record_to_json(record) + "\n" for record in records))
    write_whole(out / SUMMARY, json.dumps(evaluation.to_dict(), ensure_ascii=False, indent=1) + "\n")


def began_with(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Configuration and model that a run was begun with. Raises `InputFileError` where the folder holds no run."""
    described = _read_run(out)
    return described["configuration"], described["model"]


def read_run(out: Path) -> Evaluation:
    """The results of a finished run. Raises `InputFileError` where there are none."""
    described = _read_run(out)
    if not (out / ITEMS).exists() or not (out / SUMMARY).exists():
        raise InputFileError(str(out), f"this run is not finished: selectrie eval --resume {out}")
    evaluated, naive = _rows(out / SUMMARY)
    tasks = [
        TaskItems(one["task"], (), tuple(one["metrics"]), version=one["version"], n_shots=one["shots"])
        for one in described["tasks"]
    ]
    records = list(_read_items(out / ITEMS, {task.task for task in tasks}))
    return Evaluation(results_of(tasks, records), evaluated, naive, described["signature"])


def _rows(path: Path) -> tuple[int, int]:
    """Rows evaluated, and one by one, as a summary says."""
    try:
        summary = json.loads(_read_text(path))
        return int(summary["rows_evaluated"]), int(summary["rows_naive"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputFileError(str(path), f"not the summary of a run: {error}") from error


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


def _read_run(out: Path) -> dict[str, Any]:
    path = out / RUN
    try:
        described: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if described["format"] != FORMAT_VERSION or described["kind"] != "run":
            raise InputFileError(
                str(path), f"a run of format {described['format']}; this version reads {FORMAT_VERSION}"
            )
        missing = [name for name in _PARTS if name not in described]
        if missing:
            raise InputFileError(str(path), f"not the beginning of a run: it has no {missing[0]!r}")
    except FileNotFoundError:
        raise InputFileError(str(out), f"no run: there is no {RUN}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(str(path), f"not the beginning of a run: {error}") from error
    return described


def _describe(llm: Engine, tasks: Sequence[TaskItems], units: Sequence[Unit], options: RunOptions) -> dict[str, Any]:
    """What `run.json` says."""
    return {
        "format": FORMAT_VERSION,
        "kind": "run",
        "configuration": json.loads(json.dumps(options.configuration)),
        "model": json.loads(json.dumps(options.model)),
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
        "environment": environment(),
    }


def _digest(units: Iterable[Unit]) -> str:
    """Of everything that is measured, and of what it is measured for."""
    digest = blake2b(digest_size=16)
    for unit in units:
        for array in (unit.sequences.tokens, unit.sequences.offsets, unit.sequences.first_scored):
            digest.update(str(array.shape).encode() + array.tobytes())
        for entry in unit.entries:
            item = entry.item
            said = [unit.task, entry.index, item.id, item.subset, list(item.gold), list(item.choices), entry.problem]
            digest.update(json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def environment() -> dict[str, object]:
    """The machine and versions a run began on."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "selectrie": __version__,
        "numpy": version("numpy"),
        "llama-cpp-python": version("llama-cpp-python"),
    }


def _open(out: Path, described: dict[str, Any], *, other_machine: bool) -> dict[str, Any]:
    """Begin a folder, or check that it holds this run; what its `run.json` says."""
    if (out / RUN).exists():
        begun = _read_run(out)
        _check_same(out, begun, described, other_machine=other_machine)
        return begun
    _check_new(out)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / RUN, json.dumps(described, ensure_ascii=False, indent=1) + "\n")
    return described


def _check_new(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(path.name != RUN + ".tmp" for path in out.iterdir())):
        raise OptionError("out", str(out), "a new folder, an empty one, or that of a run to go on with")


def check_folder(out: Path, configuration: Mapping[str, object]) -> None:
    """What can be said of a folder without the model. Raises `OptionError` where it holds something else, or a run of another configuration."""
    if not (out / RUN).exists():
        return _check_new(out)
    begun, asked = _read_run(out)["configuration"], json.loads(json.dumps(configuration))
    if begun != asked:
        said = _difference("configuration", begun, asked)
        raise OptionError("out", str(out), f"a folder of the same run: {said}")
    return None


def _check_same(out: Path, begun: dict[str, Any], described: dict[str, Any], *, other_machine: bool) -> None:
    """Configuration, then model, then what the two make of the data."""
    _check_parts(out, begun, described, ("configuration", "tasks"))
    for name, value in described["signature"].items():
        was = begun["signature"].get(name)
        if was == value or (name in _OF_THE_MACHINE and other_machine):
            continue
        remedy = "; --other-machine goes on all the same" if name in _OF_THE_MACHINE else ""
        raise OptionError("out", str(out), f"a folder of the same run: {name} was {was!r}, now {value!r}{remedy}")
    _check_parts(out, begun, described, ("plan",))


def _check_parts(out: Path, begun: dict[str, Any], described: dict[str, Any], parts: tuple[str, ...]) -> None:
    for part in parts:
        if begun[part] != described[part]:
            raise OptionError(
                "out", str(out), f"a folder of the same run: {_difference(part, begun[part], described[part])}"
            )


def _difference(part: str, was: Any, now: Any) -> str:
    """The first thing in which two parts differ, in words."""
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
