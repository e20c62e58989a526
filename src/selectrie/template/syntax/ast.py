"""A template as data: what the parser makes and everything else works on. Immutable trees with source spans.

Spans are left out of equality, so that a template printed and read again is equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from selectrie.template.syntax.expressions import NOWHERE, Expression, Span

Arguments: TypeAlias = tuple[tuple[str, Expression], ...]
"""Named arguments of a tag, in the order written; every name once, each one that the tag knows (`tags.TAGS`)."""

Body: TypeAlias = "tuple[Segment, ...]"


@dataclass(frozen=True, slots=True)
class Literal:
    """Text that stands on the page as it is: escapes read, white space trimmed where a `~` says so. Never empty."""

    text: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Comment:
    """`<<! … >>`; no part of the page."""

    text: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Output:
    """`<<name>>`: a value as text."""

    value: Expression
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the model decides. kind: "select", "gen" or "beam".

    name: what its value is called: "armor", "this", "this.name". choices: of the block form, `Literal`s and `Output`s each (empty: the empty text); None
    where arguments say what may stand there.
    """

    kind: str
    name: str
    arguments: Arguments = ()
    choices: tuple[Body, ...] | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Set:
    """`<<set 'name' value>>`: names a value; no part of the page."""

    name: str
    value: Expression
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Include:
    """`<<include 'file.tmpl'>>`: the segments of another file of the search path, in the same scope."""

    path: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Each:
    """`<<#each items>>`: the body once for each item of a list (or value of a mapping), which it names `this`, or `variable`
    (`<<#each items as item>>`). arguments: join (text between two)."""

    items: Expression
    body: Body
    variable: str = "this"
    arguments: Arguments = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class GenEach:
    """`<<#geneach 'items' num=3 join=', '>>`: the body again and again; what its slots `this` (or `this.field`) hold becomes an
    item of the list `name`."""

    name: str
    body: Body
    arguments: Arguments = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class If:
    """The body of the first condition that is true, else `otherwise`. `<<#unless x>>` is `If` of `Not(x)`."""

    branches: tuple[tuple[Expression, Body], ...]
    otherwise: Body = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """`<<#block>>`: a stretch of the page. name: what its text is called, or None. arguments: hidden."""

    body: Body
    name: str | None = None
    arguments: Arguments = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Joint:
    """`<<#joint>>`: its selects are decided together. arguments: k, budget. Its body has `Literal`, `Output`, `Comment` and
    `Slot`s of kind "select" alone."""

    body: Body
    arguments: Arguments = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Role:
    """`<<#system>>`, `<<#user>>`, `<<#assistant>>`, `<<#role 'name'>>`: a turn of a chat, by the model's own chat template.

    role: its name, or an expression that says it: `<<#role message.role>>`.
    """

    role: str | Expression
    body: Body
    span: Span = field(default=NOWHERE, compare=False)


Segment: TypeAlias = Literal | Comment | Output | Slot | Set | Include | Each | GenEach | If | Block | Joint | Role


@dataclass(frozen=True, slots=True)
class Document:
    """One source, read. name: of the file, for errors, or "<template>". dialect: "selectrie" or "handlebars"."""

    name: str
    source: str
    body: Body
    dialect: str = "selectrie"
