"""Converts records to JSON data, and to HTML tables for notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from selectrie.core.notation import quoted
from selectrie.core.types import FloatArray
from selectrie.errors import MissingExtraError
from selectrie.options.arguments import missing_attribute

if TYPE_CHECKING:
    import pandas as pd

REPR_CELLS = 48
"""Maximum width of a text of data in a `repr`."""
_MAX_DEPTH = 64
"""Maximum nesting depth of lists and mappings that `jsonable` converts."""


class JsonRecord:
    """A result that pydantic and FastAPI write as its `to_dict()`.

    As the type of a field or of what an endpoint returns, its class accepts instances
    only; its JSON Schema is that of any object.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

        def __class_getitem__(cls, _item: object) -> type:
            """Return the class itself: pydantic would read the fields of an alias."""
            return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        write = {"type": "function-plain", "function": lambda one: one.to_dict()}
        return {"type": "is-instance", "cls": cls, "serialization": write}

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: object, _handler: object) -> dict[str, object]:
        return {"type": "object", "title": cls.__name__}


def number(x: float | None) -> float | None:
    """Return `x` if it is finite, else None, since JSON has no infinity and no NaN."""
    return None if x is None or not math.isfinite(x) else x


def numbers(x: FloatArray) -> list[float | None]:
    """Return the elements as a list, with None for infinities and NaN."""
    values = x.astype(object)
    values[~np.isfinite(x)] = None
    result: list[float | None] = values.tolist()
    return result


def bytes_fields(name: str, value: bytes) -> dict[str, object]:
    """Return `{name: text}` for bytes of UTF-8.

    Other bytes are replaced in the text, and a second field lists all bytes: "bytes" if
    the name is "piece", else the name with "_bytes" appended.
    """
    text = value.decode("utf-8", "replace")
    if text.encode() == value:
        return {name: text}
    return {name: text, "bytes" if name == "piece" else f"{name}_bytes": list(value)}


def text_fields(text: str, data: bytes) -> dict[str, object]:
    """Return `{"text": text}`, with "text_bytes" if `data` is not UTF-8."""
    return {"text": text, **({} if text.encode() == data else {"text_bytes": list(data)})}


def plain(record: Any) -> dict[str, object]:
    """Return the fields of a flat dataclass, ready for JSON."""
    if not is_dataclass(record):
        raise TypeError(f"{type(record).__name__} is not a record")
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: number(value) if isinstance(value, float) else value for name, value in values.items()}


def fields_of(record: object, names: str) -> dict[str, object]:
    """Return the fields `names` of a record, ready for JSON.

    The names are separated by spaces. `key=name` stores the field under `key`; `name?`
    omits the field if it is None, "" or (). Records in these fields are converted by
    their `to_dict` or field by field. Bytes become text (see `bytes_fields`).
    """
    converted: dict[str, object] = {}
    for key, name, is_optional in _parse_names(names):
        value = getattr(record, name)
        if isinstance(value, bytes):
            converted.update(bytes_fields(key, value))
        elif not (is_optional and (value is None or value in ("", ()))):
            converted[key] = _to_jsonable(value)
    return converted


@lru_cache(256)
def _parse_names(names: str) -> list[tuple[str, str, bool]]:
    """Return the key, the name and whether it ends in `?`, for each word of `names`."""
    parts = [(*word.removesuffix("?").rpartition("="), word[-1] == "?") for word in names.split()]
    return [(key or name, name, is_optional) for key, _, name, is_optional in parts]


def _to_jsonable(value: Any) -> object:
    """Return a value of a record's field, converted recursively for JSON."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, tuple | list):
        return [_to_jsonable(item) for item in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _to_jsonable(item) for name, item in value.items()}
    return {f.name: _to_jsonable(getattr(value, f.name)) for f in fields(value)} if is_dataclass(value) else value


def truth_error(record: object, what: str) -> TypeError:
    """Return the error to raise for `bool(record)`; `what` names the alternative."""
    return TypeError(f"a {type(record).__name__} is neither true nor false; read {what}")


def value_text(value: object) -> str:
    """Return a value for a `repr`: a text in quotes, cut if it is long."""
    return quoted(value, REPR_CELLS) if isinstance(value, str) and not isinstance(value, Enum) else repr(value)


def listing(head: str, lines: Sequence[str], n: int) -> str:
    """Return a `repr` of several lines: `head`, then `lines`.

    If `n` is larger than the number of lines, a last line says how many are missing.
    """
    more = [f"  … {n - len(lines)} more"] if n > len(lines) else []
    return "\n".join([head, *lines, *more])


def jsonable(value: object, depth: int = _MAX_DEPTH) -> object:
    """Return `value` converted to types of JSON.

    Enum members become their value. Values nested deeper than `depth`, and objects of
    other types, become their `repr`.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return number(value)
    if depth and isinstance(value, Mapping):
        return {str(jsonable(key, 0)): jsonable(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [jsonable(item, depth - 1) for item in value]
    return repr(value)


def frame(rows: Iterable[Any], names: str = "") -> pd.DataFrame:
    """Return a pandas data frame of rows.

    A row is a mapping from column names to values, or a tuple of values. `names` are
    then the names of the columns, separated by spaces.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise MissingExtraError("a table of results", "pandas") from error
    return pd.DataFrame(list(rows), columns=names.split() or None)


_WIDEST_EM = 32


def table(heads: Sequence[str], rows: Iterable[str], caption: str, *, hidden: int = 0) -> str:
    """Return an HTML table of rows in HTML, as `row` of this module returns them.

    `hidden` is the number of rows that are left out.
    """
    more = f'<tr><td colspan="{len(heads)}">… {hidden} more</td></tr>' if hidden > 0 else ""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    title = f'<caption style="text-align:left">{escape(caption)}</caption>'
    style = ' style="border-collapse:collapse"'
    return f"<table{style}>{title}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}{more}</tbody></table>"


def row(*cells: str, faint: bool = False) -> str:
    """Return an HTML table row of `cells`, which are HTML table cells."""
    style = ' style="opacity:.5"' if faint else ""
    return f"<tr{style}>{''.join(cells)}</tr>"


def label(text: str, *, bold: bool = False, of: int = 1, indent: int = 0, wide: bool = False) -> str:
    """Return an HTML table cell with a text, clipped to its share of the table's width.

    Args:
        text: The text; it is escaped.
        bold: Whether the text is bold.
        of: Number of texts that share the width.
        indent: Indentation of the cell, in em.
        wide: Whether to double the share, for a row without a bar.
    """
    shown = escape(text)
    style = (
        f"max-width:{max(8, _WIDEST_EM * (1 + wide) // of)}em;overflow:hidden;text-overflow:ellipsis;white-space:pre"
    )
    style += f";margin-left:{indent}em" if indent else ""
    inner = f"<b>{shown}</b>" if bold else shown
    return f'<td style="text-align:left"><div style="{style}" title="{shown}">{inner}</div></td>'


def cell(text: str = "") -> str:
    """Return an HTML table cell with a short text, such as a number."""
    return f"<td>{escape(text)}</td>"
