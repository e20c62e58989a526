"""Rules to automata: the parts one by one, what ends in an error, and what is known of all texts."""

from __future__ import annotations

import itertools
import random
import tracemalloc

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from selectrie.errors import GrammarError
from selectrie.grammar.acceptance import Characterwise
from selectrie.grammar.machine.compiling import is_finite, is_prefix_free, rings
from selectrie.grammar.machine.machine import DEAD, Machine
from selectrie.grammar.machine.nfa import (
    DEFAULT_LIMITS,
    END,
    GrammarLimits,
    Nfa,
    RuleAutomaton,
    Work,
    byte_tree,
    simplify,
)
from selectrie.grammar.rules import (
    EMPTY,
    LAST_CODE_POINT,
    Alternatives,
    Characters,
    Concatenation,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
    Span,
    TokenTerminal,
)
from tests.grammar.test_machine import alt, grammar, lit, rule_sets, seq
from tests.support.expression_twin import Twin
from tests.support.machines import compile_rules
from tests.support.n_examples import n_examples

LETTERS = "ab"
AB = alt(lit("a"), lit("b"))
code_points = st.integers(0, LAST_CODE_POINT)
ranges = st.lists(st.tuples(code_points, code_points).map(sorted).map(tuple), max_size=6)


def spelled(tree_edges: tuple[tuple[tuple[int, int, int], ...], ...], text: bytes) -> bool:
    node = 0
    for byte in text:
        if node == END:
            return False
        node = next((after for first, last, after in tree_edges[node] if first <= byte <= last), len(tree_edges))
        if node == len(tree_edges):
            return False
    return node == END


@given(found=ranges, points=st.lists(code_points, max_size=20), negated=st.booleans())
def test_a_set_of_characters_spells_exactly_its_members(found, points, negated):
    """Every border of a range, its neighbours, and some more characters: in the tree iff in the set."""
    characters = Characters.of(found, negated=negated)
    tree = byte_tree(characters.ranges)
    near = {point + step for one in found for point in one for step in (-1, 0, 1)}
    for point in sorted({*points, *near}):
        if 0 <= point <= LAST_CODE_POINT and not 0xD800 <= point <= 0xDFFF:
            inside = any(first <= point <= last for first, last in characters.ranges)
            assert spelled(tree.edges, chr(point).encode()) == inside, hex(point)
    assert len(set(tree.edges)) == len(tree.edges), "two nodes are one"


def test_the_tree_of_all_characters():
    """The nine ways of RFC 3629, section 4, on eight nodes: the rows of its table that share what follows are one."""
    tree = byte_tree(Characters.of([], negated=True).ranges)
    assert [(first, last) for first, last, _ in tree.edges[0]] == [
        (0x00, 0x7F),
        (0xC2, 0xDF),
        (0xE0, 0xE0),
        (0xE1, 0xEC),
        (0xED, 0xED),
        (0xEE, 0xEF),
        (0xF0, 0xF0),
        (0xF1, 0xF3),
        (0xF4, 0xF4),
    ]
    assert len(tree.edges) == 8


def automaton(expression: object, steps: int = 10_000) -> RuleAutomaton:
    """Of an expression over ASCII, small enough to be made deterministic unless `steps` says otherwise."""
    nfa = Nfa(1000, "a rule")
    nfa.build(expression, lambda _: None)
    return simplify(nfa, Work(steps, 10_000))


@pytest.mark.parametrize(
    ("expression", "n_states"),
    [
        (Repeat(AB, 0, None), 1),
        (seq(Repeat(AB, 0, None), lit("a"), AB, AB), 8),
        (alt(lit("aab"), lit("bab"), lit("ab")), 5),
        (Repeat(alt(lit("aa"), lit("ab")), 0, 2), 5),
        (seq(lit("a"), Alternatives(())), 1),
    ],
)
def test_an_automaton_is_the_smallest(expression, n_states):
    """Counted by hand; and with too few steps the rule is kept as written, with the same texts."""
    small, kept = automaton(expression), automaton(expression, 4)
    assert len(small.edges) == n_states
    for n in range(6):
        for text in itertools.product(LETTERS.encode(), repeat=n):
            assert _accepts(small, text) == _accepts(kept, text)


