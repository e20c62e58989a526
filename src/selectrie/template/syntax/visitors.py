"""Going through segments: what stands in what. Nothing here recurses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from selectrie.template.syntax.ast import (
    Block,
    Body,
    Document,
    Each,
    GenEach,
    If,
    Include,
    Joint,
    Output,
    Role,
    Segment,
    Set,
    Slot,
)
from selectrie.template.syntax.expressions import Compare, Expression, ListOf, Logical, Not, Path


def bodies_of(segment: Segment) -> tuple[Body, ...]:
    """The bodies of a block, in the order written; a slot's are its choices."""
    if isinstance(segment, If):
        return (*(body for _, body in segment.branches), segment.otherwise)
    if isinstance(segment, Slot):
        return segment.choices or ()
    if isinstance(segment, Each | GenEach | Block | Joint | Role):
        return (segment.body,)
    return ()


def walk(body: Body) -> Iterator[tuple[Segment, int]]:
    """Every segment below, in the order of the source, and in how many blocks it stands."""
    pending = [(segment, 0) for segment in reversed(body)]
    while pending:
        segment, depth = pending.pop()
        yield segment, depth
        for inner in reversed(bodies_of(segment)):
            pending.extend((one, depth + 1) for one in reversed(inner))


def walk_through(body: Body, documents: Mapping[str, Document]) -> Iterator[Segment]:
    """Every segment below in the order of the page, those of included files too. documents: these files, by path."""
    pending = [*reversed(body)]
    while pending:
        segment = pending.pop()
        yield segment
        bodies = (documents[segment.path].body,) if isinstance(segment, Include) else bodies_of(segment)
        for inner in reversed(bodies):
            pending.extend(reversed(inner))


def expressions_of(segment: Segment) -> tuple[tuple[str, Expression], ...]:
    """The expressions of a tag itself with what each is for: an argument's name, or "value", "items", "condition"."""
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
    """Every path of an expression, those that say a place in another one included, in the order of the source."""
    pending: list[Expression] = [expression]
    while pending:
        one = pending.pop()
        if isinstance(one, Path):
            yield one
        pending.extend(reversed(parts_of(one)))


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that stand directly in one."""
    if isinstance(expression, Path):
        return tuple(step for step in expression.steps if not isinstance(step, str | int))
    if isinstance(expression, ListOf):
        return expression.items
    if isinstance(expression, Logical):
        return expression.operands
    if isinstance(expression, Not):
        return (expression.operand,)
    return (expression.left, expression.right) if isinstance(expression, Compare) else ()
