"""The tree of a template, walks over it, and its positions in the source.

The parser makes the tree, which is immutable. Segments are the text and tags of a
template; expressions are the values in tags. Both are only data: nothing is called, and
no attribute is read. Equality ignores source positions, so that a template that is
printed and read again is equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from selectrie.errors import MessageText, RequestError, TemplateError, clip


@dataclass(frozen=True, slots=True)
class Span:
    """The characters from `start` up to, but not including, `stop` of a source."""

    start: int
    stop: int


NOWHERE = Span(0, 0)
"""Span of a node that was made without a source."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the tree, with its position in the source."""

    span: Span = field(default=NOWHERE, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Constant(_Node):
    """A constant expression: a text, a number, true, false or none."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Path(_Node):
    """An expression for a named value, or a part of one: `data.items[0]`, `@index`.

    Attributes:
        name: Name of a given value, of an earlier slot, or of a loop ("this", "@index",
            "@first", "@last", "@key").
        steps: Keys of mappings and indices of lists, or expressions for them
            (`labels[lang]`).
    """

    name: str
    steps: tuple[str | int | Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class ListOf(_Node):
    """An expression for a list of values: `["ranger", "wizard", class]`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(_Node):
    """An expression for the negation of the operand's truth."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Logical(_Node):
    """An expression for the conjunction or disjunction of two or more operands.

    `operator` is "and" or "or". Evaluation stops at the first operand that decides.
    """

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Compare(_Node):
    """An expression for a comparison.

    `operator` is ==, !=, <, <=, >, >=, "in" or "not in".
    """

    operator: str
    left: Expression
    right: Expression


Expression: TypeAlias = Constant | Path | ListOf | Not | Logical | Compare

Arguments: TypeAlias = tuple[tuple[str, Expression], ...]
"""Named arguments of a tag, in the order written.

Every name occurs once, and the tag accepts it (`tags.TAGS`).
"""

Body: TypeAlias = "tuple[Segment, ...]"


@dataclass(frozen=True, slots=True)
class Literal(_Node):
    """A segment of text that appears on the page as it is; never empty.

    Escapes have been replaced, and white space has been trimmed at a `~`.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Comment(_Node):
    """A comment tag, `<<! … >>`, which is not part of the page."""

    text: str


@dataclass(frozen=True, slots=True)
class Output(_Node):
    """A tag that writes a value to the page as text: `<<name>>`."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Slot(_Node):
    """A tag whose value the model decides.

    Attributes:
        kind: "select", "gen" or "beam".
        name: Name of the slot's value: "armor", "this", "this.name".
        arguments: Arguments of the tag.
        choices: Choices of the block form, each made of `Literal`s and `Output`s; an
            empty body is the empty text. None if arguments define the choices.
    """

    kind: str
    name: str
    arguments: Arguments = ()
    choices: tuple[Body, ...] | None = None


@dataclass(frozen=True, slots=True)
class Set(_Node):
    """A tag that names a value, `<<set 'name' value>>`; it is not part of the page."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Include(_Node):
    """A tag that inserts another file of the search path: `<<include 'file.tmpl'>>`.

    The segments of that file are executed in the same scope.
    """

    path: str


@dataclass(frozen=True, slots=True)
class Each(_Node):
    """A loop, `<<#each items>>`, over a list or over the values of a mapping.

    The body runs once for each item, which is named `this`, or `variable` in
    `<<#each items as item>>`. The only argument is `join`, the text between two items.
    """

    items: Expression
    body: Body
    variable: str = "this"
    arguments: Arguments = ()


@dataclass(frozen=True, slots=True)
class GenEach(_Node):
    """A loop that generates a list: `<<#geneach 'items' num=3 join=', '>>`.

    The body runs repeatedly. The values of its slots `this` (or `this.field`) become an
    item of the list `name`.
    """

    name: str
    body: Body
    arguments: Arguments = ()


@dataclass(frozen=True, slots=True)
class If(_Node):
    """A block that executes the body of the first true condition, else `otherwise`.

    `<<#unless x>>` is `If` of `Not(x)`.
    """

    branches: tuple[tuple[Expression, Body], ...]
    otherwise: Body = ()


@dataclass(frozen=True, slots=True)
class Block(_Node):
    """A section of the page: `<<#block>>`.

    Attributes:
        body: Its segments.
        name: Name of its text, or None.
        arguments: The argument `hidden`, if given.
    """

    body: Body
    name: str | None = None
    arguments: Arguments = ()


@dataclass(frozen=True, slots=True)
class Joint(_Node):
    """A block whose selects are decided together: `<<#joint>>`.

    Attributes:
        body: Its segments: `Literal`, `Output`, `Comment`, and `Slot` of kind "select".
        arguments: The arguments `k` and `budget`, if given.
    """

    body: Body
    arguments: Arguments = ()


@dataclass(frozen=True, slots=True)
class Role(_Node):
    """A turn of a chat, rendered by the model's chat template.

    The tags are `<<#system>>`, `<<#user>>`, `<<#assistant>>` and `<<#role 'name'>>`.
    `role` is the role's name, or an expression for it: `<<#role message.role>>`.
    """

    role: str | Expression
    body: Body


Segment: TypeAlias = Literal | Comment | Output | Slot | Set | Include | Each | GenEach | If | Block | Joint | Role


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed template or included file.

    Attributes:
        name: Name of the file, for errors, or "<template>".
        source: The text.
        body: Its segments.
        dialect: "selectrie" or "handlebars".
    """

    name: str
    source: str
    body: Body
    dialect: str = "selectrie"


def bodies_of(segment: Segment) -> tuple[Body, ...]:
    """Return the bodies inside a segment, in the order written.

    The bodies of a slot are its choices.
    """
    if isinstance(segment, If):
        return (*(body for _, body in segment.branches), segment.otherwise)
    if isinstance(segment, Slot):
        return segment.choices or ()
    if isinstance(segment, Each | GenEach | Block | Joint | Role):
        return (segment.body,)
    return ()


def visit_method(visitor: object, segment: Segment) -> Callable[..., None] | None:
    """Return a visitor's method for a segment (`visit_slot`), or None if missing."""
    method: Callable[..., None] | None = getattr(visitor, f"visit_{type(segment).__name__.lower()}", None)
    return method


def walk(body: Body) -> Iterator[tuple[Segment, int]]:
    """Yield every segment in a body in source order, with its depth in blocks.

    Segments in the bodies of blocks are included.
    """
    pending = [(segment, 0) for segment in reversed(body)]
    while pending:
        segment, depth = pending.pop()
        yield segment, depth
        for inner in reversed(bodies_of(segment)):
            pending.extend((one, depth + 1) for one in reversed(inner))


def walk_through(body: Body, documents: Mapping[str, Document]) -> Iterator[Segment]:
    """Yield every segment in a body in page order, with those in blocks and includes.

    `documents` maps paths to the included files.
    """
    pending = [*reversed(body)]
    while pending:
        segment = pending.pop()
        yield segment
        bodies = (documents[segment.path].body,) if isinstance(segment, Include) else bodies_of(segment)
        for inner in reversed(bodies):
            pending.extend(reversed(inner))


def expressions_of(segment: Segment) -> tuple[tuple[str, Expression], ...]:
    """Return the expressions of a tag itself as pairs (purpose, expression).

    Those in its body are not included.

    The purpose is an argument's name, or "value", "items", "condition" or "role".
    """
    if isinstance(segment, Output | Set):
        return (("value", segment.value),)
    if isinstance(segment, If):
        return tuple(("condition", condition) for condition, _ in segment.branches)
    if isinstance(segment, Role):
        return () if isinstance(segment.role, str) else (("role", segment.role),)
    if isinstance(segment, Each):
        return (("items", segment.items), *segment.arguments)
    if isinstance(segment, Slot | GenEach | Block | Joint):
        return segment.arguments
    return ()


def paths_in(expression: Expression) -> Iterator[Path]:
    """Yield every path of an expression in source order.

    Paths inside the steps of other paths are included.
    """
    pending: list[Expression] = [expression]
    while pending:
        one = pending.pop()
        if isinstance(one, Path):
            yield one
        pending.extend(reversed(parts_of(one)))


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct subexpressions of an expression."""
    if isinstance(expression, Path):
        return tuple(step for step in expression.steps if not isinstance(step, str | int))
    if isinstance(expression, ListOf):
        return expression.items
    if isinstance(expression, Logical):
        return expression.operands
    if isinstance(expression, Not):
        return (expression.operand,)
    return (expression.left, expression.right) if isinstance(expression, Compare) else ()


class Refused(Exception):
    """Raised inside this package for a source that cannot be parsed.

    Callers of the package get a `TemplateError` instead.

    Attributes:
        offset: Offset of the character at which parsing failed.
        reason: The reason. `{tag}` and `{line}` in it stand for the tag `about` and its
            line.
        about: A tag that the reason mentions, or None.
    """

    def __init__(self, offset: int, reason: str, about: Span | None = None) -> None:
        self.offset, self.reason, self.about = offset, reason, about
        super().__init__(reason)

    def error(self, source: str, name: str) -> TemplateError:
        """Return the error as a `TemplateError` with a position in `source`."""
        reason = self.reason
        if self.about is not None:
            tag = " ".join(source[self.about.start : self.about.stop].split())
            line, _ = line_and_column(source, self.about.start)
            reason = reason.replace("{line}", str(line)).replace("{tag}", clip(tag, 60))
        return error_in(source, name, self.offset, reason)


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Return line and column of a character.

    Both count from 1, the column in characters. A line ends at its line feed.
    """
    offset = max(0, min(offset, len(source)))
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def error_in(source: str, name: str, offset: int, reason: str) -> TemplateError:
    """Return the error at character `offset` of the source called `name`."""
    offset = max(0, min(offset, len(source)))
    line, column = line_and_column(source, offset)
    stop = source.find("\n", offset)
    excerpt = source[offset - column + 1 : len(source) if stop < 0 else stop].rstrip("\r")
    return TemplateError(reason, name=name, line=line, column=column, excerpt=excerpt)


def error_at(document: Document, span: Span, reason: str) -> TemplateError:
    """Return the error for a span of a document.

    It has the document's name, line and column, and the line with a caret.
    """
    return error_in(document.source, document.name, span.start, reason)


@contextmanager
def report_at(document: Document, span: Span) -> Iterator[None]:
    """Add the position of a span to template errors raised in the `with` block.

    Errors that have a position keep it.
    """
    try:
        yield
    except TemplateError as error:
        if error.line is not None:
            raise
        raise error_at(document, span, error.reason) from error.__cause__
    except RequestError as error:
        raise error_at(document, span, MessageText(*error.args).worded(str)) from error


def where(document: Document, span: Span) -> str:
    """Return the position of a span as file:line:column."""
    line, column = line_and_column(document.source, span.start)
    return f"{document.name}:{line}:{column}"
