"""Visits segments and expressions without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from selectrie.template.syntax import ast


def bodies_of(segment: ast.Segment) -> tuple[ast.Body, ...]:
    """Return the bodies of a block in the order written; a slot's are its choices."""
    if isinstance(segment, ast.If):
        return (*(body for _, body in segment.branches), segment.otherwise)
    if isinstance(segment, ast.Slot):
        return segment.choices or ()
    if isinstance(segment, ast.Each | ast.GenEach | ast.Block | ast.Joint | ast.Role):
        return (segment.body,)
    return ()


def visit_method(visitor: object, segment: ast.Segment) -> Callable[..., None] | None:
    """Return the visitor's method for this kind of segment (`visit_slot`), or None."""
    method: Callable[..., None] | None = getattr(visitor, f"visit_{type(segment).__name__.lower()}", None)
    return method


def walk(body: ast.Body) -> Iterator[tuple[ast.Segment, int]]:
    """Yield every segment in a body in source order, with its depth in blocks.

    Segments in the bodies of blocks are included.
    """
    pending = [(segment, 0) for segment in reversed(body)]
    while pending:
        segment, depth = pending.pop()
        yield segment, depth
        for inner in reversed(bodies_of(segment)):
            pending.extend((one, depth + 1) for one in reversed(inner))


def walk_through(body: ast.Body, documents: Mapping[str, ast.Document]) -> Iterator[ast.Segment]:
    """Yield every segment in a body in page order, with those in blocks and includes.

    `documents` maps paths to the included files.
    """
    pending = [*reversed(body)]
    while pending:
        segment = pending.pop()
        yield segment
        bodies = (documents[segment.path].body,) if isinstance(segment, ast.Include) else bodies_of(segment)
        for inner in reversed(bodies):
            pending.extend(reversed(inner))


def expressions_of(segment: ast.Segment) -> tuple[tuple[str, ast.Expression], ...]:
    """Return the expressions of a tag itself as pairs (purpose, expression).

    Those in its body are not included.

    The purpose is an argument's name, or "value", "items", "condition" or "role".
    """
    if isinstance(segment, ast.Output | ast.Set):
        return (("value", segment.value),)
    if isinstance(segment, ast.If):
        return tuple(("condition", condition) for condition, _ in segment.branches)
    if isinstance(segment, ast.Role):
        return () if isinstance(segment.role, str) else (("role", segment.role),)
    if isinstance(segment, ast.Each):
        return (("items", segment.items), *segment.arguments)
    if isinstance(segment, ast.Slot | ast.GenEach | ast.Block | ast.Joint):
        return segment.arguments
    return ()


def paths_in(expression: ast.Expression) -> Iterator[ast.Path]:
    """Yield every path of an expression in source order.

    Paths inside the steps of other paths are included.
    """
    pending: list[ast.Expression] = [expression]
    while pending:
        one = pending.pop()
        if isinstance(one, ast.Path):
            yield one
        pending.extend(reversed(parts_of(one)))


def parts_of(expression: ast.Expression) -> tuple[ast.Expression, ...]:
    """Return the direct subexpressions of an expression."""
    if isinstance(expression, ast.Path):
        return tuple(step for step in expression.steps if not isinstance(step, str | int))
    if isinstance(expression, ast.ListOf):
        return expression.items
    if isinstance(expression, ast.Logical):
        return expression.operands
    if isinstance(expression, ast.Not):
        return (expression.operand,)
    return (expression.left, expression.right) if isinstance(expression, ast.Compare) else ()
