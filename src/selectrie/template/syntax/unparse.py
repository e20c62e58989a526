"""Writes segments in a canonical spelling, which parses to the same segments."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selectrie.errors import TemplateError, clipped
from selectrie.template.syntax import ast
from selectrie.template.syntax.dialects import Dialect
from selectrie.template.syntax.handlebars import DIALECTS

_KEY = re.compile(r"[^\W\d]\w*")
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"})
_ANY, _ALL, _NOT, _COMPARE, _OPERAND = range(5)
_TURNS = frozenset({"system", "user", "assistant"})


def unparse(document: ast.Document) -> str:
    """Return the canonical text of a document in its dialect.

    `parse` of the result gives the same segments, with other spans. White space is
    written as the segments have it, without `~`; `unless` becomes `if not`; raw blocks
    become escapes. Segments that no source can have (two adjacent literals, a name with
    a blank) are written as they are.

    Raises `TemplateError` for a comment that contains its own end.
    """
    dialect = DIALECTS[document.dialect]
    return "".join(_Printer(dialect).body(document.body, ends=True))


class _Printer:
    """Yields the pieces of a document's canonical text."""

    def __init__(self, dialect: Dialect) -> None:
        self._opens, self._closes, self._tag = dialect.opens, dialect.closes, dialect.tag
        first = re.escape(dialect.opens[0])
        self._opening = re.compile(rf"(?<!\\)(\\*)(?:({first}{first})|({first}?)\Z)")

    def body(self, body: ast.Body, *, ends: bool = False) -> Iterator[str]:
        """Yield the text of a body.

        `ends` says whether the source ends after it.
        """
        last = len(body) - 1
        for i, segment in enumerate(body):
            if isinstance(segment, ast.Literal):
                yield self._literal(segment.text, before_tag=not (ends and i == last))
            else:
                yield from self._segment(segment)

    def _literal(self, text: str, *, before_tag: bool) -> str:
        """Return text with delimiters escaped.

        Backslashes are doubled where they would escape the next character.
        """

        def written(match: re.Match[str]) -> str:
            if match[2]:
                return match[1] * 2 + "\\" + self._opens
            return match[1] * 2 + match[3] if before_tag else match[0]

        return self._opening.sub(written, text)

    def _segment(self, segment: ast.Segment) -> Iterator[str]:
        match segment:
            case ast.Literal(text):
                yield self._literal(text, before_tag=True)
            case ast.Comment(text):
                yield self._comment(text)
            case ast.Output(value):
                yield self._tag(expression_text(value))
            case ast.Set(name, value):
                yield self._tag(f"set {quoted(name)} {expression_text(value)}")
            case ast.Include(path):
                yield self._tag(f"include {quoted(path)}")
            case ast.Slot(kind, name, arguments, None):
                yield self._tag(f"{kind} {quoted(name)}{_arguments(arguments)}")
            case ast.Slot(kind, name, arguments, choices):
                yield self._tag(f"#{kind} {quoted(name)}{_arguments(arguments)}")
                for i, choice in enumerate(choices or ()):
                    yield from [self._tag("or")] if i else []
                    yield from self.body(choice)
                yield self._tag(f"/{kind}")
            case ast.If(branches, otherwise):
                yield from self._branches(branches, otherwise)
            case _:
                yield from self._block(segment)

    def _block(self, block: ast.Each | ast.GenEach | ast.Block | ast.Joint | ast.Role) -> Iterator[str]:
        head = _head(block)
        yield self._tag(f"#{head}")
        yield from self.body(block.body)
        yield self._tag(f"/{head.partition(' ')[0]}")

    def _branches(self, branches: tuple[tuple[ast.Expression, ast.Body], ...], otherwise: ast.Body) -> Iterator[str]:
        for i, (condition, body) in enumerate(branches):
            yield self._tag(f"{'elif' if i else '#if'} {expression_text(condition)}")
            yield from self.body(body)
        if otherwise:
            yield self._tag("else")
            yield from self.body(otherwise)
        yield self._tag("/if")

    def _comment(self, text: str) -> str:
        """Return a comment tag, without `--` if that means the same."""
        first = self._closes[0]
        if self._closes not in text and not text.startswith("--") and not text.endswith(("~", first)):
            return self._tag(f"!{text}")
        if f"--{self._closes}" in text or f"--~{self._closes}" in text:
            raise TemplateError(f"a comment that contains --{self._closes} cannot be written: {clipped(text)}")
        return self._tag(f"!--{text}--")


def _head(block: ast.Each | ast.GenEach | ast.Block | ast.Joint | ast.Role) -> str:
    """Return the content of a block's opening tag after the `#`."""
    match block:
        case ast.Each(items, _, variable, arguments):
            named = "" if variable == "this" else f" as {variable}"
            return f"each {expression_text(items)}{named}{_arguments(arguments)}"
        case ast.GenEach(name, _, arguments):
            return f"geneach {quoted(name)}{_arguments(arguments)}"
        case ast.Block(_, called, arguments):
            return f"block{'' if called is None else ' ' + quoted(called)}{_arguments(arguments)}"
        case ast.Joint(_, arguments):
            return f"joint{_arguments(arguments)}"
        case ast.Role(role):
            if not isinstance(role, str):
                is_positional = isinstance(role, ast.Path) and (role.steps or role.name == "this")
                return f"role {'' if is_positional else 'name='}{expression_text(role)}"
            return role if role in _TURNS else f"role {quoted(role)}"


def quoted(text: str) -> str:
    """Return a text as a string literal of the template language."""
    return f"'{text.translate(_ESCAPES)}'"


def expression_text(expression: ast.Expression, around: int = _ANY) -> str:
    """Return an expression as text.

    It is put in parentheses if the expression around it binds more tightly.
    """
    match expression:
        case ast.Constant(value):
            return _constant(value)
        case ast.Path(name, steps):
            return name + "".join(_step(step) for step in steps)
        case ast.ListOf(items):
            return f"[{', '.join(expression_text(item) for item in items)}]"
        case ast.Not(operand):
            return _within(f"not {expression_text(operand, _NOT)}", _NOT, around)
        case ast.Compare(operator, left, right):
            text = f"{expression_text(left, _OPERAND)} {operator} {expression_text(right, _OPERAND)}"
            return _within(text, _COMPARE, around)
        case ast.Logical(operator, operands):
            own = _ANY if operator == "or" else _ALL
            return _within(f" {operator} ".join(expression_text(one, own + 1) for one in operands), own, around)


def _within(text: str, own: int, around: int) -> str:
    return f"({text})" if own < around else text


def _constant(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def _step(step: str | int | ast.Expression) -> str:
    if isinstance(step, str):
        return f".{step}" if _KEY.fullmatch(step) else f"[{quoted(step)}]"
    return f"[{step}]" if isinstance(step, int) else f"[{expression_text(step)}]"


def _arguments(arguments: ast.Arguments) -> str:
    return "".join(f" {name}={expression_text(value)}" for name, value in arguments)
