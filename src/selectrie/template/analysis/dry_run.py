"""Renders a template without a model, to count its segments and to check values.

Every expression that does not depend on a slot is evaluated. If a slot decides which
branch comes next, each branch is tried; names whose values differ between branches are
undecided afterwards. A loop with an unknown number of passes is tried with one pass, of
which no value is known.

This is done twice. The first time counts, before any loop runs: it ignores errors, and
tries passes that cannot differ once. The second time checks every argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from selectrie.errors import TemplateError
from selectrie.options import MAX_SEGMENTS
from selectrie.template.analysis.static_checks import LOOP
from selectrie.template.syntax import ast
from selectrie.template.syntax.ast import error_at, visit_method
from selectrie.template.values.arguments import known_values
from selectrie.template.values.scope import (
    UNDECIDED,
    DeclaredNames,
    Scope,
    Undecided,
    evaluate,
    items_at,
    logprobs_names,
    names_in,
    refuse_input_name,
    truth_at,
)
from selectrie.template.values.sources import Sources
from selectrie.template.values.values import to_plain

MAX_COUNTED = 50_000
"""Maximum number of segments and passes of loops that counting tries.

Those beyond it are not counted.
"""
MAX_CHECKED = 100_000
"""Maximum number of segments and passes of loops that the check tries.

