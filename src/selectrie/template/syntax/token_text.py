"""Interprets single tokens of a tag: strings with escapes, names, positions."""

from __future__ import annotations

import re

from lark import Token

from selectrie.errors import clipped
from selectrie.template.syntax.ast import Span
from selectrie.template.syntax.source_positions import Refused
from selectrie.template.syntax.tags import RESERVED
from selectrie.template.syntax.whitespace import Edges

_NAME = re.compile(r"[^\W\d]\w*")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([\s\S]))")


def start_of(token: Token) -> int:
    """Return the offset at which a token starts."""
    return token.start_pos or 0


def stop_of(token: Token) -> int:
    """Return the offset after a token."""
    return start_of(token) + len(token)


def span_of(token: Token) -> Span:
    """Return the span of a token."""
    return Span(start_of(token), stop_of(token))


def text_of(token: Token, *, lenient: bool = False) -> str:
    """Return the text of a string token, without quotes and with escapes replaced.

    With `lenient`, a backslash that does not begin an escape is kept.
    """
    if "\\" not in token:
        return str(token[1:-1])
    return _ESCAPE.sub(lambda match: _escaped(token, match, lenient=lenient), token[1:-1])


def _escaped(token: Token, match: re.Match[str], *, lenient: bool) -> str:
    offset = start_of(token) + 1 + match.start()
    if match[1]:
        code = int(match[1], 16)
        if 0xD800 <= code < 0xE000:
            raise Refused(offset, f"{match[0]} is half of a character; write the character itself")
        return chr(code)
    if match[2] in _ESCAPES:
        return _ESCAPES[match[2]]
    if lenient:
        return match[0]
    if match[2] == "u":
        raise Refused(offset, r"\u needs four hexadecimal digits, as in \u00e9")
    known = r"the escapes are \n \t \\ \' \" and \uXXXX"
    if not match[2].isprintable():
        raise Refused(offset, rf"a backslash before {match[2]!r} is not an escape; for a backslash write \\ ({known})")
    raise Refused(offset, rf"\{match[2]} is not an escape; for a backslash write \\{match[2]} ({known})")


def edges_of(opening: Token, closing: Token) -> Edges:
    """Return the `Edges` of a tag, given its opening and closing delimiters."""
    return Edges(start_of(opening), stop_of(closing), "~" in opening, closing.startswith("~"))


def slot_name(kind: str, name: str, offset: int) -> str:
    """Return the name if it may name a slot, else raise `Refused`.

    Allowed are a name, and `this` or `this.field` for an item of a `geneach`.
    """
    first, dot, key = name.partition(".")
    if kind in {"select", "gen", "beam"} and first == "this" and (not dot or _NAME.fullmatch(key)):
        return name
    return checked_name(name, offset)


def checked_name(name: str, offset: int) -> str:
    """Return the name if it may name a value, else raise `Refused`."""
    if name in RESERVED:
        raise Refused(offset, f"{name!r} is a reserved word; choose another name")
    if not _NAME.fullmatch(name):
        raise Refused(
            offset, f"{clipped(name)} is not a name: names are letters, digits and _, and do not begin with a digit"
        )
    return name
