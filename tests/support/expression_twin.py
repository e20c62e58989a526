"""Slow obvious twin of the recogniser: what a rule set accepts, read off its expressions, in characters.

For every part of every rule and every place of the input: where may a text of it that starts there end, and may the input
end within it? Least fixpoint by trying until nothing changes, so any recursion is right. A character is what Python's own
decoder says it is; a part of one counts when one of the set's characters begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from functools import cache

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
)

Symbol = int | TokenTerminal
"""A byte, or a token read as such."""


@cache
def encodings(characters: Characters) -> tuple[bytes, ...]:
    """Every character of a (small) set in UTF-8."""
    return tuple(chr(point).encode() for first, last in characters.ranges for point in range(first, last + 1))


class Twin:
    """`verdict(symbols)`: "yes", "no" or "unfinished" (some text continues the symbols)."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.has_text = dict.fromkeys(rules.rules, False)
        changed = True
        while changed:
            found = {name: self.some(part) for name, part in rules.rules.items()}
            changed, self.has_text = found != self.has_text, found

    def some(self, part: Expression) -> bool:
        """Is there any text of it?"""
        if isinstance(part, LiteralText):
            return True
        if isinstance(part, Characters):
            return bool(part.ranges)
        if isinstance(part, TokenTerminal):
            return part.negated or bool(part.tokens)
        if isinstance(part, Reference):
            return self.has_text[part.name]
        if isinstance(part, Repeat):
            return part.min_count == 0 or self.some(part.item)
        check = all if isinstance(part, Concatenation) else any
        return check(self.some(inner) for inner in (part.items if isinstance(part, Concatenation) else part.options))

    def verdict(self, symbols: Items[Symbol]) -> str:
        """Of the whole input."""
        self.symbols = tuple(symbols)
        self.known: dict[tuple[str, int], tuple[frozenset[int], bool]] = {}
        before: dict[tuple[str, int], tuple[frozenset[int], bool]] | None = None
        while before != self.known:
            before = dict(self.known)
            self.known.setdefault((self.rules.root, 0), (frozenset(), False))
            for name, place in list(self.known):
                self.known[name, place] = self.read(self.rules.rules[name], place)
        ends, is_open = self.known[self.rules.root, 0]
        return "yes" if len(self.symbols) in ends else "unfinished" if is_open else "no"

    def read(self, part: Expression, place: int) -> tuple[frozenset[int], bool]:
        """Where its texts that start at a place may end, and whether the input may end within one."""
        if isinstance(part, LiteralText | Characters):
            return self.one_of((part.value,) if isinstance(part, LiteralText) else encodings(part), place)
        if isinstance(part, TokenTerminal):
            if place == len(self.symbols):
                return frozenset(), self.some(part)
            return frozenset([place + 1] if self.symbols[place] == part else []), False
        if isinstance(part, Reference):
            return self.known.setdefault((part.name, place), (frozenset(), False))
        return self.repeat(part, place) if isinstance(part, Repeat) else self.several(part, place)

    def several(self, part: Alternatives | Concatenation, place: int) -> tuple[frozenset[int], bool]:
        if isinstance(part, Concatenation):
            return self.chain([*part.items], place)
        found = [self.read(option, place) for option in part.options]
        return frozenset().union(*(ends for ends, _ in found)), any(is_open for _, is_open in found)

    def one_of(self, texts: Items[bytes], place: int) -> tuple[frozenset[int], bool]:
        rest = self.symbols[place:]
        return (
            frozenset(place + len(text) for text in texts if rest[: len(text)] == tuple(text)),
            any(len(rest) < len(text) and tuple(text[: len(rest)]) == rest for text in texts),
        )

    def chain(self, items: list[Expression], place: int) -> tuple[frozenset[int], bool]:
        if not items:
            return frozenset([place]), False
        ends, is_open = self.read(items[0], place)
        is_open = is_open and all(self.some(item) for item in items[1:])
        found: set[int] = set()
        for end in ends:
            more, open_there = self.chain(items[1:], end)
            found |= more
            is_open = is_open or open_there
        return frozenset(found), is_open

    def repeat(self, part: Repeat, place: int) -> tuple[frozenset[int], bool]:
        """By the number of items read so far; more than every place of the input is no different from that many."""
        most = part.min_count + len(self.symbols) + 1 if part.max_count is None else part.max_count
        current, found, is_open = {place}, set(), False
        for count in range(most + 1):
            if count >= part.min_count:
                found |= current
            if count == most:
                break
            after: set[int] = set()
            for start in current:
                ends, open_there = self.read(part.item, start)
                after |= ends
                is_open = is_open or open_there
            current = after
        return frozenset(found), is_open