Anything beyond them is not checked.
"""


def try_values(
    document: ast.Document, documents: Mapping[str, ast.Document], sources: Sources, values: Mapping[str, object]
) -> None:
    """Raise the first `TemplateError` that rendering with these values may raise.

    That includes errors in branches that only a slot's value would select.
    """
    refuse_long(document, documents, values)
    _DryRun(documents, MAX_CHECKED, sources).body(document.body, Scope(values), document)


def refuse_long(document: ast.Document, documents: Mapping[str, ast.Document], values: Mapping[str, object]) -> None:
    """Raise `TemplateError` if loops over these values pass too many segments.

    The limit is `MAX_SEGMENTS`.
    """
    count = _DryRun(documents, MAX_COUNTED)
    scope, n_left = Scope(values), MAX_SEGMENTS
    for segment in document.body:
        n_left -= count.segment(segment, scope, document)
        if n_left < 0:
            raise too_long_error(document, segment, MAX_SEGMENTS)


def too_long_error(document: ast.Document, segment: ast.Segment, max_segments: int) -> TemplateError:
    """Return the error for a page of more than `max_segments` segments."""
    reason = f"the page passes more than {max_segments} segments; loop less, or render several pages"
    return error_at(document, segment.span, reason)


@dataclass(slots=True)
class _DryRun:
    """Executes segments without a model, and counts them.

    Each method returns the least number of segments that rendering executes.
    Afterwards the names that they declare have a value, or are undecided, in the
    scope.

    Attributes:
        documents: The included files by path.
        room: Number of segments and passes of loops that it may still execute.
        sources: Grammars, to check arguments; None if segments are only counted.
        is_sure: False once a number depended on a value that is not known.
        names: Names that a segment declares, by its id; they are found only once.
    """

    documents: Mapping[str, ast.Document]
    room: int
    sources: Sources | None = None
    is_sure: bool = True
    names: dict[int, DeclaredNames] = field(default_factory=dict)

    def body(self, body: ast.Body, scope: Scope, document: ast.Document) -> int:
        """Execute a body; return how many segments rendering executes at least."""
        return sum([self.segment(segment, scope, document) for segment in body])

    def segment(self, segment: ast.Segment, scope: Scope, document: ast.Document) -> int:
        """Execute one segment; return its count, with those of the segments inside it.

        The result is 0 once there is no `room`: what is not executed is not counted.
        """
        self.room -= 1
        if self.room < 0:
            return 0
        if self.sources is not None:
            if isinstance(segment, ast.Slot | ast.Block | ast.GenEach):
                refuse_input_name(segment, scope, document)
            if not isinstance(segment, ast.If):  # its conditions are evaluated one after the other
                known_values(segment, scope, document, self.sources)
        visit: Callable[..., int | None] | None = visit_method(self, segment)
        return 1 + ((visit(segment, scope, document) or 0) if visit is not None else 0)

    def evaluate_known(
        self, function: Callable[..., Any], expression: ast.Expression, scope: Scope, at: ast.Document
    ) -> Any:
        """Return `function` of an expression, or `UNDECIDED` if it is not known.

        `at` is the document that contains the expression.
        """
        try:
            return function(expression, scope, at)
        except Undecided:
            pass
        except TemplateError:
            if self.sources is not None:
                raise
        self.is_sure = False
        return UNDECIDED

    def visit_set(self, segment: ast.Set, scope: Scope, document: ast.Document) -> None:
        scope.assign(segment.name, self.evaluate_known(evaluate, segment.value, scope, document))

    def visit_slot(self, segment: ast.Slot, scope: Scope, _document: ast.Document) -> None:
        _undecide((segment.name.partition(".")[0], *logprobs_names(segment)), scope)

    def visit_joint(self, segment: ast.Joint, scope: Scope, document: ast.Document) -> None:
        self.body(segment.body, scope, document)  # rendering executes it as one segment

    def visit_block(self, segment: ast.Block, scope: Scope, document: ast.Document) -> int:
        """Execute the body; the block's name is undecided afterwards."""
        n = self.body(segment.body, scope, document)
        if segment.name is not None:
            _undecide([segment.name], scope)
        return n

    def visit_role(self, segment: ast.Role, scope: Scope, document: ast.Document) -> int:
        return self.body(segment.body, scope, document)

    def visit_include(self, segment: ast.Include, scope: Scope, _document: ast.Document) -> int:
        inner = self.documents[segment.path]
        return self.body(inner.body, scope, inner)

    def visit_if(self, segment: ast.If, scope: Scope, document: ast.Document) -> int:
        """Execute each branch that may be taken, and merge the values after them."""
        possible: list[ast.Body] = []
        for condition, body in segment.branches:
            holds = self.evaluate_known(truth_at, condition, scope, document)
            if holds:  # or undecided
                possible.append(body)
            if holds is True:
                break
        else:
            possible.append(segment.otherwise)
        if len(possible) == 1:
            return self.body(possible[0], scope, document)
        declared = self.names_of(segment)
        names = tuple(dict.fromkeys((*declared.decided, *declared.sets)))
        before = scope.snapshot(names)
        counts, ends = [], []
        for body in possible:
            scope.restore(names, before)
            counts.append(self.body(body, scope, document))
            ends.append(scope.snapshot(names))
        scope.restore(names, (_merge_branches(page for page, _ in ends), _merge_branches(own for _, own in ends)))
        return min(counts)

    def visit_each(self, segment: ast.Each, scope: Scope, document: ast.Document) -> int:
        """Execute the passes over the items, or one pass if they are not known."""
        items = self.evaluate_known(items_at, segment.items, scope, document)
        n = 0
        if items is UNDECIDED:
            self.execute_unknown_pass(segment, scope, document)
        elif not segment.body:
            n = len(items)
        elif items:
            n = self.execute_passes(segment, items, scope, document)
        _undecide(self.names_of(segment).decided, scope)
        return n

    def execute_passes(
        self, segment: ast.Each, items: list[tuple[object, object]], scope: Scope, document: ast.Document
    ) -> int:
        """Execute all passes of a loop.

        If only their number is wanted, and they cannot differ, one is executed and
        multiplied.
        """
        was_sure, self.is_sure = self.is_sure, True
        n_least, last = 0, len(items) - 1
        if self.sources is None:
            # Try a pass of which no value is known. If its count depends on none, all
            # passes have that count. Otherwise each is executed with its own values.
            names = self.names_of(segment).sets
            before = scope.snapshot(names)
            self.undecide_all(segment, scope)
            n_least = self.execute_pass(segment, _unknown_variables(segment), scope, document)
            if self.is_sure:  # anything still undecided was not set
                after = {name: value for name, value in scope.snapshot(names)[0].items() if value is not UNDECIDED}
                scope.restore(names, ({**before[0], **after}, before[1]))
                self.is_sure = was_sure
                return n_least * len(items)
            self.is_sure = True
            scope.restore(names, before)
        n = n_least * len(items)
        for at, (key, item) in enumerate(items):
            turn = {segment.variable: item, "@key": key, "@index": at, "@first": at == 0, "@last": at == last}
            n += max(0, self.execute_pass(segment, turn, scope, document) - n_least)
            if self.room < 0 or n > MAX_SEGMENTS:
                break
        self.is_sure = self.is_sure and was_sure
        return n

    def visit_geneach(self, segment: ast.GenEach, scope: Scope, document: ast.Document) -> int:
        """Execute the passes that are certain, and one more if their number is open."""
        arguments = dict(segment.arguments)
        num, least = (
            to_plain(self.evaluate_known(evaluate, arguments[name], scope, document)) if name in arguments else None
            for name in ("num", "min")
        )
        n, n_certain = 0, next((one for one in (num, least) if isinstance(one, int)), 0)
        for at in range(n_certain):
            last = {"@last": at == n_certain - 1} if num == n_certain else {}
            n += self.execute_pass(segment, {"@index": at, "@first": at == 0, **last}, scope, document)
            if self.room < 0:
                break
        if not isinstance(num, int):
            self.execute_unknown_pass(segment, scope, document)
        _undecide((*self.names_of(segment).decided, segment.name), scope)
        return n

    def execute_unknown_pass(self, segment: ast.Each | ast.GenEach, scope: Scope, document: ast.Document) -> None:
        """Execute one pass of a loop whose number of passes is unknown.

        The names that the pass sets are undecided afterwards.
        """
        self.execute_pass(segment, _unknown_variables(segment), scope, document)
        for name in self.names_of(segment).sets:
            scope.assign(name, UNDECIDED)

    def execute_pass(
        self, segment: ast.Each | ast.GenEach, variables: Mapping[str, object], scope: Scope, document: ast.Document
    ) -> int:
        """Execute one pass of a loop, with the loop's variables."""
        self.room -= 1
        return self.body(segment.body, scope.child(variables), document)

    def undecide_all(self, segment: ast.Segment, scope: Scope) -> None:
        """Make every name that a segment may declare undecided."""
        names = self.names_of(segment)
        _undecide(names.decided, scope)
        for name in names.sets:
            scope.assign(name, UNDECIDED)

    def names_of(self, segment: ast.Segment) -> DeclaredNames:
        """Return the names that a segment declares, found once."""
        if id(segment) not in self.names:
            self.names[id(segment)] = names_in((segment,), self.documents)
        return self.names[id(segment)]


def _unknown_variables(segment: ast.Each | ast.GenEach) -> dict[str, object]:
    """Return the variables of a loop's pass, all undecided."""
    own = (segment.variable, "@key") if isinstance(segment, ast.Each) else ()
    return dict.fromkeys((*own, *LOOP), UNDECIDED)


def _undecide(names: Iterable[str], scope: Scope) -> None:
    """Make names undecided in a scope."""
    for name in names:
        scope.set(name, UNDECIDED)


def _merge_branches(levels: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Merge the values of several branches.

    A name is undecided if its values differ between the branches.
    """
    ways = list(levels)
    names = dict.fromkeys(name for way in ways for name in way)
    return {
        name: ways[0][name] if all(name in way and way[name] is ways[0].get(name) for way in ways) else UNDECIDED
        for name in names
    }
