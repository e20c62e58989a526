"""The reports of what is there: models, and what a trace holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from selectrie.core.output import escaped
from selectrie.results import ModelRecord

if TYPE_CHECKING:
    from selectrie.traces.reader import RecordedTask, Trace


HEAD = ("name", "size", "digest", "file")
_RIGHT = (1,)
_NAME_CELLS = 22
_DIGEST_DIGITS = 8
_UNITS = ("B", "kB", "MB", "GB", "TB")


def models_report(records: Sequence[ModelRecord]) -> RenderableType:
    """Return the table of models.

    It has name, size, the beginning of the digest, and whether the file exists.
    """
    rows = [_cells(record) for record in records]
    widths = [max(len(row[at]) for row in [HEAD, *rows]) for at in range(len(HEAD))]
    lines: list[RenderableType] = [Text(_line(HEAD, widths), "bold")]
    for record, cells in zip(records, rows, strict=True):
        where = Text(_where(record), "bright_black", overflow="fold")
        lines += [Text(_line(cells, widths)), Padding(where, (0, 0, 0, 2))]
    return Group(*lines)


def size_words(n_bytes: int) -> str:
    """Return a size as `7.9 MB`: decimal units, at least two digits."""
    value, at = float(n_bytes), 0
    while value >= 999.5 and at < len(_UNITS) - 1:
        value, at = value / 1000, at + 1
    digits = 1 if at and value < 9.95 else 0
    return f"{value:.{digits}f} {_UNITS[at]}"


def _cells(record: ModelRecord) -> tuple[str, ...]:
    name = escaped(record.name)
    return (
        name if len(name) <= _NAME_CELLS else name[: _NAME_CELLS - 1] + "…",
        size_words(record.size_bytes) if record.digest else "",
        record.digest.partition(":")[2][:_DIGEST_DIGITS],
        record.file,
    )


def _where(record: ModelRecord) -> str:
    """Return how to load the model, and the place of its file."""
    local = "" if record.source == record.path else f" in {record.path}"
    return ("comes with selectrie: " if record.embedded else "") + escaped(record.source + local)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(w) if at in _RIGHT else cell.ljust(w) for at, (cell, w) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


_SHOWN_TOKENS = 40
"""Number of tokens at the end of a prompt that are shown."""
_MAX_SHOWN = 200
"""Number of tasks that a report shows."""


def trace_summary(trace: Trace) -> dict[str, Any]:
    """Return what a trace holds."""
    header = trace.header
    pieces = _pieces(trace)
    return {
        "trace": str(trace.path),
        "is_complete": trace.tail.is_complete,
        "n_bytes_torn": trace.tail.n_torn,
        "versions": json.loads(header.versions),
        "model": json.loads(header.identity),
        "has_vocabulary": header.has_vocabulary,
        "has_full_rows": header.full_rows,
        "n_texts": len(trace.encodings) + len(trace.inside),
        "command": trace.notes.get("command"),
        "tasks": [
            {
                "kind": task.kind,
                "rows_from": task.context.name.lower(),
                "n_rows": sum(map(len, task.rows)),
                "prompt": _prompt(task, pieces),
            }
            for task in trace.tasks
        ],
    }


def trace_report(summary: Mapping[str, Any]) -> RenderableType:
    """Return a report of a summary."""
    model = summary["model"]
    state = "whole" if summary["is_complete"] else f"torn, {summary['n_bytes_torn']} bytes of a block are left over"
    lines = (
        f"trace  {summary['trace']} ({state})",
        f"model  {model.get('name')}, {model.get('build')}, precision {model.get('precision')}",
        (
            f"texts  {summary['n_texts']} with their tokens; vocabulary {_yes(summary['has_vocabulary'])}, "
            f"whole rows {_yes(summary['has_full_rows'])}"
        ),
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("task", "rows", "prompt"):
        table.add_column(heading, justify="right" if heading == "rows" else "left", overflow="fold")
    for task in summary["tasks"][:_MAX_SHOWN]:
        table.add_row(Text(task["kind"]), str(task["n_rows"]), Text(task["prompt"]))
    n_more = len(summary["tasks"]) - _MAX_SHOWN
    return Group(*map(Text, lines), Text(), table, *([Text(f"and {n_more} more")] if n_more > 0 else []))


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _pieces(trace: Trace) -> list[bytes] | None:
    """Return the bytes of each token; None if the trace does not have them."""
    pieces: list[bytes] = []
    for part in trace.tokens:
        flat, at = part.pieces.tobytes(), 0
        for length in part.piece_lengths.tolist():
            pieces.append(flat[at : at + max(0, length)])
            at += max(0, length)
    return pieces if len(pieces) == trace.header.n_tokens else None


def _prompt(task: RecordedTask, pieces: list[bytes] | None) -> str:
    """Return the end of a task's prompt, as text or as ids."""
    ids = task.prompt[-_SHOWN_TOKENS:].tolist()
    cut = "…" if len(task.prompt) > len(ids) else ""
    if pieces is None:
        return cut + " ".join(map(str, ids))
    return cut + escaped(b"".join(pieces[token] for token in ids).decode("utf-8", "backslashreplace"))
