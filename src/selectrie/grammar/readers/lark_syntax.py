"""Parses a Lark grammar into statements, using the grammar file lark.lark.

The scanner is hand-written: it handles line ends, comments and limits while it splits
the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from lark import Token, Transformer, UnexpectedToken
from lark.common import LexerConf
from lark.lexer import Lexer

from selectrie.errors import clipped
from selectrie.grammar.readers.symbols import MAX_SYMBOLS, SymbolError, parsed, parser_of, span_of, start_of
from selectrie.grammar.rules.expressions import Span
from selectrie.grammar.rules.source_positions import Source

MAX_DEPTH = 64
"""Maximum nesting of brackets, so that expressions can be walked by recursion."""

_SCANNED = re.compile(
    r"""
    (?P<BLANK>[ \t\f]+|\\[ ]*\r?\n)
  | (?P<LINES>(?:\s|(?://|\#)[^\n]*)+)
  | (?P<REGEXP>/(?!/)(?:\\.|[^/\\])+/[imslux]*)
  | (?P<STRING>"(?:\\.|[^"\\\n])*"i?)
  | (?P<_IGNORE>%ignore\b) | (?P<_IMPORT>%import\b) | (?P<_OVERRIDE>%override\b)
  | (?P<_EXTEND>%extend\b) | (?P<_DECLARE>%declare\b)
  | (?P<_TO>->) | (?P<_DOTDOT>\.\.) | (?P<_DOT>\.) | (?P<_COLON>:) | (?P<_COMMA>,) | (?P<_OR>\|) | (?P<_TILDE>~)
  | (?P<_LPAR>\() | (?P<_RPAR>\)) | (?P<_LBRA>\[) | (?P<_RBRA>\]) | (?P<_LBRACE>\{) | (?P<_RBRACE>\})
  | (?P<_MODIFIERS>(?:!\??|\?!?)(?=_?[a-z])) | (?P<OP>[+*?])
  | (?P<RULE>_?[a-z][_a-z0-9]*) | (?P<TERMINAL>_?[A-Z][_A-Z0-9]*) | (?P<NUMBER>[+-]?[0-9]+)
  | (?P<BROKEN>[\s\S])
    """,
    re.VERBOSE,
)
_OPENING, _CLOSING = frozenset({"_LPAR", "_LBRA", "_LBRACE"}), frozenset({"_RPAR", "_RBRA", "_RBRACE"})
_BROKEN = {
    '"': "this string is not closed: a '\"' is missing",
    "/": "this regular expression is not closed: a '/' is missing",
    "'": "a string is written in double quotes; replace the single ones",
    "%": "this is not a statement; the statements are %ignore, %import, %declare, %override and %extend",
}
_WORDS = {
    "RULE": "a rule's name",
    "TERMINAL": "a terminal's name",
    "STRING": "a string",
    "REGEXP": "a regular expression",
    "NUMBER": "a number",
    "_COLON": "':'",
    "_OR": "'|'",
    "_NL": "a new line",
    "_COMMA": "','",
    "_DOT": "'.'",
    "_TO": "'->'",
    "_LPAR": "'('",
    "_RPAR": "')'",
    "_RBRA": "']'",
    "_RBRACE": "'}'",
}
_VALUE = frozenset({"RULE", "TERMINAL", "STRING", "REGEXP", "_LPAR"})


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the syntax tree of a definition.

    Attributes:
        kind: "alternatives", "sequence", "alias", "repeated", "name", "literal",
            "range" or "usage".
        parts: The parts of the node.
        word: The name, the literal, or the first end of the range, as written.
        last: The last end of the range, as written.
        offset: Offset of the node in the text.
        min_count: Minimum number of repetitions.
        max_count: Maximum number of repetitions; None for no limit.
    """

    kind: str
    parts: tuple[Node, ...] = ()
    word: str = ""
    last: str = ""
    offset: int = field(default=0, compare=False)
    min_count: int = 0
    max_count: int | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a grammar text.

    Attributes:
        kind: "rule", "terminal", "override", "extend", "ignore", "import" or "declare".
        span: Position of the name in the text.
        name: The name that is defined.
        body: The definition.
        names: Parameters of a template, declared names, or imported names; each with
            the name that it gets.
        path: Path of an import.
        relative: Whether the path begins with a dot.
    """

    kind: str
    span: Span
    name: str = ""
    body: Node = Node("sequence")
    names: tuple[tuple[str, str], ...] = ()
    path: tuple[str, ...] = ()
    relative: bool = False


def read_statements(source: Source) -> list[Statement]:
    """Return the statements of a grammar text, in order.

    Raises `GrammarError` with the position and what was expected there.
    """
    statements: list[Statement] = parsed(parser_of("lark.lark", Scanner, _Builder), source, _expected)
    return statements


class Scanner(Lexer):
    """Splits a Lark grammar into symbols.

    A line end is yielded only where it ends a statement: not before `|` and not at the
    beginning.
    """

    __future_interface__ = 0

    def __init__(self, _lexer_conf: LexerConf) -> None:
        pass

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]  # the signature in all versions of lark
        depth = n_symbols = 0
        line_end: int | None = None
        began = False
        for match in _SCANNED.finditer(text):
            kind, offset = match.lastgroup or "", match.start()
            if kind == "BLANK":
                continue
            if kind == "LINES":
                line_end = offset if began and "\n" in match[0] else line_end
                continue
            n_symbols += 1
            if n_symbols > MAX_SYMBOLS:
                raise SymbolError(offset, f"the grammar has more than {MAX_SYMBOLS} symbols; make it smaller")
            if kind == "BROKEN":
                raise SymbolError(offset, _BROKEN.get(match[0], f"{match[0]!r} is not allowed here"))
            if line_end is not None and kind != "_OR":
                yield Token("_NL", "\n", line_end)
            line_end, began = None, True
            depth += (kind in _OPENING) - (kind in _CLOSING)
            if depth > MAX_DEPTH:
                raise SymbolError(offset, f"nested more than {MAX_DEPTH} levels deep; make rules of the inner parts")
            yield Token(kind, match[0], offset)
        if began:
            yield Token("_NL", "\n", len(text))


class _Builder(Transformer[Token, Any]):
    """Builds nodes and statements from the productions, bottom-up."""

    def start(self, children: list[Statement]) -> list[Statement]:
        return children

    def expansions(self, children: list[Node]) -> Node:
        return children[0] if len(children) == 1 else Node("alternatives", tuple(children), offset=children[0].offset)

    def expansion(self, children: list[Node]) -> Node:
        if len(children) == 1:
            return children[0]
        return Node("sequence", tuple(children), offset=children[0].offset if children else 0)

    def alias(self, children: list[Any]) -> Node:
        return Node("alias", (children[0],), str(children[1]), offset=start_of(children[1]))

    def repeated(self, children: list[Any]) -> Node:
        item, count = children[0], children[1]
        if count.type == "OP":
            min_count, max_count = int(count == "+"), (1 if count == "?" else None)
        else:
            min_count, max_count = _number(count), _number(children[-1])
            if not 0 <= min_count <= max_count:
                raise SymbolError(
                    start_of(count),
                    f"the counts {count} to {children[-1]} are not a range; write the lower one first",
                )
        return Node("repeated", (item,), offset=item.offset, min_count=min_count, max_count=max_count)

    def optional(self, children: list[Node]) -> Node:
        return Node("repeated", (children[0],), offset=children[0].offset, max_count=1)

    def name(self, children: list[Token]) -> Node:
        return Node("name", word=str(children[0]), offset=start_of(children[0]))

    def literal(self, children: list[Token]) -> Node:
        return Node("literal", word=str(children[0]), offset=start_of(children[0]))

    def range(self, children: list[Token]) -> Node:
        return Node("range", word=str(children[0]), last=str(children[1]), offset=start_of(children[0]))

    def usage(self, children: list[Any]) -> Node:
        return Node("usage", tuple(children[1:]), str(children[0]), offset=start_of(children[0]))

    def parameters(self, children: list[Token]) -> tuple[tuple[str, str], ...]:
        return tuple((str(name), str(name)) for name in children)

    def rule(self, children: list[Any]) -> Statement:
        return Statement("rule", span_of(children[0]), str(children[0]), children[-1], names=children[1])

    def terminal(self, children: list[Any]) -> Statement:
        return Statement("terminal", span_of(children[0]), str(children[0]), children[-1])

    def override(self, children: list[Statement]) -> Statement:
        return replace(children[0], kind="override")

    def extend(self, children: list[Statement]) -> Statement:
        return replace(children[0], kind="extend")

    def ignore(self, children: list[Node]) -> Statement:
        return Statement("ignore", Span(children[0].offset, children[0].offset), body=children[0])

    def declare(self, children: list[Token]) -> Statement:
        return Statement("declare", span_of(children[0]), names=tuple((str(name), str(name)) for name in children))

    def path(self, children: list[Token]) -> list[Token]:
        """Return the names of a path; a dot at the beginning is kept."""
        return [child for index, child in enumerate(children) if not index or child.type != "_DOT"]

    def name_list(self, children: list[Token]) -> list[Token]:
        return children

    def import_one(self, children: list[list[Token]]) -> Statement:
        path = children[0]
        return _import(path[:-1], [(path[-1], path[-1])])

    def import_as(self, children: list[Any]) -> Statement:
        path = children[0]
        return _import(path[:-1], [(path[-1], children[1])])

    def import_many(self, children: list[list[Token]]) -> Statement:
        return _import(children[0], [(name, name) for name in children[1]])


def _number(token: Token) -> int:
    if len(token) > 6:
        raise SymbolError(start_of(token), f"the count {clipped(token, 12)} is too large; the maximum is 999999")
    return int(token)


def _import(path: list[Token], names: list[tuple[Token, Token]]) -> Statement:
    relative = bool(path) and path[0].type == "_DOT"
    steps = tuple(str(step) for step in path[relative:])
    first = names[0][0]
    if not steps:
        raise SymbolError(start_of(first), f"nothing is imported from {str(first)!r}; add a dot and a name")
    return Statement(
        "import", span_of(first), names=tuple((str(a), str(b)) for a, b in names), path=steps, relative=relative
    )


def _expected(error: UnexpectedToken) -> tuple[list[str], str]:
    """Return the symbols expected at an error, and an empty remedy."""
    expected = set(error.expected)
    shown = ["a name, string, regular expression or '('"] if expected >= _VALUE else []
    return shown + [word for kind, word in _WORDS.items() if kind in expected and not (shown and kind in _VALUE)], ""
