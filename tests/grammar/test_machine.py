"""The recogniser: laws against the twin on made-up rule sets, and cases to check by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from selectrie.errors import GrammarError
from selectrie.grammar.machine.machine import DEAD, UNKNOWN, Machine
from selectrie.grammar.machine.nfa import GrammarLimits
from selectrie.grammar.rules import (
    EMPTY,
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
from tests.support.expression_twin import Twin
from tests.support.machines import compile_rules
from tests.support.n_examples import n_examples

NAMES = ("root", "a", "b", "c")
TERMINALS = (TokenTerminal(("<think>",)), TokenTerminal((7,), negated=True))
BYTES = (*b"ab", *"é€".encode(), *"😀".encode())


def lit(text: str) -> LiteralText:
    return LiteralText(text.encode())


def seq(*items: Expression | str) -> Concatenation:
    return Concatenation(tuple(parsed(item) for item in items))


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
        st.lists(inner, max_size=3).map(lambda items: Concatenation(tuple(items))),
        st.lists(inner, max_size=3).map(lambda options: Alternatives(tuple(options))),
        st.tuples(inner, st.integers(0, 2), st.one_of(st.none(), st.integers(0, 2))).map(
            lambda found: Repeat(found[0], found[1], None if found[2] is None else found[1] + found[2])
        ),
    )


expressions = st.recursive(leaves, _combined, max_leaves=8)
rule_sets = st.fixed_dictionaries(dict.fromkeys(NAMES, expressions)).map(RuleSet)


def read(machine: Machine, symbols: tuple[int | TokenTerminal, ...]) -> int:
    """The configuration after bytes and terminals."""
    configuration = machine.start
    for symbol in symbols:
        if isinstance(symbol, TokenTerminal):
            index = machine.token_sets.index(symbol) if symbol in machine.token_sets else None
            configuration = DEAD if index is None else machine.take_terminal(configuration, index)
        else:
            configuration = machine.step(configuration, symbol)
        if configuration == DEAD:
            return DEAD
    return configuration


def verdict(machine: Machine, symbols: tuple[int | TokenTerminal, ...]) -> str:
    configuration = read(machine, symbols)
    return "no" if configuration == DEAD else "yes" if machine.can_end(configuration) else "unfinished"


def words(twin: Twin, most: int, seed: int) -> list[tuple[tuple[int | TokenTerminal, ...], str]]:
    """Inputs with their verdicts: every living prefix by every symbol, as far as `most` inputs go, some at random."""
    rng, found, open_words = random.Random(seed), [], [()]
    while open_words and len(found) < most:
        word = open_words.pop(rng.randrange(len(open_words)))
        found.append((word, twin.verdict(word)))
        if found[-1][1] != "no" and len(word) < 8:
            open_words += [(*word, symbol) for symbol in (*BYTES, *TERMINALS)]
    return found


LIMITS = (GrammarLimits(), GrammarLimits(max_inlined=0), GrammarLimits(max_inlined=0, max_work=0))
"""As it is; every rule called, none put in place; and none made deterministic either."""


@settings(max_examples=n_examples(150))
@given(rules=rule_sets, seed=st.integers(0, 9), limits=st.sampled_from(LIMITS))
@example(rules=grammar(root=alt(seq("root", "root"), lit("a"), EMPTY)), seed=0, limits=LIMITS[0])
@example(
    rules=grammar(root=alt(seq("a", lit("a")), lit("b")), a=alt(seq("b", "root"), EMPTY), b=alt(EMPTY, lit("a"))),
    seed=0,
    limits=LIMITS[0],
)
@example(
    rules=grammar(root=alt(seq(lit("a"), "root", lit("b")), seq(lit("a"), "root", lit("é")), EMPTY)),
    seed=1,
    limits=LIMITS[0],
)
@example(
    rules=grammar(root=Repeat(Repeat(alt(lit("a"), "a"), 0, 2), 1, None), a=seq("root", lit("b"))),
    seed=0,
    limits=LIMITS[1],
)
@example(
    rules=grammar(root=seq(Repeat(alt(lit("a"), seq("root", lit("b"))), 0, None), lit("b"))), seed=0, limits=LIMITS[0]
)
@example(
    rules=grammar(
        root=alt(seq("a", lit("a")), seq("b", lit("b"))), a=seq("c", lit("b")), b=seq("c", lit("a")), c=lit("ab")
    ),
    seed=0,
    limits=LIMITS[1],
)
def test_every_prefix_has_the_twins_verdict(rules, seed, limits):
    """Yes, no or unfinished after each byte, for any rules: empty, ambiguous, left, right and mutually recursive."""
    twin = Twin(rules)
    if not twin.some(Reference("root")):
        with pytest.raises(GrammarError, match="no text matches 'root'"):
            compile_rules(rules, limits)
        return
    machine = compile_rules(rules, limits)
    for word, expected in words(twin, 120, seed):
        assert verdict(machine, word) == expected, word


def test_the_law_can_fail():
    """The twin tells apart what differs in one place, so a machine of other rules does not pass for these."""
    right, wrong = grammar(root=Repeat(lit("ab"), 1, 3)), grammar(root=Repeat(lit("ab"), 1, 4))
    machine, twin = compile_rules(wrong), Twin(right)
    assert any(verdict(machine, word) != expected for word, expected in words(twin, 120, 0))


@settings(max_examples=n_examples(40))
@given(rules=rule_sets, seed=st.integers(0, 9))
def test_filling_the_table_is_stepping(rules, seed):
    """`fill` writes what `step` returns on another machine of the same rules, repeated pairs included."""
    assume(Twin(rules).some(Reference("root")))
    stepped, filled = compile_rules(rules), compile_rules(rules)
    rng = random.Random(seed)
    partner = {filled.start: stepped.start}
    for _ in range(4):
        known = list(partner)
        rows = np.array([rng.choice(known) for _ in range(20)], np.int32)
        columns = np.array([rng.randrange(filled.n_classes) for _ in range(20)], np.int32)
        filled.fill(np.concatenate([rows, rows]), np.concatenate([columns, columns]))
        assert not (filled.table[rows, columns] == UNKNOWN).any()
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            byte = int(np.flatnonzero(filled.class_of == column)[-1])
            found, expected = int(filled.table[row, column]), stepped.step(partner[row], byte)
            assert (found == DEAD) == (expected == DEAD)
            if found != DEAD:
                assert partner.setdefault(found, expected) == expected
                assert filled.can_end(found) == stepped.can_end(expected)


@settings(max_examples=n_examples(40))
@given(rules=rule_sets, seed=st.integers(0, 9))
def test_a_union_accepts_what_any_of_its_parts_does(rules, seed):
    """The verdict on every continuation is the best verdict of the parts; the start counts as any other."""
    assume(Twin(rules).some(Reference("root")))
    machine = compile_rules(rules)
    rng = random.Random(seed)
    live = [machine.start]
    for _ in range(30):
        after = machine.step(rng.choice(live), rng.choice(BYTES))
        live += [after] if after != DEAD else []
    parts = [rng.choice(live) for _ in range(3)]
    joined = machine.union(parts)
    assert machine.union([joined, *parts]) == joined
    for _ in range(20):
        text = bytes(rng.choice(BYTES) for _ in range(rng.randrange(4)))
        ends = [after for part in parts if (after := machine.walk(part, text)) != DEAD]
        found = machine.walk(joined, text)
        assert (found == DEAD) == (not ends)
        assert not ends or machine.can_end(found) == any(machine.can_end(end) for end in ends)
        assert not ends or set(machine.token_terminals(found)) == {
            t for end in ends for t in machine.token_terminals(end)
        }


def test_any_character_is_valid_utf8_byte_by_byte():
    """Of every sequence of up to four bytes, at the class borders of RFC 3629, exactly what Python decodes is accepted, and
    exactly the beginnings of those are unfinished: no overlong form, surrogate or number beyond U+10FFFF lives one byte
    longer than it must."""
    machine = compile_rules(grammar(root=Characters.of([], negated=True)))
    borders = (
        0,
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC0,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xEC,
        0xED,
        0xEE,
        0xEF,
    )
    borders = (*borders, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF)
    letters = [chr(point).encode() for point in range(0, 0x110000, 0x10) if not 0xD800 <= point <= 0xDFFF]
    alive = {letter[:n] for letter in letters for n in range(4)} | {b""}
    waiting = [b""]
    while waiting:
        text = waiting.pop()
        for byte in borders:
            longer = text + bytes([byte])
            found = verdict(machine, tuple(longer))
            try:
                expected = "yes" if len(longer.decode()) == 1 else "no"
            except UnicodeDecodeError:
                expected = "unfinished" if any(longer + bytes(tail) in alive for tail in ((), (0x80,))) else "no"
            assert found == expected, longer
            if found == "unfinished":
                waiting.append(longer)


CASES = {
    "hidden left recursion": (
        grammar(root=alt(seq("a", "root", lit("b")), lit("c")), a=alt(EMPTY, lit("a"))),
        ["c", "cb", "acb", "cbb", "acbb", "aacbb"],
        ["", "a", "aac"],
        ["b", "aab", "acbbb ", "aacb "],
    ),
    "mutual left recursion, called in the middle too": (
        grammar(root=alt(seq("a", lit("+"), "a"), lit("1")), a=alt(seq("root", lit("*")), lit("2"))),
        ["1", "2+2", "1*+2", "2+1*", "2+2*+2", "1*+1*"],
        ["", "2", "2+", "1*", "1*+", "2+2*"],
        ["+", "12", "2*", "1+1"],
    ),
    "a rule that is only empty": (
        grammar(root=seq("a", lit("x"), "a"), a=alt(seq("a", "a"), EMPTY)),
        ["x"],
        [""],
        ["xx", "a"],
    ),
    "a part without texts": (
        grammar(root=alt(seq(lit("a"), "a"), lit("b")), a=seq(lit("x"), "a")),
        ["b"],
        [""],
        ["a", "ax"],
    ),
    "overlapping sets of characters": (
        grammar(
            root=Repeat(alt(seq(Characters.of([(0xE0, 0x7FF)]), lit("!")), Characters.of([(0x100, 0xFFFF)])), 1, 2)
        ),
        ["à!", "Ā", "Ā!", "Ā!Ā!", "ĀĀ", "\uffff"],
        ["", "à", "Āà"],
        ["!", "àà", "ĀĀĀ", "\U00010000"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_by_hand(case):
    """Small rule sets: texts that are accepted, unfinished and refused."""
    rules, accepts, unfinished, rejects = CASES[case]
    machine, twin = compile_rules(rules), Twin(rules)
    for text, expected in (
        [(t, "yes") for t in accepts] + [(t, "unfinished") for t in unfinished] + [(t, "no") for t in rejects]
    ):
        assert verdict(machine, tuple(text.encode())) == expected == twin.verdict(tuple(text.encode())), text


def test_a_string_of_json_is_one_configuration():
    """Any run of characters inside a string stays where it is, and few classes of bytes are told apart."""
    inside = Characters.of([(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)], negated=True)
    text = seq(
        lit('"'), Repeat(alt(inside, seq(lit("\\"), Characters.of([(0x22, 0x22), (0x6E, 0x6E)]))), 0, None), lit('"')
    )
    machine = compile_rules(grammar(root=seq(lit("["), "a", lit("]")), a=alt(text, "root")))
    within = machine.walk(machine.start, b'[["')
    assert {machine.walk(within, word.encode()) for word in ("x", "é", "€ !", "😀", "\\n", "a" * 99)} == {within}
    assert machine.n_classes <= 22


@pytest.mark.short("20000")
@pytest.mark.parametrize("n", [20_000, 100_000])
def test_very_many_open_brackets(n):
    """Nesting is bounded by memory, not by recursion; each bracket is one more configuration."""
    machine = compile_rules(grammar(root=alt(seq(lit("["), "root", lit("]")), lit("x"))))
    inside = machine.walk(machine.start, b"[" * n + b"x")
    assert machine.n_configurations == n + 2
    assert machine.can_end(machine.walk(inside, b"]" * n))
    assert not machine.can_end(machine.walk(inside, b"]" * (n - 1)))


@pytest.mark.parametrize(
    "root",
    [
        alt(seq("root", "root"), lit("a")),
        alt(seq("root", "root", "root"), seq("root", "root"), EMPTY, lit("a")),
        alt(seq(lit("a"), "root"), seq("root", lit("a")), lit("a")),
        alt(seq(lit("a"), "root", lit("b")), seq(lit("a"), "root", lit("c")), seq(lit("a"), "root"), lit("a")),
    ],
)
def test_exponential_ambiguity_stays_small(root):
    """All derivations of a text are followed together: stacks grow with its length, not with their number."""
    machine = compile_rules(grammar(root=root))
    half = machine.walk(machine.start, b"a" * 700)
    before = machine.n_bytes
    assert machine.can_end(machine.walk(half, b"a" * 700))
    assert machine.n_configurations < 1700
    assert machine.n_bytes < 2.5 * before


def test_right_recursion_opens_nothing():
    """A rule that ends by calling itself returns to nothing: its configurations repeat."""
    machine = compile_rules(grammar(root=alt(seq(lit("a"), "root"), lit("b"))))
    machine.walk(machine.start, b"a" * 1000)
    assert machine.n_configurations <= 2


TIGHT = GrammarLimits(max_alternatives=50, max_configurations=500, max_stacks=300)


@pytest.mark.parametrize(
    ("rules", "text", "message"),
    [
        (grammar(root=alt(seq(lit("("), "root", lit(")")), lit("x"))), b"(" * 600, "opened rules in more than 300"),
        (
            grammar(root=alt(seq(lit("("), "root", lit(")")), seq(lit("["), "root", lit("]")), EMPTY)),
            b"([" * 600,
            "opened rules in more than 300",
        ),
        (grammar(root=Repeat(lit("ab"), 0, 600)), b"ab" * 600, "led to 512 different states"),
        (
            grammar(
                root=seq(Repeat(alt(lit("a"), lit("b")), 0, None), lit("a"), Repeat(alt(lit("a"), lit("b")), 60, 60))
            ),
            b"a" * 60,
            "51 ways at once, which exceeds the limit of 50",
        ),
    ],
)
def test_what_grows_without_bound_ends_in_an_error(rules, text, message):
    """Each limit on reading has its message, and the machine goes on working after it."""
    machine = compile_rules(rules, TIGHT)
    with pytest.raises(GrammarError, match=message):
        machine.walk(machine.start, text)
    assert machine.walk(machine.start, text[:5]) != DEAD


def test_terminals_are_read_as_such():
    """A token terminal is no text: `take_terminal` alone passes it, and only where it stands."""
    think, other = TERMINALS
    machine = compile_rules(grammar(root=seq(think, Repeat(other, 1, None), lit("a"))))
    index = {tokens: machine.token_sets.index(tokens) for tokens in TERMINALS}
    assert machine.token_terminals(machine.start) == (index[think],)
    assert machine.walk(machine.start, b"a") == DEAD
    assert machine.take_terminal(machine.start, index[other]) == DEAD
    inside = machine.take_terminal(machine.start, index[think])
    assert machine.token_terminals(inside) == (index[other],)
    again = machine.take_terminal(inside, index[other])
    assert machine.take_terminal(again, index[other]) == again
    assert machine.can_end(machine.step(again, ord("a")))
