"""Define the template tree that the parser makes and everything else uses.

The tree is immutable and its nodes have source spans. Spans are left out of equality,
so that a template printed and read again is equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from selectrie.template.syntax.expressions import NOWHERE, Expression, Span

Arguments: TypeAlias = tuple[tuple[str, Expression], ...]
"""Named arguments of a tag, in the order written.

Every name occurs once, and the tag accepts it (`tags.TAGS`).
"""

Body: TypeAlias = "tuple[Segment, ...]"


@dataclass(frozen=True, slots=True)
class Literal:
    """Text that appears on the page as it is; never empty.

    Escapes have been replaced, and white space has been trimmed at a `~`.
    """

    text: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment, `<<! … >>`, which is not part of the page."""

    text: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Output:
    """A value as text: `<<name>>`."""

    value: Expression
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Slot:
    """A position where the model decides.

    Attributes:
        kind: "select", "gen" or "beam".
        name: Name of its value: "armor", "this", "this.name".
        arguments: Arguments of the tag.
        choices: Choices of the block form, each made of `Literal`s and `Output`s; an
            empty body is the empty text. None if arguments define the choices.
    """

    kind: str
    name: str
    arguments: Arguments = ()
    choices: tuple[Body, ...] | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Set:
    """A named value: `<<set 'name' value>>`; not part of the page."""

    name: str
    value: Expression
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Include:
    """The segments of another file of the search path: `<<include 'file.tmpl'>>`.

    They run in the same scope.
    """

    path: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Each:
    """A loop, `<<#each items>>`, over a list or over the values of a mapping.

    The body runs once for each item, which is named `this`, or `variable` in
    `<<#each items as item>>`. The only argument is `join`, the text between two items.
    """

    items: Expression
    body: Body
    variable: str = "this"
    arguments: Arguments = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class GenEach:
    """A loop that generates a list: `<<#geneach 'items' num=3 join=', '>>`.

    The body runs repeatedly. The values of its slots `this` (or `this.field`) become an
    item of the list `name`.
    """

    name: str
    body: Body
    arguments: Arguments = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class If:
    """The body of the first true condition, else `otherwise`.

    `<<#unless x>>` is `If` of `Not(x)`.
    """

    branches: tuple[tuple[Expression, Body], ...]
    otherwise: Body = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """A section of the page: `<<#block>>`.

    Attributes:
        body: Its segments.
        name: Name of its text, or None.
        arguments: `hidden`.
    """

    body: Body
    name: str | None = None
    arguments: Arguments = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Joint:
    """A block whose selects are decided together: `<<#joint>>`.

    Attributes:
        body: `Literal`, `Output`, `Comment` and `Slot`s of kind "select" only.
        arguments: `k` and `budget`.
    """

    body: Body
    arguments: Arguments = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Role:
    """A turn of a chat, rendered by the model's chat template.

    The tags are `<<#system>>`, `<<#user>>`, `<<#assistant>>` and `<<#role 'name'>>`.
    `role` is the role's name, or an expression for it: `<<#role message.role>>`.
    """

    role: str | Expression
    body: Body
    span: Span = field(default=NOWHERE, compare=False)


Segment: TypeAlias = Literal | Comment | Output | Slot | Set | Include | Each | GenEach | If | Block | Joint | Role


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed source.

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
