"""The two spellings of the template language: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Dialect:
    """A spelling.

    opens, closes: the delimiters, two equal characters each. partials: is `{{>file}}` read? lenient: does a backslash in a
    string stay where it makes no escape? helpers: what may stand first inside parentheses, and the operator it means. aliases:
    arguments by another name. commands, arguments: those of programs written elsewhere that have no meaning here, and what to
    do instead.
    """

    name: str
    opens: str
    closes: str
    partials: bool = False
    lenient: bool = False
    helpers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    aliases: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    commands: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    arguments: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


SELECTRIE = Dialect("selectrie", "<<", ">>")
