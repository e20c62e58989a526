"""Makes grammars from Python values: lists of texts, and types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from selectrie.errors import GrammarError, clipped
from selectrie.grammar.readers.regex import read_regex
from selectrie.grammar.readers.scalar_types import PATTERNS, is_text
from selectrie.grammar.readers.schema_of_type import (
    is_hashable,
    json_text,
    members_of,
    parts_of_union,
    schema_of_type,
    shown,
)
from selectrie.grammar.readers.shapes import alternatives, repeat
from selectrie.grammar.readers.type_sizes import check_size
from selectrie.grammar.rules.expressions import LAST_CODE_POINT, Alternatives, Characters, Expression, RuleSet, Text
from selectrie.grammar.rules.text_list import TextList

_INTEGER = "-?(?:0|[1-9][0-9]*)"
_DECIMAL = rf"{_INTEGER}(?:\.[0-9]+)?"
_PATTERNS: dict[Any, str] = {
    **PATTERNS,
    int: _INTEGER,
    float: rf"{_DECIMAL}(?:[Ee][+-]?[0-9]+)?",
    Decimal: _DECIMAL,
}
"""Numbers are as JSON writes them (RFC 8259, section 6): no leading zero, no plus."""
_PLAIN: dict[Any, Expression] = {
    str: repeat(Characters.of([(0, LAST_CODE_POINT)]), 0, None),
    bool: Alternatives((Text(b"true"), Text(b"false"))),
    None: Text(b"null"),
    type(None): Text(b"null"),
}


def list_of_choices(texts: Iterable[str]) -> TextList:
    """Return a list of exactly these texts, without duplicates.

    Raises `GrammarError` if there are none, and, with its index, for an item that is
    not a text.
    """
    if isinstance(texts, str | bytes):
        raise GrammarError(f"the choices are a single text, {clipped(str(texts))}; give a list of texts")
    options: dict[str, None] = {}
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise GrammarError(f"choice {index} is {clipped(repr(text))}, which is not a str")
        _encoded(text, f"choice {index}")
        options[text] = None
    if not options:
        raise GrammarError("the list of choices is empty; give at least one text")
    return TextList(tuple(options))


def rules_of_type(type: Any) -> RuleSet | TextList | Mapping[str, Any]:  # noqa: A002 - the public name
    """Return the grammar of a type's values, or a JSON Schema if they have parts.

    If each value has exactly one text, the grammar is a list, in the order of the type.

    Plain text is used for `Enum` (the value of each member, not its name), `Literal`,
    str, bool, numbers, None, dates, times, UUIDs, paths, bytes, and unions of them. A
    string stays as it is, without quotes. Other values are written as in JSON (true,
    null, 1.5), or as by `isoformat` and `str`.

    JSON Schema is used for types with parts (data classes, models, lists …), types with
    constraints (`Annotated`), and unions that contain one of them; see
    `schema_of_type`. Raises `GrammarError` for any other type, by name.
    """
    check_size(type)
    options: list[Expression] = []
    for part in parts_of_union(type):
        expression = _plain(part)
        if expression is None:
            return schema_of_type(type)
        options.append(expression)
    whole = alternatives(options)
    parts = whole.options if isinstance(whole, Alternatives) else (whole,)
    texts = [part.value.decode() for part in parts if isinstance(part, Text)]
    if parts and len(texts) == len(parts):
        return TextList(tuple(dict.fromkeys(texts)))
    return RuleSet(MappingProxyType({"root": whole}))


def _plain(part: Any) -> Expression | None:
    """Return the expression of one type without parts, or None for any other type."""
    if is_hashable(part) and part in _PLAIN:
        return _PLAIN[part]
    if is_text(part):
        return _PLAIN[str]
    if is_hashable(part) and part in _PATTERNS:
        return read_regex(_PATTERNS[part]).rules["root"]
    members = members_of(part)
    if members is None:
        return None
    texts = [value if isinstance(value, str) else json_text(value, part) for value in members]
    double = next((text for text, n in Counter(texts).items() if n > 1), None)
    if double is not None:
        raise GrammarError(f"{shown(part)} has several values with the text {clipped(double)}; keep one of them")
    return alternatives([Text(_encoded(text, f"a value of {shown(part)}")) for text in texts])


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise GrammarError(f"{what} contains the surrogate U+{code:04X}, which is not a character; remove it") from None
