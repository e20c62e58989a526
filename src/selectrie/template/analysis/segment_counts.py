"""Computes a lower bound on the number of segments that rendering a page executes.

It is computed from the items of the page's loops, before any of them runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from selectrie.errors import TemplateError
from selectrie.template.analysis.static_checks import LOOP
from selectrie.template.syntax.ast import Block, Body, Document, Each, If, Include, Role, Segment, Set
from selectrie.template.syntax.source_positions import error_at
from selectrie.template.values.declared_names import Names, names_in
from selectrie.template.values.scope import UNDECIDED, Scope, Undecided, evaluate, items_at, truth_at

MAX_STEPS = 2_000_000
"""Maximum number of segments that one page may pass.

Repeated ones count each time.
"""
MAX_VISITS = 50_000
"""Maximum number of segments and turns that counting looks at.

Those beyond it are not counted.
"""


def refuse_long(document: Document, documents: Mapping[str, Document], values: Mapping[str, object]) -> None:
    """Raise `TemplateError` if loops over these values execute too many segments.

    The limit is `MAX_STEPS`.
    """
    count = _Count(documents, MAX_VISITS)
    scope, n_left = Scope(values), MAX_STEPS
    for segment in document.body:
        n_left -= count.segment(segment, scope, document)
        if n_left < 0:
            raise too_long(document, segment)


def too_long(document: Document, segment: Segment) -> TemplateError:
    """Return the error for a page of too many segments."""
    reason = f"the page passes more than {MAX_STEPS} segments; loop less, or render several pages"
    return error_at(document, segment.span, reason)


@dataclass(slots=True)
class _Count:
    """Computes lower bounds of numbers of segments.

    Attributes:
        is_sure: Set to False when a count depended on a value that is not known.
    """

    documents: Mapping[str, Document]
    room: int
    is_sure: bool = True
    names: dict[int, Names] = field(default_factory=dict)

    def body(self, body: Body, scope: Scope, document: Document) -> int:
        return sum([self.segment(segment, scope, document) for segment in body])

    def segment(self, segment: Segment, scope: Scope, document: Document) -> int:
        """Return how many segments executing `segment` takes, itself included.

        Afterwards the names that it declares have a value, or are undecided, in the
        scope.
        """
        self.room -= 1
        if self.room < 0:
            return 0
        inside = 0
        if isinstance(segment, Each):
            inside = self.each(segment, scope, document)
        elif isinstance(segment, If):
            inside = self.branch(segment, scope, document)
        elif isinstance(segment, Include):
            inner = self.documents[segment.path]
            inside = self.body(inner.body, scope, inner)
        elif isinstance(segment, Block | Role):
            inside = self.body(segment.body, scope, document)
        elif isinstance(segment, Set):
            scope.assign(segment.name, self.value(segment, scope, document))
        for name in self.names_of(segment).decided:
            scope.set(name, UNDECIDED)
        return 1 + inside

    def value(self, segment: Set, scope: Scope, document: Document) -> object:
        try:
            return evaluate(segment.value, scope, document)
        except (Undecided, TemplateError):  # rendering raises the error when it gets there
            self.is_sure = False
            return UNDECIDED

    def branch(self, segment: If, scope: Scope, document: Document) -> int:
        for condition, body in segment.branches:
            try:
                holds = truth_at(condition, scope, document)
            except (Undecided, TemplateError):
                break
            if holds:
                return self.body(body, scope, document)
        else:
            return self.body(segment.otherwise, scope, document)
        self.is_sure = False
        counts = []
        for body in (*[body for _, body in segment.branches], segment.otherwise):
            self.forget(segment, scope)
            counts.append(self.body(body, scope, document))
        self.forget(segment, scope)
        return min(counts)

    def each(self, segment: Each, scope: Scope, document: Document) -> int:
        """Return the number of segments that all passes of a loop take.

        If passes cannot differ, one is counted and multiplied; otherwise each is
        counted.
        """
        try:
            items = items_at(segment.items, scope, document)
        except (Undecided, TemplateError):
            self.is_sure = False
            self.forget(segment, scope)
            return 0
        if not segment.body or not items:
            return len(items)
        names = self.names_of(segment).sets
        before, was_sure, self.is_sure = scope.snapshot(names), self.is_sure, True
        self.forget(segment, scope)
        unknown = dict.fromkeys((segment.variable, "@key", *LOOP), UNDECIDED)
        n_in_turn = self.turn(segment, unknown, scope, document)
        n = n_in_turn * len(items)
        if self.is_sure:  # anything still undecided was not set
            after = {name: value for name, value in scope.snapshot(names)[0].items() if value is not UNDECIDED}
            scope.restore(names, ({**before[0], **after}, before[1]))
        else:
            self.is_sure = True
            scope.restore(names, before)
            last = len(items) - 1
            for at, (key, item) in enumerate(items):
                known = {segment.variable: item, "@key": key, "@index": at, "@first": at == 0, "@last": at == last}
                n += max(0, self.turn(segment, known, scope, document) - n_in_turn)
                if self.room < 0 or n > MAX_STEPS:
                    break
        self.is_sure = self.is_sure and was_sure
        return n

    def turn(self, segment: Each, variables: Mapping[str, object], scope: Scope, document: Document) -> int:
        self.room -= 1
        return self.body(segment.body, scope.child(variables), document)

    def forget(self, segment: Segment, scope: Scope) -> None:
        """Make every name that a segment may declare undecided."""
        names = self.names_of(segment)
        for name in names.decided:
            scope.set(name, UNDECIDED)
        for name in names.sets:
            scope.assign(name, UNDECIDED)

    def names_of(self, segment: Segment) -> Names:
        """Return the names that a segment declares, which are found only once."""
        if id(segment) not in self.names:
            self.names[id(segment)] = names_in((segment,), self.documents)
        return self.names[id(segment)]
