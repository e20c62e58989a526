"""The table of models, with a row of figures for each and its location below."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from selectrie.core.output import escaped
from selectrie.results import ModelRecord

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
