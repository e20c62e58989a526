"""Reports errors and notable properties of a grammar, such as ambiguity."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import log10
from typing import TypeAlias

from selectrie.errors import GrammarError
from selectrie.grammar.enumeration import Texts, TooLongError
from selectrie.grammar.machine.compiling import Facts, compile_rules, find_facts, is_finite, rings, walk
from selectrie.grammar.machine.machine import Machine
from selectrie.grammar.machine.program import Program
from selectrie.grammar.rules import (
    Alternatives,
    Characters,
    Concatenation,
    Expression,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
    TokenTerminal,
    parts_of,
)

MANY = 2
"""Derivations are counted only up to this number."""

Ends: TypeAlias = dict[int, int]
"""Maps each position where an expression may end to its number of derivations.

The number is at most `MANY`.
"""

_Key: TypeAlias = tuple[int, int]


class DerivationCounter:
    """Counts the derivations of texts of a rule set without token terminals.

    Two derivations differ if they choose another alternative, split a sequence
    elsewhere, or repeat an item another number of times to yield the same
    characters. An extra repetition never matches the empty text: `("a"?)*` derives
    "a" in one way.

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
    """The chart of `DerivationCounter.count`: an entry for each expression and start.

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
        ends = self._compute_ends(expression, key[1])
        if ends != self._ends[key]:
            self._ends[key] = ends
            self.waiting.update(dict.fromkeys(self._users[key]))
        return 1 + len(parts_of(expression)) + (expression.min_count if isinstance(expression, Repeat) else 0)

    def _compute_ends(self, expression: Expression, start: int) -> Ends:
        """Compute the ends of an expression from the entries of its parts."""
        if isinstance(expression, LiteralText):
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
                _add_ends(total, self.need(option, start))
            return total
        if isinstance(expression, Concatenation):
            ways = {start: 1}
            for item in expression.items:
                ways = self._extend_matches(ways, item)
            return ways
        return self._compute_repeat_ends(expression, start) if isinstance(expression, Repeat) else {}

    def _extend_matches(self, ways: Ends, item: Expression, *, moving: bool = False) -> Ends:
        """Return the partial matches `ways`, each extended by the item.

        With `moving`, only matches of the item that are not empty are appended.
        """
        after: Ends = {}
        for middle, n in ways.items():
            ends = self.need(item, middle)
            _add_ends(after, {end: n * more for end, more in ends.items() if not moving or end > middle})
        return after

    def _compute_repeat_ends(self, expression: Repeat, start: int) -> Ends:
        """Compute the ends of a repetition, one round after the other."""
        ways = {start: 1}
        for _ in range(expression.min_count):
            ways = self._extend_matches(ways, expression.item)
        total, times = dict(ways), expression.min_count
        while ways and (expression.max_count is None or times < expression.max_count):
            ways, times = self._extend_matches(ways, expression.item, moving=True), times + 1
            _add_ends(total, ways)
        return total


def _add_ends(total: Ends, more: Ends) -> None:
    """Add derivations by end position to `total`; counts stop at `MANY`."""
    for end, n in more.items():
        total[end] = min(MANY, total.get(end, 0) + n)


N_SAMPLES = 5
AMBIGUITY_TEXTS = 60
"""Number of shortest texts, and of sampled ones, searched for two derivations."""
AMBIGUITY_WORK = 60_000
"""Maximum number of steps of that search."""
AMBIGUITY_LENGTH = 40
"""Maximum length of the texts searched."""
MAX_STEPS = 2_500_000
"""Elementary steps of sampling and listing together, about one second."""
COUNTING_WORK = 150_000
"""Maximum number of steps of counting the texts."""
LONG_TEXT = 2_000
"""Length of the shortest text, in characters, beyond which only one sample is drawn.

