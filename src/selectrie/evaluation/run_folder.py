"""The folder of an evaluation: what its `run.json` holds, and with what it is resumed.

`runs.folder` says how such a folder is begun, checked and read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from selectrie.engine.engine import Engine
from selectrie.errors import InputFileError
from selectrie.evaluation.checks import check_view
from selectrie.evaluation.metrics import named
from selectrie.evaluation.work_units import TaskItems, WorkUnit
from selectrie.runs.folder import RUN, FolderFormat, other_run, resumable_or_none
from selectrie.runs.model_signature import signature_of

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
"""The folder's format. Format 1 had records in its log and no digest of the plan."""


def describe(
    llm: Engine,
    tasks: Sequence[TaskItems],
    units: Sequence[WorkUnit],
    configuration: Mapping[str, object],
    model: Mapping[str, object],
) -> dict[str, Any]:
    """Return the content of `run.json` for a run that begins now."""
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
        "plan": {"n_units": len(units), "digest": _digest(units)},
        "signature": signature_of(llm),
    }
    return FOLDER.described(parts, llm.identity.backend)


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


def check_folder(out: Path, configuration: Mapping[str, object], tasks: Sequence[TaskItems] = ()) -> None:
    """Check, without the model, whether a run can use or resume a folder.

    Raises `OptionError` if the folder holds other files, a run of another
    configuration, or a run that has not measured enough for the metrics of these tasks.
    """
    run_json = resumable_or_none(out, FOLDER)
    if run_json is None:
        return
    own = run_json["configuration"]
    expected = json.loads(json.dumps({**configuration, **_metrics_of(own)}))
    if own != expected:
        raise other_run(out, "configuration", own, expected)
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
    run_json = resumable_or_none(out, FOLDER)
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
