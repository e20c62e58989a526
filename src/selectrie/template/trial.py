"""Rendering without a model: every expression is evaluated that no slot has a say in, and every argument checked.

Where a slot decides what comes next, each way is tried; what differs between them is undecided behind it. A loop whose turns
nobody knows is tried with one turn of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from selectrie.template.arguments import MOST_TURNS
from selectrie.template.checking import LOOP
from selectrie.template.constants import check_value, check_weights, note_choice, placed
from selectrie.template.expressions import Constant
from selectrie.template.forms import check_range
from selectrie.template.places import error_at
from selectrie.template.scope import UNDECIDED, Scope, Snapshot, Undecided, evaluate, text_at, truth_at
from selectrie.template.segments import (
    Block,
    Body,
    Document,
    Each,
    GenEach,
    If,
    Include,
    Joint,
    Literal,
    Output,
    Role,
    Segment,
    Set,
    Slot,
)
from selectrie.template.sources import Sources
from selectrie.template.values import Option, items_of, option_of, options_of, plain
from selectrie.template.walking import expressions_of, names_given

MOST_SEGMENTS = 100_000
"""Segments that are tried, those of a loop in each turn; what comes behind is not looked at."""


def try_values(
    document: Document, documents: Mapping[str, Document], sources: Sources, values: Mapping[str, object]
) -> None:
    """Raise the first `TemplateError` that rendering with these values ends in, or may end in by what a slot decides."""
    try:
        _Trial(documents, sources, MOST_SEGMENTS).body(document.body, Scope(values), document)
    except _EnoughError:
        return


class _EnoughError(Exception):
    """So many segments were tried that the rest is left to the rendering."""


@dataclass(slots=True)
class _Trial:
    documents: Mapping[str, Document]
    sources: Sources
    room: int

    def body(self, body: Body, scope: Scope, document: Document) -> None:
        for segment in body:
            handle = _HANDLERS.get(type(segment))
            if handle is not None:
                self.room -= 1
                if self.room < 0:
                    raise _EnoughError
                handle(self, segment, scope, document)

    def values(self, segment: Segment, scope: Scope, document: Document) -> dict[str, object]:
        """The tag's own expressions checked, and their values; undecided ones left out."""
        found: dict[str, object] = {}
        for name, expression in expressions_of(segment):
            try:
                found[name] = evaluate(expression, scope, document)
            except Undecided:
                continue
            check_value(segment, name, found[name], self.sources, at=(document, expression))
        return found

    def output(self, segment: Output, scope: Scope, document: Document) -> None:
        self.values(segment, scope, document)

    def set(self, segment: Set, scope: Scope, document: Document) -> None:
        scope.assign(segment.name, self.values(segment, scope, document).get("value", UNDECIDED))

    def slot(self, segment: Slot, scope: Scope, document: Document) -> None:
        values = self.values(segment, scope, document)
        options = options_of(values["options"]) if values.get("prior") is not None and "options" in values else None
        if segment.choices is not None:
            options = _choices(segment, segment.choices, scope, document)
        check_weights(segment, document, values.get("prior"), options)
        logprobs = dict(segment.arguments).get("logprobs")
        names = [segment.name.partition(".")[0]]
        if isinstance(logprobs, Constant) and isinstance(logprobs.value, str):
            names.append(logprobs.value)
        _undecide(names, scope)

    def block(self, segment: Block, scope: Scope, document: Document) -> None:
        self.values(segment, scope, document)
        self.body(segment.body, scope, document)
        if segment.name is not None:
            _undecide([segment.name], scope)

    def role(self, segment: Role, scope: Scope, document: Document) -> None:
        self.body(segment.body, scope, document)

    def joint(self, segment: Joint, scope: Scope, document: Document) -> None:
        self.values(segment, scope, document)
        self.body(segment.body, scope, document)

    def include(self, segment: Include, scope: Scope, _document: Document) -> None:
        inner = self.documents[segment.path]
        self.body(inner.body, scope, inner)

    def branches(self, segment: If, scope: Scope, document: Document) -> None:
        possible: list[Body] = []
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
        before = scope.snapshot()
        ends: list[Snapshot] = []
        for body in possible:
            scope.restore(before)
            self.body(body, scope, document)
            ends.append(scope.snapshot())
        scope.restore((_merged(page for page, _ in ends), _merged(own for _, own in ends)))

    def each(self, segment: Each, scope: Scope, document: Document) -> None:
        values = self.values(segment, scope, document)
        if "items" not in values:
            unknown = dict.fromkeys((segment.variable, "@key", *LOOP), UNDECIDED)
            self.unknown_turn(segment, unknown, scope, document)
        else:
            items = placed(lambda: items_of(values["items"]), document, segment.items)
            if len(items) > MOST_TURNS:
                reason = f"{len(items)} items are more than the {MOST_TURNS} that a loop goes through; give fewer"
                raise error_at(document, segment.items.span, reason)
            for at, (key, item) in enumerate(items):
                turn = {"@index": at, "@first": at == 0, "@last": at == len(items) - 1, "@key": key}
                self.body(segment.body, scope.child({**turn, segment.variable: item}), document)
        _undecide(names_given(segment.body, self.documents)[0], scope)

    def geneach(self, segment: GenEach, scope: Scope, document: Document) -> None:
        values = self.values(segment, scope, document)
        check_range(segment, document, values)
        num = _count(values.get("num"))
        for at in range(_count(values.get("min")) or 0 if num is None else num):
            last = {} if num is None else {"@last": at == num - 1}
            self.body(segment.body, scope.child({"@index": at, "@first": at == 0, **last}), document)
        if num is None:
            self.unknown_turn(segment, dict.fromkeys(LOOP, UNDECIDED), scope, document)
        _undecide((*names_given(segment.body, self.documents)[0], segment.name), scope)

    def unknown_turn(
        self, segment: Each | GenEach, variables: Mapping[str, object], scope: Scope, document: Document
    ) -> None:
        """A turn of which nothing is known, not even whether there is one: what it sets is undecided before and behind."""
        sets = names_given(segment.body, self.documents)[1]
        for name in sets:
            scope.assign(name, UNDECIDED)
        self.body(segment.body, scope.child(variables), document)
        for name in sets:
            scope.assign(name, UNDECIDED)


