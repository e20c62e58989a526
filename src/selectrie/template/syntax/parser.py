"""Parses the source text of a template to a `Document`."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from string import Template as Pattern
from typing import cast

from lark import Lark, Token, UnexpectedToken

from selectrie.errors import OptionError, clipped
from selectrie.template.syntax.ast import Body, Document
from selectrie.template.syntax.handlebars import DIALECTS
from selectrie.template.syntax.lexer import OPENINGS, Scanner
from selectrie.template.syntax.source_positions import Refused
from selectrie.template.syntax.syntax_errors import BrokenTag, refusal
from selectrie.template.syntax.transformer import Reader


def parse(source: str, *, name: str = "<template>", dialect: str = "selectrie") -> Document:
    """Parse a template.

    Takes time linear in the length of the source. Blocks nest at most 64 deep, and so
    do expressions.

    Args:
        source: The template.
        name: Name of the file, for errors.
        dialect: "selectrie" (`<<…>>`) or "handlebars" (`{{…}}`).

    Raises:
        TemplateError: If the source is not a template. The error has the position, the
            line and what was expected there.
        OptionError: If there is no such dialect.
    """
    if dialect not in DIALECTS:
        raise OptionError("dialect", dialect, f"one of {', '.join(DIALECTS)}")
    try:
        return Document(name, source, _read(source, dialect), dialect)
    except Refused as refused:
        raise refused.error(source, name) from None


def _read(source: str, dialect: str) -> Body:
    """Return the segments of a source; raise `Refused` if it cannot be parsed."""
    try:
        return cast("Body", _parser(dialect).parse(source))
    except UnexpectedToken as error:
        offset = error.token.start_pos or 0
        stack = error.interactive_parser.parser_state.value_stack
        opening = next(
            (value for value in reversed(stack) if isinstance(value, Token) and value.type in OPENINGS), None
        )
        if opening is None:
            raise Refused(offset, f"{clipped(str(error.token))} is not allowed here") from None
        symbols = Scanner(_parser(dialect).lexer_conf).symbols_before(source, opening, offset)
        raise refusal(BrokenTag(source, DIALECTS[dialect], symbols, error.token, error.accepts)) from None


@cache
def _parser(name: str) -> Lark:
    """Return the parser of a dialect, which has no state."""
    dialect = DIALECTS[name]
    text = files("selectrie.template.syntax").joinpath("template.lark").read_text(encoding="utf-8")
    first = re.escape(dialect.opens[0])
    grammar = Pattern(text).substitute(open=first * 2, close=re.escape(dialect.closes[0]) * 2, first=first)
    return Lark(grammar, parser="lalr", lexer=Scanner, transformer=Reader(dialect), keep_all_tokens=True)
