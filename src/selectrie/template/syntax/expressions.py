"""Define the expressions of tags: names, constants, lists and comparisons.

They are only data: nothing is called, and no attribute is read. Expressions are
immutable trees. Their spans are left out of equality, so that a template printed and
read again is equal.
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
class Constant:
    """A constant as written: text, a number, true, false, none."""

    value: str | int | float | bool | None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Path:
    """A value by name, or a part of it: `data.items[0]`, `this`, `@index`.

    Attributes:
        name: Name of a given value, of an earlier slot, or of a loop ("this", "@index",
            "@first", "@last", "@key").
        steps: Keys of mappings and indices of lists, or expressions for them
            (`labels[lang]`).
    """

    name: str
    steps: tuple[str | int | Expression, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of values: `["ranger", "wizard", class]`."""

    items: tuple[Expression, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of the operand's truth."""

    operand: Expression
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Logical:
    """A conjunction or disjunction of two or more operands.

    `operator` is "and" or "or". Evaluation stops at the first operand that decides.
    """

    operator: str
    operands: tuple[Expression, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison. `operator` is one of `OPERATORS`."""

    operator: str
    left: Expression
    right: Expression
    span: Span = field(default=NOWHERE, compare=False)


OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
Expression: TypeAlias = Constant | Path | ListOf | Not | Logical | Compare
