"""The tree of a template, which the parser makes.

The tree is immutable. Segments are the text and tags of a template; expressions are the
values in tags. Both are only data: nothing is called, and no attribute is read.
Equality ignores source positions, so that a template that is printed and read again is
equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


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
