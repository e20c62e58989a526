"""Decides whether rules derive a text in one way or in several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from selectrie.grammar.rules.expressions import (
    Alternatives,
    Characters,
    Expression,
    Reference,
    Repeat,
    RuleSet,
    Sequence,
    Text,
    parts_of,
)

MANY = 2
"""Derivations are counted only up to this number."""

Ends: TypeAlias = dict[int, int]
"""Maps each position where an expression may end to its number of derivations.

The number is at most `MANY`.
"""

_Key: TypeAlias = tuple[int, int]


class Ways:
    """Counts the derivations of texts of a rule set without token terminals.

    Two derivations differ where another alternative, another split of a sequence or
    another number of repetitions yields the same characters. An extra repetition never
    matches the empty text: `("a"?)*` derives "a" in one way.

    Attributes:
        work: Steps left for all texts. Evaluating an expression at a position costs as
            many steps as the expression has parts.
    """

    def __init__(self, rules: RuleSet, work: int) -> None:
        self._rules, self.work = rules, work

    def count(self, text: str) -> int:
        """Return 0 for no derivation, 1 for one, 2 for two or more, -1 if work ran out.

        Infinitely many derivations also count as 2. A chart is filled by position: each
        entry starts empty and is computed again whenever an entry that it used has
        grown, until none grows. That is the least solution, even where rules refer to
        themselves.
        """
        chart = _Chart(text, self._rules.rules)
        root = self._rules.rules[self._rules.root]
        chart.need(root, 0)
        while chart.waiting:
            if self.work <= 0:
                return -1
            self.work -= chart.compute(chart.waiting.popitem()[0])
        return chart.need(root, 0).get(len(text), 0)


class _Chart:
    """The chart of `Ways.count`: one entry for each expression and start position.

    An entry holds the `Ends` found so far. Expressions are keyed by identity, because
    hashing large ones is slow. The entry requested last is computed first.
    """

    def __init__(self, text: str, rules: Mapping[str, Expression]) -> None:
        self._text, self._rules = text, rules
        self._ends: dict[_Key, Ends] = {}
        self._expression: dict[_Key, Expression] = {}
        self._users: dict[_Key, set[_Key]] = {}
        self._user: _Key | None = None
        self.waiting: dict[_Key, None] = {}

    def need(self, expression: Expression, start: int) -> Ends:
        """Return the ends found so far for an expression at a start position.

        If the chart has no such entry, an empty one is added and queued. The entry that
        is being computed depends on this one, so it is computed again when this one
        grows.
        """
        key = (id(expression), start)
        if key not in self._ends:
            self._ends[key], self._expression[key], self._users[key] = {}, expression, set()
            self.waiting[key] = None
        if self._user is not None:
            self._users[key].add(self._user)
        return self._ends[key]

    def compute(self, key: _Key) -> int:
        """Compute an entry and return roughly how many steps that took.

        If the entry has grown, the entries that use it are queued.
        """
        self._user = key
        expression = self._expression[key]
        ends = self._computed(expression, key[1])
        if ends != self._ends[key]:
            self._ends[key] = ends
            self.waiting.update(dict.fromkeys(self._users[key]))
        return 1 + len(parts_of(expression)) + (expression.min_count if isinstance(expression, Repeat) else 0)

    def _computed(self, expression: Expression, start: int) -> Ends:
        if isinstance(expression, Text):
            literal = expression.value.decode("utf-8")
            return {start + len(literal): 1} if self._text.startswith(literal, start) else {}
        if isinstance(expression, Characters):
            code = ord(self._text[start]) if start < len(self._text) else -1
            return {start + 1: 1} if any(first <= code <= last for first, last in expression.ranges) else {}
        if isinstance(expression, Reference):
            return self.need(self._rules[expression.name], start)
        if isinstance(expression, Alternatives):
            total: Ends = {}
            for option in expression.options:
                _add(total, self.need(option, start))
            return total
        if isinstance(expression, Sequence):
            ways = {start: 1}
            for item in expression.items:
                ways = self._then(ways, item)
            return ways
        return self._repeated(expression, start) if isinstance(expression, Repeat) else {}

    def _then(self, ways: Ends, item: Expression, *, moving: bool = False) -> Ends:
        """Return the partial matches `ways`, each extended by the item.

        With `moving`, only matches of the item that are not empty are appended.
        """
        after: Ends = {}
        for middle, n in ways.items():
            ends = self.need(item, middle)
            _add(after, {end: n * more for end, more in ends.items() if not moving or end > middle})
        return after

    def _repeated(self, expression: Repeat, start: int) -> Ends:
        ways = {start: 1}
        for _ in range(expression.min_count):
            ways = self._then(ways, expression.item)
        total, times = dict(ways), expression.min_count
        while ways and (expression.max_count is None or times < expression.max_count):
            ways, times = self._then(ways, expression.item, moving=True), times + 1
            _add(total, ways)
        return total


def _add(total: Ends, more: Ends) -> None:
    for end, n in more.items():
        total[end] = min(MANY, total.get(end, 0) + n)
