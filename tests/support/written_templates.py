"""Templates written out from their segments, so that they can be read again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selectrie.template.syntax import ast
from selectrie.template.syntax.tags import DIALECTS, TemplateDialect

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"})
_ANY, _ALL, _NOT, _COMPARE, _OPERAND = range(5)


def written(document: ast.Document) -> str:
    """The text of a document in its dialect; `parse` gives the same segments. Parentheses stand only where they are needed."""
    return "".join(_pieces(document.body, DIALECTS[document.dialect], ends=True))


def _pieces(body: ast.Body, dialect: TemplateDialect, *, ends: bool = False) -> Iterator[str]:
    """The text of a body. ends: does the source end after it?"""
    for left, segment in zip(range(len(body), 0, -1), body, strict=True):
        if isinstance(segment, ast.Literal):
            yield _escaped(segment.text, dialect.opens, before_tag=not ends or left > 1)
            continue
        for tag, inner in _tags(segment):
            yield dialect.tag(tag)
            yield from _pieces(inner, dialect)


def _escaped(text: str, opens: str, *, before_tag: bool) -> str:
    """Text with its opening delimiters escaped, and backslashes doubled where they would escape what follows."""

    def one(match: re.Match[str]) -> str:
        if match[2]:
            return match[1] * 2 + "\\" + opens
        return match[1] * 2 + match[3] if before_tag else match[0]

    first = re.escape(opens[0])
    return re.sub(rf"(?<!\\)(\\*)(?:({first}{first})|({first}?)\Z)", one, text)


def _tags(segment: ast.Segment) -> list[tuple[str, ast.Body]]:
    """The tags of a segment, each with the body behind it."""
    match segment:
        case ast.Comment(text):
            tag = f"!--{text}--"
        case ast.Output(value):
            tag = expression_text(value)
        case ast.Set(name, value):
            tag = f"set {_quoted(name)} {expression_text(value)}"
        case ast.Include(path):
            tag = f"include {_quoted(path)}"
        case ast.Slot(kind, name, arguments, None):
            tag = f"{kind} {_quoted(name)}{_arguments(arguments)}"
        case ast.Slot(kind, name, arguments, choices):
            heads = [f"#{kind} {_quoted(name)}{_arguments(arguments)}", *["or"] * (len(choices) - 1)]
            return [*zip(heads, choices, strict=True), (f"/{kind}", ())]
        case ast.If(branches, otherwise):
            heads = ["#if", *["elif"] * (len(branches) - 1)]
            tags = [(f"{head} {expression_text(one)}", body) for head, (one, body) in zip(heads, branches, strict=True)]
            return [*tags, ("else", otherwise), ("/if", ())]
        case _:
            head = _head(segment)
            return [(f"#{head}", segment.body), (f"/{head.partition(' ')[0]}", ())]
    return [(tag, ())]


def _head(block: ast.Each | ast.GenEach | ast.Block | ast.Joint | ast.Role) -> str:
    """What stands in the opening tag of a block, after the `#`."""
    match block:
        case ast.Each(items, _, variable, arguments):
            named = "" if variable == "this" else f" as {variable}"
            return f"each {expression_text(items)}{named}{_arguments(arguments)}"
        case ast.GenEach(name, _, arguments):
            return f"geneach {_quoted(name)}{_arguments(arguments)}"
        case ast.Block(_, called, arguments):
            return f"block{'' if called is None else ' ' + _quoted(called)}{_arguments(arguments)}"
        case ast.Joint(_, arguments):
            return f"joint{_arguments(arguments)}"
        case ast.Role(role):
            return f"role {_quoted(role)}" if isinstance(role, str) else f"role name={expression_text(role)}"


def expression_text(expression: ast.Expression, around: int = _ANY) -> str:
    """An expression, in parentheses if the one around it binds more tightly."""
    match expression:
        case ast.Constant(str(value)):
            return _quoted(value)
        case ast.Constant(value):
            return str(value).lower()
        case ast.Path(name, steps):
            return name + "".join(f"[{_step(step)}]" for step in steps)
        case ast.ListOf(items):
            return f"[{', '.join(map(expression_text, items))}]"
        case ast.Not(operand):
            own, text = _NOT, f"not {expression_text(operand, _NOT)}"
        case ast.Compare(operator, left, right):
            own = _COMPARE
            text = f"{expression_text(left, _OPERAND)} {operator} {expression_text(right, _OPERAND)}"
        case ast.Logical(operator, operands):
            own = _ANY if operator == "or" else _ALL
            text = f" {operator} ".join(expression_text(one, own + 1) for one in operands)
    return f"({text})" if own < around else text


def _step(step: str | int | ast.Expression) -> str:
    if isinstance(step, str):
        return _quoted(step)
    return str(step) if isinstance(step, int) else expression_text(step)


def _quoted(text: str) -> str:
    return f"'{text.translate(_ESCAPES)}'"


def _arguments(arguments: ast.Arguments) -> str:
    return "".join(f" {name}={expression_text(value)}" for name, value in arguments)
