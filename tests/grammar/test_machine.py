"""The recogniser: laws against the twin on made-up rule sets, and cases to check by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from expression_twin import Twin
from selectrie.errors import GrammarError
from selectrie.grammar.compiling import compile_rules
from selectrie.grammar.expressions import (
    EMPTY,
    Alternatives,
    Characters,
    Expression,
    Reference,
    Repeat,
    RuleSet,
    Sequence,
    Text,
    TokenSet,
)
from selectrie.grammar.limits import GrammarLimits
from selectrie.grammar.machine import DEAD, UNKNOWN, Machine

NAMES = ("root", "a", "b", "c")
TERMINALS = (TokenSet(("<think>",)), TokenSet((7,), negated=True))
BYTES = (*b"ab", *"é€".encode(), *"😀".encode())


def lit(text: str) -> Text:
    return Text(text.encode())


def seq(*items: Expression | str) -> Sequence:
    return Sequence(tuple(parsed(item) for item in items))


def alt(*options: Expression | str) -> Alternatives:
    return Alternatives(tuple(parsed(option) for option in options))


def parsed(item: Expression | str) -> Expression:
    """A rule by its name, anything else as it is."""
    return Reference(item) if isinstance(item, str) else item


def grammar(**rules: Expression | str) -> RuleSet:
    """`grammar(root=alt(...), a=...)`."""
    return RuleSet({name: parsed(expression) for name, expression in rules.items()})


texts = st.sampled_from(["", "a", "b", "ab", "ba", "aab", "é", "€b", "😀"]).map(lit)
points = st.sampled_from([*map(ord, "abcé€😀"), ord("é") + 1, 0x7FF, 0x800, 0xFFFF, 0x10000])
sets = st.lists(st.tuples(points, st.integers(0, 2)), min_size=0, max_size=3).map(
    lambda found: Characters.of([(first, first + more) for first, more in found])
)
leaves = st.one_of(texts, texts, sets, st.sampled_from(TERMINALS), *[st.sampled_from(NAMES).map(Reference)] * 3)


def _combined(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda items: Sequence(tuple(items))),
        st.lists(inner, max_size=3).map(lambda options: Alternatives(tuple(options))),
        st.tuples(inner, st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2))).map(
            lambda found: Repeat(found[0], found[1], None if found[2] is None else found[1] + found[2])
        ),
    )


expressions = st.recursive(leaves, _combined, max_leaves=8)
rule_sets = st.fixed_dictionaries(dict.fromkeys(NAMES, expressions)).map(RuleSet)


def read(machine: Machine, symbols: tuple[int | TokenSet, ...]) -> int:
    """The configuration after bytes and terminals."""
    configuration = machine.start
    for symbol in symbols:
        if isinstance(symbol, TokenSet):
            index = machine.token_sets.index(symbol) if symbol in machine.token_sets else None
            configuration = DEAD if index is None else machine.take_terminal(configuration, index)
        else:
            configuration = machine.step(configuration, symbol)
        if configuration == DEAD:
            return DEAD
    return configuration


def verdict(machine: Machine, symbols: tuple[int | TokenSet, ...]) -> str:
    configuration = read(machine, symbols)
    return "no" if configuration == DEAD else "yes" if machine.can_end(configuration) else "unfinished"


def words(twin: Twin, most: int, seed: int) -> list[tuple[tuple[int | TokenSet, ...], str]]:
    """Inputs with their verdicts: every living prefix by every symbol, as far as `most` inputs go, some at random."""
    rng, found, open_words = random.Random(seed), [], [()]
    while open_words and len(found) < most:
        word = open_words.pop(rng.randrange(len(open_words)))
        found.append((word, twin.verdict(word)))
        if found[-1][1] != "no" and len(word) < 8:
            open_words += [(*word, symbol) for symbol in (*BYTES, *TERMINALS)]
    return found


@settings(max_examples=150)
@given(rules=rule_sets, seed=st.integers(0, 9))
@example(rules=grammar(root=alt(seq("root", "root"), lit("a"), EMPTY)), seed=0)
@example(rules=grammar(root=alt(seq("a", lit("a")), lit("b")), a=alt(seq("b", "root"), EMPTY), b=alt(EMPTY, lit("a"))), seed=0)
@example(rules=grammar(root=alt(seq(lit("a"), "root", lit("b")), seq(lit("a"), "root", lit("é")), EMPTY)), seed=1)
@example(rules=grammar(root=Repeat(Repeat(alt(lit("a"), "a"), 0, 2), 1, None), a=seq("root", lit("b"))), seed=0)
def test_every_prefix_has_the_twins_verdict(rules, seed):
    """Yes, no or unfinished after each byte, for any rules: empty, ambiguous, left, right and mutually recursive."""
    twin = Twin(rules)
    if not twin.some(Reference("root")):
        with pytest.raises(GrammarError, match="no text matches 'root'"):
            compile_rules(rules)
        return
    machine = compile_rules(rules)
    for word, expected in words(twin, 120, seed):
        assert verdict(machine, word) == expected, word
