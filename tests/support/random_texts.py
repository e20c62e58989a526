"""Random texts of a grammar, and in how many ways it makes a text: straight from its rules, with nothing compiled."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from functools import reduce

from selectrie.grammar.rules import (
    Alternatives,
    Characters,
    Concatenation,
    Expression,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
)

INFINITE = 10**6


class RandomTexts:
    """Draws texts of a grammar. Behind `soft_limit` characters the shortest way out is taken."""

    def __init__(self, rules: RuleSet, *, soft_limit: int = 60) -> None:
        self._rules, self._limit = rules, soft_limit
        self._depth = dict.fromkeys(rules.rules, INFINITE)
        while (found := {name: 1 + self._least(rule) for name, rule in rules.rules.items()}) != self._depth:
            self._depth = found

    def draw(self, rng: random.Random) -> str:
        """One text."""
        made: list[str] = []
        self._write(Reference(self._rules.root), made, rng)
        return "".join(made)

    def _least(self, expression: Expression) -> int:
        """How many rules lie inside each other at least."""
        match expression:
            case Reference():
                return min(INFINITE, self._depth[expression.name])
            case Concatenation():
                return max((self._least(item) for item in expression.items), default=0)
            case Alternatives():
                return min(self._least(option) for option in expression.options)
            case Repeat():
                return self._least(expression.item) if expression.min_count else 0
        return 0

    def _write(self, expression: Expression, made: list[str], rng: random.Random) -> None:
        short = sum(map(len, made[-self._limit :])) > self._limit
        match expression:
            case LiteralText():
                made.append(expression.value.decode())
            case Characters():
                made.append(_character(expression, rng))
            case Reference():
                self._write(self._rules.rules[expression.name], made, rng)
            case Concatenation():
                for item in expression.items:
                    self._write(item, made, rng)
            case Alternatives():
                options = list(expression.options)
                self._write(min(options, key=self._least) if short else rng.choice(options), made, rng)
            case Repeat():
                times = expression.min_count
                most = INFINITE if expression.max_count is None else expression.max_count
                while not short and times < most and rng.random() < 0.55:
                    times += 1
                for _ in range(times):
                    self._write(expression.item, made, rng)


def _character(expression: Characters, rng: random.Random) -> str:
    """Mostly a character of ASCII, where there is one."""
    plain = [pair for pair in expression.ranges if pair[0] < 0x7F]
    first, last = rng.choice(plain if plain and rng.random() < 0.9 else expression.ranges)
    return chr(rng.randint(first, min(last, 0x7E) if first < 0x7F and rng.random() < 0.9 else last))


def count_derivations(rules: RuleSet, text: str) -> int:
    """In how many ways the rules make the text: 0 none, 1 without ambiguity."""
    return Derivations(rules, text).count()


class Derivations:
    """A chart of ways by place: for each expression and byte that it begins at, the bytes it may end at, and in how many ways."""

    def __init__(self, rules: RuleSet, text: str) -> None:
        self._rules, self._text, self._data = rules, text, text.encode()
        self._index = {len(text[:i].encode()): i for i in range(len(text))}
        self._known: dict[tuple[int, int], Mapping[int, int]] = {}  # by identity: large expressions hash slowly

    def count(self) -> int:
        """Ways of the whole text."""
        return self._ends(self._rules.rules[self._rules.root], 0).get(len(self._data), 0)

    def _ends(self, expression: Expression, start: int) -> Mapping[int, int]:
        key = (id(expression), start)
        if key not in self._known:
            self._known[key] = self._found(expression, start)
        return self._known[key]

    def _found(self, expression: Expression, start: int) -> Mapping[int, int]:
        if isinstance(expression, LiteralText):
            return {start + len(expression.value): 1} if self._data.startswith(expression.value, start) else {}
        if isinstance(expression, Characters):
            character = self._text[self._index[start]] if start in self._index else None
            inside = character and any(first <= ord(character) <= last for first, last in expression.ranges)
            return {start + len(character.encode()): 1} if inside else {}
        if isinstance(expression, Reference):
            return self._ends(self._rules.rules[expression.name], start)
        if isinstance(expression, Concatenation):
            return reduce(self._then, expression.items, Counter({start: 1}))
        if isinstance(expression, Alternatives):
            return sum((Counter(self._ends(option, start)) for option in expression.options), Counter())
        return self._repeated(expression, start)

    def _then(self, ways: Mapping[int, int], item: Expression) -> Counter[int]:
        after: Counter[int] = Counter()
        for middle, count in ways.items():
            for stop, more in self._ends(item, middle).items():
                after[stop] += count * more
        return after

    def _repeated(self, expression: Repeat, start: int) -> Counter[int]:
        """An unbounded repetition of something that may be empty would have no end of ways: refused."""
        ways, total, times = Counter({start: 1}), Counter(), 0
        while ways and (expression.max_count is None or times <= expression.max_count):
            if times >= expression.min_count:
                total.update(ways)
            if expression.max_count is None and any(place in self._ends(expression.item, place) for place in ways):
                raise ValueError(f"{expression} repeats the empty text")
            ways, times = self._then(ways, expression.item), times + 1
        return total
