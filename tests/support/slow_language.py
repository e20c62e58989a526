"""The texts of a rule set, the slow and obvious way: where may each part end that begins here? Repeated until nothing changes."""

from __future__ import annotations

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

Known = dict[tuple[str, int], set[int]]


def accepts(rules: RuleSet, text: str) -> bool:
    """Is the whole text one of the root's? The least solution of what each rule may cover, from each place."""
    known: Known = {(rules.root, 0): set()}
    while True:
        before = {key: set(ends) for key, ends in known.items()}
        for name, start in list(known):
            known[name, start] |= ends_of(rules.rules[name], text, start, known)
        if known == before:
            return len(text) in known[rules.root, 0]


def ends_of(expression: Expression, text: str, start: int, known: Known) -> set[int]:
    """Where the expression may end that begins at `start`; rules it asks for are put into `known`."""
    match expression:
        case LiteralText(value):
            literal = value.decode()
            return {start + len(literal)} if text.startswith(literal, start) else set()
        case Characters(ranges):
            return (
                {start + 1} if any(a <= ord(one) <= b for one in text[start : start + 1] for a, b in ranges) else set()
            )
        case Reference(name):
            return set(known.setdefault((name, start), set()))
        case Concatenation(items):
            ends = {start}
            for item in items:
                ends = {end for middle in ends for end in ends_of(item, text, middle, known)}
            return ends
        case Alternatives(options):
            return {end for option in options for end in ends_of(option, text, start, known)}
        case Repeat(item, least, most):
            ends = {start}
            for _ in range(least):
                ends = {end for middle in ends for end in ends_of(item, text, middle, known)}
            reached, rounds = set(ends), least
            while ends and (most is None or rounds < most):
                ends = {end for middle in ends for end in ends_of(item, text, middle, known)} - reached
                reached |= ends
                rounds += 1
            return reached
    raise TypeError(expression)
