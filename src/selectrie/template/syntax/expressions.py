"""What stands in a tag where a value is wanted: names, constants, comparisons. Data; nothing is called, no attribute is read.

Expressions are immutable trees. Their spans are left out of equality, so that a template printed and read again is equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `stop` of a source."""

    start: int
    stop: int


NOWHERE = Span(0, 0)
"""Of what was made without a source."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A value as written: text, a number, true, false, none."""

    value: str | int | float | bool | None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Path:
    """A value by name, and where in it: `data.items[0]`, `this`, `@index`.

    name: of a given value, of an earlier slot, or of a loop ("this", "@index", "@first", "@last", "@key"). steps: keys of mappings and places of lists,
    or expressions that say them (`labels[lang]`).
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
    """Is the operand false?"""

    operand: Expression
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Logical:
    """operator: "and" or "or", of two or more operands; the first that decides is the last looked at."""

    operator: str
    operands: tuple[Expression, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """operator: one of `OPERATORS`."""

    operator: str
    left: Expression
    right: Expression
    span: Span = field(default=NOWHERE, compare=False)


OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
Expression: TypeAlias = Constant | Path | ListOf | Not | Logical | Compare