def test_a_byte_of_zero_is_one_as_any_other():
    """Read within a range or on its own it leads to the same state: the four after 0, 1, 2 and 3 bytes."""
    rules = grammar(root=alt(seq(lit("x"), Characters(((0, 1),)), lit("a")), lit("y\0a"), lit("y\1a")))
    assert len(compile_rules(rules).program.edges) == 4


def test_a_budget_of_edges_may_be_spent_to_the_last():
    """What a rule that stays nondeterministic costs is enough for it, and one less is an error."""

    def kept(n_edges: int) -> int:
        nfa, work = Nfa(1000, "a rule"), Work(0, n_edges)
        nfa.build(lit("ab"), lambda _: None)
        simplify(nfa, work)
        return n_edges - work.edges

    cost = kept(1000)
    assert kept(cost) == cost
    with pytest.raises(GrammarError, match="a rule has too many continuations"):
        kept(cost - 1)


def _accepts(rule: RuleAutomaton, text: tuple[int, ...]) -> bool:
    states = {0}
    for byte in text:
        states = {target for state in states for label, target in rule.edges[state] if label >> byte & 1}
    return any(rule.final[state] for state in states)


@given(edges=st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), min_size=10, max_size=10))
def test_rings_are_what_reaches_each_other(edges):
    """Components are the classes of mutual reachability, and come after all that they lead to."""
    reach = {node: {node} for node in edges}
    for _ in edges:
        reach = {node: {far for near in found for far in {near, *edges[near]}} for node, found in reach.items()}
    found = rings(edges)
    assert sorted(node for ring in found for node in ring) == sorted(edges)
    for i, ring in enumerate(found):
        assert all(set(ring) == {other for other in reach[node] if node in reach[other]} for node in ring)
        assert all(not reach[node] & {later for after in found[i + 1 :] for later in after} for node in ring)


SOURCE = "root ::= a\na ::= bee | a\n"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (RuleSet({"a": EMPTY}), r"there is no rule 'root'; rules: a"),
        (
            RuleSet({"root": Reference("a"), "a": Reference("bee", Span(17, 20))}, text=SOURCE),
            "line 2, column 7: rule 'a' uses 'bee', which is not defined\n  a ::= bee [|] a\n        \\^",
        ),
        (
            RuleSet({"root": Reference("a"), "a": Reference("a")}, text=SOURCE, spans={"root": Span(0, 4)}),
            "line 1, column 1: no text matches 'root'",
        ),
        (grammar(root=Characters(())), "no text matches 'root'"),
        (grammar(root=Repeat(lit("a"), 3, 2)), "repeats from 3 to 2 times"),
        (grammar(root=Repeat(lit("a"), 1_000_000, 1_000_000)), "1000000 times, beyond the limit"),
        (grammar(root=Repeat(Repeat(Repeat(lit("a"), 1000, 1000), 1000, 1000), 1000, 1000)), "beyond the limit"),
        (grammar(root=Repeat(Repeat(EMPTY, 1000, 1000), 1000, 1000)), "beyond the limit"),
        (
            RuleSet({f"r{i}": Reference(f"r{i + 1}") for i in range(20_001)} | {"r20001": EMPTY}, "r0"),
            "uses 20002 rules",
        ),
        (grammar(root=lit("ab" * 500_000)), "expands to more than the 150000 states"),
    ],
)
def test_what_cannot_be_compiled(rules, message):
    """The error names the rule and its place, and what to do about it."""
    with pytest.raises(GrammarError, match=message):
        compile_rules(rules)


def _ring(n: int) -> RuleSet:
    return RuleSet(
        {
            f"r{i}": alt(
                *(seq(f"r{j}", lit(f"{i * j % 97}")) for j in range(n)), seq(lit("("), f"r{i * 7 % n}", lit(")"))
            )
            for i in range(n)
        }
        | {"root": alt(lit("x"), seq("r0", lit("y"))), "r0": alt(lit("x"), *(seq(f"r{j}", lit("z")) for j in range(n)))}
    )


def _deep(n: int) -> RuleSet:
    found = lit("x")
    for _ in range(n):
        found = Concatenation((lit("("), Alternatives((found, EMPTY))))
    return grammar(root=found)


