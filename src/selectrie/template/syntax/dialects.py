"""The differences between the two dialects of the template language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

NO_CALLS = "templates cannot call functions; pass the result as a value"
"""Advice for calls, which other languages have."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect of the template language.

    Attributes:
        name: Its name.
        opens: Opening delimiter, two equal characters.
        closes: Closing delimiter, two equal characters.
        partials: Whether `{{>file}}` includes a file.
        lenient: Whether a backslash in a string is kept if it begins no escape.
        helpers: Words that may come first inside parentheses, with the operators that
            they mean.
        aliases: Alternative names of arguments.
        commands: Commands of guidance programs that are not supported, with advice.
        arguments: Arguments of guidance programs that are not supported, with advice.
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

    def tag(self, content: str) -> str:
        """Return `content` between the delimiters of a tag."""
        return f"{self.opens}{content}{self.closes}"

    @property
    def escaped(self) -> str:
        """Return advice on how to write an opening delimiter as text."""
        return f"write \\{self.opens} for the characters {self.opens}"


SELECTRIE = Dialect("selectrie", "<<", ">>")