No sample is drawn beyond ten times this length.
"""
EVERY_RULE = "every rule"
"""A rule name that no notation can produce."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `Grammar.check`.

    Rule names are those of the source, in its order. If `error` is set, the fields that
    need a compiled grammar are empty.

    Attributes:
        n_rules: Number of rules.
        error: Why the grammar cannot be compiled, with the position, or why its
            texts cannot be read; None if they can.
        undefined: Names that are used but not defined.
        unreachable: Rules that the root does not use.
        unproductive: Rules that match no text.
        empty: Rules that match only the empty text.
        left_recursion: Cycles of rules that begin with each other, (a, b) for a -> b ->
            a. Compiling rewrites them.
        ambiguous: A text with two derivations; None if none was found among short
            texts.
        finite: Whether there are finitely many texts.
        n_texts: Number of texts; None if unknown or infinite.
        samples: Texts drawn at random.
        has_tokens: Whether the grammar asks for tokens by name; it then has no texts to
            show.
    """

    n_rules: int
    error: GrammarError | None = None
    undefined: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    unproductive: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    left_recursion: tuple[tuple[str, ...], ...] = ()
    ambiguous: str | None = None
    finite: bool | None = None
    n_texts: int | None = None
    samples: tuple[str, ...] = ()
    has_tokens: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return the fields, ready for JSON.

        `n_texts` is null from 2**53 on; `log10_texts` then gives the magnitude.
        """
        n = self.n_texts
        return {
            "sound": self.sound,
            "n_rules": self.n_rules,
            "error": None if self.error is None else str(self.error),
            "undefined": list(self.undefined),
            "unreachable": list(self.unreachable),
            "unproductive": list(self.unproductive),
            "empty": list(self.empty),
            "left_recursion": [list(cycle) for cycle in self.left_recursion],
            "ambiguous": self.ambiguous,
            "finite": self.finite,
            "n_texts": n if n is not None and n < 1 << 53 else None,
            "log10_texts": None if not n else round(log10(n), 6),
            "samples": list(self.samples),
            "has_tokens": self.has_tokens,
        }

    @property
    def sound(self) -> bool:
        """Return whether the grammar compiles and every rule is used and productive.

        A rule is productive if it matches some text.
        """
        return not (self.error or self.undefined or self.unreachable or self.unproductive)


def report_on(rules: RuleSet, *, seed: int) -> Report:
    """Return a report on rules; `seed` draws its samples.

    Expensive parts are bounded, and left out beyond their bounds.
    """
    known = _find_all_facts(rules)
    everywhere = set(rules.rules)
    named = {reference.name for name in everywhere for reference in known.references[name]}
    used = set(find_facts(rules.rules, rules.root).names)
    report = Report(
        n_rules=len(rules.rules),
        undefined=tuple(sorted(named - everywhere)),
        unreachable=tuple(name for name in rules.rules if name not in used),
        unproductive=tuple(name for name in rules.rules if name not in known.productive),
        empty=tuple(name for name in rules.rules if name in known.productive - known.substantial),
        left_recursion=left_recursive_cycles(rules.rules, known),
        has_tokens=any(
            isinstance(part, TokenTerminal) for name in used & everywhere for part in walk(rules.rules[name])
        ),
    )
    try:
        program = compile_rules(rules)
    except GrammarError as error:
        return replace(report, error=error)
    return _add_text_findings(report, rules, program, seed)


def report_on_list(texts: tuple[str, ...], *, seed: int) -> Report:
    """Return a report on a list of distinct texts.

    Such a list is one rule, and nothing can be wrong with it.
    """
    rng = random.Random(seed)  # noqa: S311 - samples, not secrets
    return Report(
        n_rules=1,
        empty=("root",) if texts == ("",) else (),
        finite=True,
        n_texts=len(texts),
        samples=tuple(rng.sample(texts, min(N_SAMPLES, len(texts)))),
    )


def _find_all_facts(rules: RuleSet) -> Facts:
    """Return facts about every rule, including those that the root does not use."""
    everything = Alternatives(tuple(Reference(name) for name in rules.rules))
    return find_facts({**rules.rules, EVERY_RULE: everything}, EVERY_RULE)