def _choices(slot: Slot, choices: tuple[Body, ...], scope: Scope, document: Document) -> tuple[Option, ...] | None:
    """The options of a block's choices; None where a slot has a say in one. Raises where two are one text."""
    options: list[Option] = []
    seen: set[str] = set()
    for body in choices:
        try:
            option = _choice(body, scope, document)
        except Undecided:
            continue
        note_choice(option.text, seen, at=(slot, body, document))
        options.append(option)
    return tuple(options) if len(options) == len(choices) else None


def _choice(body: Body, scope: Scope, document: Document) -> Option:
    """A value alone is an option as it is; text and values together are a text."""
    if len(body) == 1 and isinstance(body[0], Output):
        value = body[0].value
        return placed(lambda: option_of(evaluate(value, scope, document)), document, value)
    parts = [
        part.text if isinstance(part, Literal) else text_at(part.value, scope, document)
        for part in body
        if isinstance(part, Literal | Output)
    ]
    return Option("".join(parts), "".join(parts))


def _count(value: object) -> int | None:
    number = plain(value)
    return number if isinstance(number, int) else None


def _undecide(names: Iterable[str], scope: Scope) -> None:
    for name in names:
        scope.set(name, UNDECIDED)


def _merged(levels: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """What is named whichever way was gone: undecided where the ways differ."""
    ways = list(levels)
    names = dict.fromkeys(name for way in ways for name in way)
    return {
        name: ways[0][name] if all(name in way and way[name] is ways[0].get(name) for way in ways) else UNDECIDED
        for name in names
    }


_HANDLERS: Mapping[type[Segment], Callable[[_Trial, Any, Scope, Document], None]] = {
    Output: _Trial.output,
    Set: _Trial.set,
    Slot: _Trial.slot,
    Block: _Trial.block,
    Role: _Trial.role,
    Joint: _Trial.joint,
    Include: _Trial.include,
    If: _Trial.branches,
    Each: _Trial.each,
    GenEach: _Trial.geneach,
}
