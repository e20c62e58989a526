"""Visit segments and expressions without recursion."""

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
    """Return the bodies of a block in the order written; a slot's are its choices."""
    if isinstance(segment, If):
        return (*(body for _, body in segment.branches), segment.otherwise)
    if isinstance(segment, Slot):
        return segment.choices or ()
    if isinstance(segment, Each | GenEach | Block | Joint | Role):
        return (segment.body,)
    return ()


def walk(body: Body) -> Iterator[tuple[Segment, int]]:
    """Yield every segment below in source order, with its depth in blocks."""
    pending = [(segment, 0) for segment in reversed(body)]
    while pending:
        segment, depth = pending.pop()
        yield segment, depth
        for inner in reversed(bodies_of(segment)):
            pending.extend((one, depth + 1) for one in reversed(inner))


def walk_through(body: Body, documents: Mapping[str, Document]) -> Iterator[Segment]:
    """Yield every segment below in page order, including those of included files.

    documents: the included files, by path.
    """
    pending = [*reversed(body)]
    while pending:
        segment = pending.pop()
        yield segment
        bodies = (documents[segment.path].body,) if isinstance(segment, Include) else bodies_of(segment)
        for inner in reversed(bodies):
            pending.extend(reversed(inner))


def expressions_of(segment: Segment) -> tuple[tuple[str, Expression], ...]:
    """Return the expressions of a tag itself, each with its purpose.

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
