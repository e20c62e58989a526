"""Reports that list models, or the contents of a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from selectrie.cli.report.terminal import make_table
from selectrie.core.notation import escaped
from selectrie.results import ModelRecord

if TYPE_CHECKING:
    from selectrie.traces.reader import RecordedTask, Trace


HEAD = ("name", "size", "digest", "file")
_RIGHT = (1,)
_DIGEST_DIGITS = 8
_UNITS = ("B", "kB", "MB", "GB", "TB")


def models_report(records: Sequence[ModelRecord]) -> RenderableType:
    """Return the table of models.

    It has name, size, the beginning of the digest, whether the file exists, and where
    the file is. Lines are not broken, so that a path can be copied.
    """
    rows = [_model_cells(record) for record in records]
    widths = [max(len(row[at]) for row in [HEAD, *rows]) for at in range(len(HEAD))]
    lines = [(_join_cells(HEAD, widths), "bold")]
    for record, cells in zip(records, rows, strict=True):
        lines += [(_join_cells(cells, widths), ""), (f"  {_model_place(record)}", "bright_black")]
    return Group(*(Text(line, style, no_wrap=True, overflow="ignore") for line, style in lines))


def size_words(n_bytes: int) -> str:
    """Return a size in decimal units with at least two digits: `7.9 MB`."""
    value, at = float(n_bytes), 0
    while value >= 999.5 and at < len(_UNITS) - 1:
        value, at = value / 1000, at + 1
    digits = 1 if at and value < 9.95 else 0
    return f"{value:.{digits}f} {_UNITS[at]}"


def _model_cells(record: ModelRecord) -> tuple[str, ...]:
    """Return a model's cells for the columns of `HEAD`."""
    return (
        escaped(record.name),
        size_words(record.size_bytes) if record.digest else "",
        record.digest.partition(":")[2][:_DIGEST_DIGITS],
        record.file,
    )


def _model_place(record: ModelRecord) -> str:
    """Return the source with which to load a model, and the place of its file."""
    local = "" if record.source == record.path else f" in {record.path}"
    return ("comes with selectrie: " if record.embedded else "") + escaped(record.source + local)


def _join_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return cells as a line, padded to the widths of their columns."""
    padded = (
        cell.rjust(w) if at in _RIGHT else cell.ljust(w) for at, (cell, w) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


_SHOWN_TOKENS = 40
"""Maximum number of tokens shown of the end of a prompt."""
_MAX_SHOWN = 200
"""Maximum number of tasks that a report shows."""


def trace_summary(trace: Trace) -> dict[str, Any]:
    """Return a JSON-ready summary of a trace: its model, command and tasks."""
    header = trace.header
    pieces = _token_bytes(trace)
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
                "prompt": _prompt_end(task, pieces),
            }
            for task in trace.tasks
        ],
    }


def trace_report(summary: Mapping[str, Any]) -> RenderableType:
    """Return the report of a trace.

    Args:
        summary: The result of `trace_summary`.
    """
    model = summary["model"]
    state = "whole" if summary["is_complete"] else f"torn, {summary['n_bytes_torn']} bytes of a block are left over"
    lines = (
        f"trace  {summary['trace']} ({state})",
        f"model  {model.get('name')}, {model.get('build')}, precision {model.get('precision')}",
        (
            f"texts  {summary['n_texts']} with their tokens; vocabulary {_yes_or_no(summary['has_vocabulary'])}, "
            f"whole rows {_yes_or_no(summary['has_full_rows'])}"
        ),
    )
    table = make_table("task", "rows", "prompt", texts=(0, 2), style="")
    for task in summary["tasks"][:_MAX_SHOWN]:
        table.add_row(Text(task["kind"]), str(task["n_rows"]), Text(task["prompt"]))
    n_more = len(summary["tasks"]) - _MAX_SHOWN
    return Group(*map(Text, lines), Text(), table, *([Text(f"and {n_more} more")] if n_more > 0 else []))


def _yes_or_no(value: object) -> str:
    return "yes" if value else "no"


def _token_bytes(trace: Trace) -> list[bytes] | None:
    """Return the bytes of each token; None if the trace does not hold all of them."""
    pieces: list[bytes] = []
    for part in trace.tokens:
        flat, at = part.pieces.tobytes(), 0
        for length in part.piece_lengths.tolist():
            pieces.append(flat[at : at + max(0, length)])
            at += max(0, length)
    return pieces if len(pieces) == trace.header.n_tokens else None


def _prompt_end(task: RecordedTask, pieces: list[bytes] | None) -> str:
    """Return the end of a task's prompt, as text, or as ids without `pieces`."""
    ids = task.prompt[-_SHOWN_TOKENS:].tolist()
    cut = "…" if len(task.prompt) > len(ids) else ""
    if pieces is None:
        return cut + " ".join(map(str, ids))
    return cut + escaped(b"".join(pieces[token] for token in ids).decode("utf-8", "backslashreplace"))