BOMBS = {
    "a ring of rules that all begin with each other": (_ring(150), "too large to rewrite"),
    "expressions 30 000 deep": (_deep(30_000), None),
    "rules of rules": (
        RuleSet({f"r{i}": seq(f"r{i + 1}", f"r{i + 1}") for i in range(60)} | {"r60": lit("a")}, "r0"),
        None,
    ),
    "9 000 rules": (
        RuleSet({f"r{i}": alt(seq(lit("a"), f"r{(i + 1) % 9000}"), lit("b")) for i in range(9000)}, "r0"),
        None,
    ),
    "an automaton of 2**40 states": (grammar(root=seq(Repeat(AB, 0, None), lit("a"), Repeat(AB, 40, 40))), None),
    "optional within optional": (grammar(root=Repeat(Repeat(lit("a"), 0, 400), 0, 400)), "beyond the limit"),
    "a ring that each rule may leave out": (
        RuleSet({f"r{i}": alt(f"r{(i + 1) % 3000}", EMPTY, lit("a")) for i in range(3000)}, "r0"),
        None,
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_work_or_end_in_an_error(bomb):
    """What compiles also reads; what does not says why."""
    rules, message = BOMBS[bomb]
    if message is None:
        machine = compile_rules(rules)
        assert machine.walk(machine.start, b"(" if b"(" in _first(machine) else b"a") != DEAD
    else:
        with pytest.raises(GrammarError, match=message):
            compile_rules(rules)


@pytest.mark.long
@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_stay_within_the_memory_that_is_promised(bomb):
    """256 MB at the peak, the error included."""
    tracemalloc.start()
    try:
        test_bombs_work_or_end_in_an_error(bomb)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


def _first(machine: Machine) -> set[bytes]:
    return {bytes([byte]) for byte in range(256) if machine.step(machine.start, byte) != DEAD}


def test_an_undefined_rule_behind_an_unused_one_is_no_matter():
    """Only what the root leads to is compiled."""
    assert is_finite(compile_rules(grammar(root=lit("a"), unused=seq("missing"))).program)


def test_tight_limits_are_kept():
    """Without any steps nothing is made deterministic; the texts stay the same."""
    rules = grammar(root=alt(seq("root", lit("+"), "root"), Repeat(alt(lit("a"), lit("aa")), 1, 3)))
    quick, slow = compile_rules(rules), compile_rules(rules, GrammarLimits(max_work=0, max_inlined=0))
    for n in range(7):
        for text in itertools.product(b"a+", repeat=n):
            ends = [machine.walk(machine.start, bytes(text)) for machine in (quick, slow)]
            assert (ends[0] == DEAD) == (ends[1] == DEAD)
            assert ends[0] == DEAD or quick.can_end(ends[0]) == slow.can_end(ends[1])


def _texts(machine: Machine, most: int, longest: int) -> list[bytes]:
    """Accepted texts by length, as far as `most` situations go."""
    found, waiting = [], [(b"", machine.start)]
    for text, configuration in waiting:
        if machine.can_end(configuration):
            found.append(text)
        if len(text) < longest and len(waiting) < most:
            waiting += [
                (text + bytes([byte]), after)
                for byte in range(256)
                if (after := machine.step(configuration, byte)) != DEAD
            ]
    return found


@settings(max_examples=n_examples(60))
@given(rules=rule_sets)
def test_a_prefix_free_grammar_has_no_text_that_begins_another(rules):
    """Whenever that is said of it, of its shortest texts."""
    assume(Twin(rules).some(Reference("root")))
    machine = compile_rules(rules)
    texts = sorted(_texts(machine, 300, 8))
    if is_prefix_free(machine.program):
        assert not any(after.startswith(before) for before, after in itertools.pairwise(texts))


@settings(max_examples=n_examples(60))
@given(rules=rule_sets)
def test_a_finite_grammar_comes_to_an_end(rules):
    """Reading on by everything that may come dies out after so many symbols iff it is said to be finite."""
    assume(Twin(rules).some(Reference("root")))
    machine = compile_rules(rules)
    level = {machine.start}
    for _ in range(150):
        after = {machine.step(one, byte) for one in level for byte in _one_of_each_class(machine)}
        after |= {machine.take_terminal(one, i) for one in level for i in machine.token_terminals(one)}
        level = set(sorted(after - {DEAD})[:20])
    assert is_finite(machine.program) == (not level)


def _one_of_each_class(machine: Machine) -> list[int]:
    return [machine.class_of.tolist().index(kind) for kind in range(machine.n_classes)]


LONG = lit("x" * 40)
"""A rule with this in it is called rather than copied in, so that several rules are complete with one byte."""
PREFIX_FREE = [
    (grammar(root=alt(lit("yes"), lit("no"))), True, True),
    (grammar(root=alt(lit("yes"), lit("yesno"))), True, False),
    (grammar(root=alt(seq(lit("a"), "root"), lit("b"))), False, True),
    (grammar(root=alt(seq(lit("a"), "root"), lit("a"))), False, False),
    (grammar(root=alt(seq("root", lit("a")), lit("b"))), False, False),
    (grammar(root=alt(seq(lit("a"), "root", lit("b")), lit("c"))), False, True),
    (grammar(root="a", a=seq(lit("{"), Repeat(alt(Repeat(lit("1"), 1, None), "a"), 0, 1), lit("}"))), False, True),
    (
        grammar(root=seq("a", alt(lit(" "), EMPTY)), a=seq(lit("{"), Repeat(alt(lit("1"), "a"), 0, None), lit("}"))),
        False,
        False,
    ),
    (
        grammar(
            root=alt(seq("a", Repeat(seq(lit("+"), "a"), 0, None)), seq("b", Repeat(seq(lit("+"), "b"), 0, None))),
            a=seq("c", Repeat(seq(LONG, "c"), 0, None)),
            b=seq("c", Repeat(seq(LONG, "c"), 0, None)),
            c=LONG,
        ),
        False,
        False,
    ),
    (grammar(root=EMPTY), True, True),
    (grammar(root=alt(EMPTY, lit("a"))), True, False),
    (grammar(root=seq(lit("a"), TokenTerminal((1,)))), True, False),
]


@pytest.mark.parametrize(("rules", "finite", "prefix_free"), PREFIX_FREE)
def test_finite_and_prefix_free(rules, finite, prefix_free):
    """By hand; braces that nest are prefix-free though numbers within them are not."""
    program = compile_rules(rules).program
    assert (is_finite(program), is_prefix_free(program)) == (finite, prefix_free)


@settings(max_examples=n_examples(40))
@given(rules=rule_sets, seed=st.integers(0, 99))
def test_the_next_characters_are_those_whose_bytes_live(rules, seed):
    """Exactly those, each range with where its bytes lead; inside a character, the bytes that may go on."""
    assume(Twin(rules).some(Reference("root")))
    machine = compile_rules(rules)
    rng, configuration = random.Random(seed), machine.start
    for _ in range(rng.randrange(4)):
        live = [after for byte in range(256) if (after := machine.step(configuration, byte)) != DEAD]
        configuration = rng.choice(live) if live else configuration
    reader = Characterwise(machine, machine.program.class_of)
    choices = reader.choices(configuration)
    for point in [*map(ord, "abcé€😀"), 0xEA, 0x7FF, 0x800, 0x801, 0xFFFF, 0x10000, 0x10001]:
        after = [after for first, last, after in choices if first <= point <= last]
        assert (after or [DEAD]) == [machine.walk(configuration, chr(point).encode())]
    inner = {byte for first, last, _ in reader.continuations(configuration) for byte in range(first, last + 1)}
    assert inner == {byte for byte in range(0x80, 0xC0) if machine.step(configuration, byte) != DEAD}


def test_a_literal_of_any_bytes():
    """Bytes that are no UTF-8 are read as they are, and begin no character."""
    machine = compile_rules(grammar(root=alt(LiteralText(b"\xff\x80"), LiteralText(b"\xc3("))))
    assert machine.can_end(machine.walk(machine.start, b"\xff\x80"))
    assert Characterwise(machine, machine.program.class_of).choices(machine.start) == []


def test_twin_and_machine_know_the_same_empty_rules():
    """No text at all is an error at once, never a machine that reads nothing."""
    for rules in (grammar(root="root"), grammar(root=seq(lit("a"), "root")), grammar(root=Alternatives(()))):
        assert not Twin(rules).some(Reference("root"))
        with pytest.raises(GrammarError, match="no text matches 'root'"):
            compile_rules(rules, DEFAULT_LIMITS)
