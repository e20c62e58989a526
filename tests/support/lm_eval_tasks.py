"""Tasks of lm-evaluation-harness over the first records of local data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_data import real_file


def first_records(name: str, n: int) -> list[dict[str, Any]]:
    """The first records of a data set, each with a context, choices and the index of the right one."""
    with real_file(f"mc/{name}.jsonl").open() as file:
        return [json.loads(line) for _, line in zip(range(n), file, strict=False)]


def local_task(folder: Path, name: str, n: int, metrics: Sequence[str]) -> dict[str, Any]:
    """A task of multiple choice over these records, which are written to a file in the folder."""
    path = folder / f"{name}.jsonl"
    lines = [{key: record[key] for key in ("context", "choices", "gold")} for record in first_records(name, n)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{context}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "gold",
        "metric_list": [{"metric": metric} for metric in metrics],
    }


def simple_evaluate(*args: Any, **options: Any) -> dict[str, Any]:
    """The harness's own, without its description of the machine, for which it starts twelve programs."""
    import lm_eval

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lm_eval.evaluator.add_env_info", lambda _: None)
        return lm_eval.simple_evaluate(*args, **options)
