"""Reads templates: source text to a `Document`."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from string import Template as Pattern
from typing import cast

from lark import Lark, UnexpectedToken

from selectrie.errors import OptionError
from selectrie.template.dialects import DIALECTS
from selectrie.template.lexing import Scanner
from selectrie.template.places import Refused, error_in
from selectrie.template.reading import Reader
from selectrie.template.segments import Body, Document


def parse(source: str, *, name: str = "<template>", dialect: str = "selectrie") -> Document:
    """The segments of a template. name: of the file, for errors. dialect: "selectrie" (`<<…>>`) or "handlebars" (`{{…}}`).

    Raises `TemplateError` with the place, the line and what was expected there. Linear in the length of the source; blocks
    nest at most 64 deep, and so do expressions.
    """
    if dialect not in DIALECTS:
        raise OptionError("dialect", dialect, f"one of {', '.join(DIALECTS)}")
    try:
        body = cast("Body", _parser(dialect).parse(source))
    except Refused as refused:
        raise error_in(source, name, refused.offset, refused.reason) from None
    except UnexpectedToken as error:
        raise error_in(source, name, error.token.start_pos or 0, f"unexpected {error.token}") from None
    return Document(name, source, body, dialect)


@cache
def _parser(name: str) -> Lark:
    """One a dialect; parsing changes nothing in it."""
    dialect = DIALECTS[name]
    text = files("selectrie.template").joinpath("template.lark").read_text(encoding="utf-8")
    first = re.escape(dialect.opens[0])
    grammar = Pattern(text).substitute(open=first * 2, close=re.escape(dialect.closes[0]) * 2, first=first)
    return Lark(grammar, parser="lalr", lexer=Scanner, transformer=Reader(dialect), keep_all_tokens=True)
