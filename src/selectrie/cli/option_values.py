"""Functions that build the record of a group from the values of a command's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from selectrie.cli.groups import WITH_ESCAPES
from selectrie.cli.inputs import parse_escapes

_HINTS: dict[type[Any], Mapping[str, Any]] = {}


def hints_of(group: type[Any]) -> Mapping[str, Any]:
    """Return the annotated type of each field of a record of options, read once."""
    if group not in _HINTS:
        _HINTS[group] = get_type_hints(group, include_extras=True)
    return _HINTS[group]


def collect(group: type[Any], values: Mapping[str, Any]) -> Any:
    """Build the record of one group from the values of a command's options.

    Lists become tuples. With `--escapes`, backslash escapes are replaced in the options
    that are marked `WITH_ESCAPES`.
    """
    named = {field.name: values[field.name] for field in fields(group)}
    if values.get("escapes"):
        hints = hints_of(group)
        read = [name for name in named if WITH_ESCAPES in hints[name].__metadata__[1:]]
        named |= {name: _unescaped(name, named[name]) for name in read}
    return group(**{name: tuple(value) if isinstance(value, list) else value for name, value in named.items()})


def _unescaped(name: str, value: Any) -> Any:
    """Replace the backslash escapes in a text or a list of texts; None stays None.

    Raises `OptionError` for an unknown escape.
    """
    if isinstance(value, list):
        return [parse_escapes(name, text) for text in value]
    return None if value is None else parse_escapes(name, value)
