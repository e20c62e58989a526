"""Renders a template without a model, to check values.

Every expression that does not depend on a slot is evaluated, and every argument is
checked. If a slot decides which branch comes next, each branch is tried; names whose
values differ between branches are undecided afterwards. A loop with an unknown number
of passes is tried with one pass, of which no value is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from selectrie.template.analysis.segment_counts import refuse_long
from selectrie.template.analysis.static_checks import LOOP
from selectrie.template.syntax import ast
from selectrie.template.syntax.visitors import visit_method
from selectrie.template.values.declared_names import logprobs_names, names_in, refuse_input_name
from selectrie.template.values.scope import UNDECIDED, Scope, Snapshot, Undecided, items_at, truth_at
from selectrie.template.values.sources import Sources
from selectrie.template.values.tag_values import known_values
from selectrie.template.values.values import plain

MAX_SEGMENTS = 100_000
"""Maximum number of segments and turns of loops that are tried.

Anything beyond them is not checked.
"""


def try_values(
    document: ast.Document, documents: Mapping[str, ast.Document], sources: Sources, values: Mapping[str, object]
) -> None:
    """Raise the first `TemplateError` that rendering with these values may raise.

    That includes errors in branches that only a slot's value would select.
    """
    refuse_long(document, documents, values)
    try:
        _DryRun(documents, sources, MAX_SEGMENTS).body(document.body, Scope(values), document)
    except _EnoughError:
        return


class _EnoughError(Exception):
    """Raised when the maximum number of segments was tried; the rest is not checked."""


@dataclass(slots=True)
class _DryRun:
    documents: Mapping[str, ast.Document]
    sources: Sources
    room: int

    def body(self, body: ast.Body, scope: Scope, document: ast.Document) -> None:
        for segment in body:
            visit = visit_method(self, segment)
            if visit is not None:
                self.spend()
                visit(segment, scope, document)

    def spend(self) -> None:
        """Count one segment, or one pass of a loop, whose body may count nothing."""
        self.room -= 1
        if self.room < 0:
            raise _EnoughError

    def values(self, segment: ast.Segment, scope: Scope, document: ast.Document) -> dict[str, object]:
        """Check the expressions of a tag and return the values that are known."""
        return known_values(segment, scope, document, self.sources)

    def visit_output(self, segment: ast.Output, scope: Scope, document: ast.Document) -> None:
        self.values(segment, scope, document)

    def visit_set(self, segment: ast.Set, scope: Scope, document: ast.Document) -> None:
        scope.assign(segment.name, self.values(segment, scope, document).get("value", UNDECIDED))

    def visit_slot(self, segment: ast.Slot, scope: Scope, document: ast.Document) -> None:
        refuse_input_name(segment, scope, document)
        self.values(segment, scope, document)
        _undecide((segment.name.partition(".")[0], *logprobs_names(segment)), scope)

    def visit_block(self, segment: ast.Block, scope: Scope, document: ast.Document) -> None:
        refuse_input_name(segment, scope, document)
        self.values(segment, scope, document)
        self.body(segment.body, scope, document)
        if segment.name is not None:
            _undecide([segment.name], scope)

    def visit_role(self, segment: ast.Role | ast.Joint, scope: Scope, document: ast.Document) -> None:
        self.values(segment, scope, document)
        self.body(segment.body, scope, document)

    visit_joint = visit_role

    def visit_include(self, segment: ast.Include, scope: Scope, _document: ast.Document) -> None:
        inner = self.documents[segment.path]
        self.body(inner.body, scope, inner)

    def visit_if(self, segment: ast.If, scope: Scope, document: ast.Document) -> None:
        possible: list[ast.Body] = []
        for condition, body in segment.branches:
            try:
                holds = truth_at(condition, scope, document)
            except Undecided:
                possible.append(body)
                continue
            if holds:
                possible.append(body)
                break
        else:
            possible.append(segment.otherwise)
        if len(possible) == 1:
            self.body(possible[0], scope, document)
            return
        branch_names = [names_in(body, self.documents) for body in possible]
        names = tuple(dict.fromkeys(name for one in branch_names for name in (*one.decided, *one.sets)))
        before = scope.snapshot(names)
        ends: list[Snapshot] = []
        for body in possible:
            scope.restore(names, before)
            self.body(body, scope, document)
            ends.append(scope.snapshot(names))
        scope.restore(names, (_merged(page for page, _ in ends), _merged(own for _, own in ends)))

    def visit_each(self, segment: ast.Each, scope: Scope, document: ast.Document) -> None:
        values = self.values(segment, scope, document)
        if "items" not in values:
            unknown = dict.fromkeys((segment.variable, "@key", *LOOP), UNDECIDED)
            self.unknown_turn(segment, unknown, scope, document)
        else:
            items = items_at(segment.items, scope, document)
            for at, (key, item) in enumerate(items):
                self.spend()
                turn = {"@index": at, "@first": at == 0, "@last": at == len(items) - 1, "@key": key}
                self.body(segment.body, scope.child({**turn, segment.variable: item}), document)
        _undecide(names_in(segment.body, self.documents).decided, scope)

    def visit_geneach(self, segment: ast.GenEach, scope: Scope, document: ast.Document) -> None:
        refuse_input_name(segment, scope, document)
        values = self.values(segment, scope, document)
        num = _count(values.get("num"))
        for at in range(_count(values.get("min")) or 0 if num is None else num):
            self.spend()
            last = {} if num is None else {"@last": at == num - 1}
            self.body(segment.body, scope.child({"@index": at, "@first": at == 0, **last}), document)
        if num is None:
            self.unknown_turn(segment, dict.fromkeys(LOOP, UNDECIDED), scope, document)
        _undecide((*names_in(segment.body, self.documents).decided, segment.name), scope)

    def unknown_turn(
        self, segment: ast.Each | ast.GenEach, variables: Mapping[str, object], scope: Scope, document: ast.Document
    ) -> None:
        """Try one pass of a loop whose number of passes is unknown.

        The names that the pass sets are undecided afterwards.
        """
        self.body(segment.body, scope.child(variables), document)
        for name in names_in(segment.body, self.documents).sets:
            scope.assign(name, UNDECIDED)


def _count(value: object) -> int | None:
    number = plain(value)
    return number if isinstance(number, int) else None


def _undecide(names: Iterable[str], scope: Scope) -> None:
    for name in names:
        scope.set(name, UNDECIDED)


def _merged(levels: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Merge the values of several branches.

    A name is undecided if its values differ between the branches.
    """
    ways = list(levels)
    names = dict.fromkeys(name for way in ways for name in way)
    return {
        name: ways[0][name] if all(name in way and way[name] is ways[0].get(name) for way in ways) else UNDECIDED
        for name in names
    }