def _add_text_findings(report: Report, rules: RuleSet, program: Program, seed: int) -> Report:
    """Return the report with samples, the number of texts and an ambiguous text.

    A finding that would cost too much is left out.
    """
    report = replace(report, finite=is_finite(program))
    if report.has_tokens:
        return report
    rng = random.Random(seed)  # noqa: S311 - samples, not secrets
    texts = Texts(Machine(program), max_steps=MAX_STEPS)
    n_samples = N_SAMPLES if texts.min_length <= LONG_TEXT else int(texts.min_length <= 10 * LONG_TEXT)
    n_searched = AMBIGUITY_TEXTS if texts.min_length <= AMBIGUITY_LENGTH else 0
    samples: list[str] = []
    searched: list[str] = []
    n_texts = None
    try:
        samples.extend(texts.draw(rng) for _ in range(n_samples))
        searched.extend(texts.draw(rng, soft_limit=AMBIGUITY_LENGTH // 2) for _ in range(n_searched))
    except TooLongError:
        pass  # the lists keep what was drawn so far
    except GrammarError as error:
        return replace(report, error=error)
    try:
        searched += islice(texts.list_all(), n_searched)
        n_texts = texts.count(work=COUNTING_WORK) if report.finite else None
    except GrammarError:
        n_texts = None  # counting would cost too much
    ambiguous = find_ambiguous_text(rules, searched)
    return replace(report, samples=tuple(dict.fromkeys(samples)), n_texts=n_texts, ambiguous=ambiguous)


def find_ambiguous_text(rules: RuleSet, texts: list[str]) -> str | None:
    """Return the shortest of the texts with two derivations, or None if none is found.

    The search takes at most `AMBIGUITY_WORK` steps.
    """
    ways = DerivationCounter(rules, AMBIGUITY_WORK)
    for text in sorted({text for text in texts if len(text) <= AMBIGUITY_LENGTH}, key=lambda text: (len(text), text)):
        if (n := ways.count(text)) == MANY:
            return text
        if n < 0:  # the work ran out
            break
    return None


def left_recursive_cycles(rules: Mapping[str, Expression], known: Facts) -> tuple[tuple[str, ...], ...]:
    """Return one shortest cycle for each group of rules that begin with each other.

    Args:
        rules: The rules.
        known: Facts about all of these rules.
    """
    order = {name: i for i, name in enumerate(rules)}
    leftmost = {name: [one for one in _leftmost_rules(rules[name], known) if one in rules] for name in rules}
    recursive = [ring for ring in rings(leftmost) if len(ring) > 1 or ring[0] in leftmost[ring[0]]]
    cycles = [_shortest_cycle(min(ring, key=order.__getitem__), set(ring), leftmost) for ring in recursive]
    return tuple(sorted(cycles, key=lambda cycle: order[cycle[0]]))


def _shortest_cycle(start: str, ring: set[str], graph: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Return a shortest path from the rule `start` back to itself, within `ring`."""
    before: dict[str, str] = {}
    waiting = [start]
    for name in waiting:
        for after in graph[name]:
            if after == start:
                path = [name]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return tuple(reversed(path))
            if after in ring and after not in before:
                before[after] = name
                waiting.append(after)
    return (start,)


def _leftmost_rules(expression: Expression, known: Facts) -> list[str]:
    """Return the rules whose text may be the beginning of the expression's text.

    That is, no character of the expression comes before it.
    """
    names: dict[str, None] = {}
    work = [expression]
    while work:
        part = work.pop()
        if isinstance(part, Reference):
            names[part.name] = None
        elif isinstance(part, Alternatives):
            work += reversed(part.options)
        elif isinstance(part, Repeat):
            work += [part.item] if part.max_count != 0 else []
        elif isinstance(part, Concatenation):
            for item in part.items:
                work.append(item)
                # The text of later items cannot come first.
                if not _may_be_empty(item, known):
                    break
    return list(names)


def _may_be_empty(expression: Expression, known: Facts) -> bool:
    """Return whether an expression matches the empty text.

    Recurses as deep as the expression is nested, which the parsers of notations limit.
    """
    if isinstance(expression, LiteralText):
        return not expression.value
    if isinstance(expression, Reference):
        return expression.name in known.nullable
    if isinstance(expression, Repeat):
        return expression.min_count == 0 or _may_be_empty(expression.item, known)
    if isinstance(expression, Concatenation):
        return all(_may_be_empty(item, known) for item in expression.items)
    return isinstance(expression, Alternatives) and any(_may_be_empty(option, known) for option in expression.options)
