"""Symbols of a grammar's text, and the lines and columns of errors about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken
from lark.lexer import Lexer

from selectrie.errors import GrammarError, clipped
from selectrie.grammar.rules import Span


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """A grammar text and its name in messages, which is "" for the top-level text."""

    text: str
    name: str = ""

    def error_at(self, offset: int, reason: str) -> GrammarError:
        """Return the error for a character of the text.

        It has the line and the column, counted from 1, and the line itself.
        """
        offset = min(offset, len(self.text))
        start = self.text.rfind("\n", 0, offset) + 1
        return GrammarError(
            f"{self.name}: {reason}" if self.name else reason,
            line=self.text.count("\n", 0, offset) + 1,
            column=offset - start + 1,
            excerpt=self.text[start:].partition("\n")[0],
        )


MAX_SYMBOLS = 100_000
"""Maximum number of symbols of a grammar text: names, literals, brackets, operators.

This many are read in about a second, and compiled within 2 s in total.
"""


class SymbolError(Exception):
    """An invalid symbol, with its offset in the text."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset, self.reason = offset, reason
        super().__init__(reason)


@cache
def parser_of(name: str, scanner: type[Lexer], builder: type[Transformer[Token, Any]]) -> Lark:
    """Return the parser of a grammar file of `readers/`."""
    grammar = files("selectrie.grammar.readers").joinpath(name).read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer=scanner, transformer=builder())


def parse_source(
    parser: Lark, source: GrammarSource, expected: Callable[[UnexpectedToken], tuple[list[str], str]]
) -> Any:
    """Parse a text and return what the parser's builder made of it.

    Raises `GrammarError` with the position, the symbol found and those expected.

    Args:
        parser: The parser.
        source: The text.
        expected: Returns the names of the symbols that may be at the position of an
            error, and a remedy or "".
    """
    try:
        return parser.parse(source.text)
    except UnexpectedToken as error:
        token = error.token
        at_end = token.type == "$END" or start_of(token) >= len(source.text)
        symbol = "the end" if at_end else "a new line" if token.type in _LINE_ENDS else clipped(str(token))
        start = len(source.text) if at_end else start_of(token)
        words, remedy = expected(error)
        raise source.error_at(start, f"expected {' or '.join(words)}, found {symbol}{remedy}") from None
    except SymbolError as error:
        raise source.error_at(error.offset, error.reason) from None


_LINE_ENDS = frozenset({"_NEWLINE", "_NL"})


def start_of(token: Token) -> int:
    """Return the offset of a symbol's first character."""
    return token.start_pos or 0


def span_of(token: Token) -> Span:
    """Return the span of a symbol in the text."""
    return Span(start_of(token), start_of(token) + len(token))
