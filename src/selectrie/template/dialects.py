"""The two spellings of the template language: what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Dialect:
    """A spelling. opens, closes: the delimiters. partials: is `{{>file}}` read? helpers: words that stand first inside
    parentheses, and the comparison each means."""

    name: str
    opens: str
    closes: str
    partials: bool = False
    helpers: Mapping[str, str] = field(default_factory=dict)


SELECTRIE = Dialect("selectrie", "<<", ">>")
HANDLEBARS = Dialect(
    "handlebars",
    "{{",
    "}}",
    partials=True,
    helpers=MappingProxyType(
        {
            "equal": "==",
            "notequal": "!=",
            "greater": ">",
            "less": "<",
            "contains": "in",
            "and": "and",
            "or": "or",
        }
    ),
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in (SELECTRIE, HANDLEBARS)})
