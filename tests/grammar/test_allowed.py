"""Allowed tokens against trying every token of the vocabulary; token terminals, healed prefixes, the byte trie."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from selectrie.core.types import ROOT
from selectrie.errors import GrammarError, ProtocolError
from selectrie.grammar import token_mask
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.machine.nfa import GrammarLimits
from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.rules import (
    Alternatives,
    Characters,
    Concatenation,
    LiteralText,
    Reference,
    Repeat,
    RuleSet,
    TokenTerminal,
)
from selectrie.grammar.token_automaton import GrammarAutomaton, PrefixedAutomaton
from selectrie.grammar.token_mask import BOUNDARY, BROKEN, byte_trie
from selectrie.testing import make_vocabulary
from tests.support.machines import compile_rules
from tests.support.n_examples import n_examples
from tests.support.slow_machine import SlowMachine
from tests.support.vocabularies import vocabulary_of

CHARACTERS = "ab é\u20ac\u20ad\U0001f600"
FRAGMENTS = (
    *(c.encode() for c in CHARACTERS),
    b'"',
    b"\xc3",
    b"\xe2",
    b"\xe2\x82",
    b"\x82",
    b"\xac",
    b"\xf0\x9f",
    b"\xed\xa0",
    b"\xc0",
)

TERMINALS = (TokenTerminal(("<bos>",)), TokenTerminal((3, 5), negated=True))

pieces = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5).map(b"".join)
vocabularies = st.lists(pieces, min_size=4, max_size=30).map(make_vocabulary)
ranges = st.lists(st.sampled_from(CHARACTERS).map(ord).map(lambda c: (c, c + 1)), min_size=1, max_size=3)
leaves = st.one_of(
    st.sampled_from(["", "a", '"', "b é", "\u20ac"]).map(lambda text: LiteralText(text.encode())),
    st.builds(lambda found, negated: Characters.of(found, negated=negated), ranges, st.booleans()),
    st.sampled_from(TERMINALS),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: Concatenation(tuple(items))),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: Alternatives(tuple(options))),
        st.builds(Repeat, inner, st.integers(0, 2), st.one_of(st.none(), st.integers(2, 3))),
        inner.map(
            lambda item: Alternatives((item, Concatenation((LiteralText(b'"'), Reference("root"), LiteralText(b'"')))))
        ),
    ),
    max_leaves=8,
)
ANY_TEXT = Repeat(Characters.of([(ord('"'), ord('"'))], negated=True), 0, None)
STRING = Concatenation((LiteralText(b'"'), ANY_TEXT, LiteralText(b'"')))


def of_rule(expression):
    return RuleSet({"root": expression})


def brute(machine, vocabulary, state):
    """Every token, one after the other: bytes that are accepted, or a terminal that stands for it."""
    terminals = [machine.token_sets[t] for t in machine.token_terminals(state)]
    spelled = {text: token for token, text in enumerate(vocabulary.texts)}
    named = [({spelled.get(each, each) for each in terminal.tokens}, terminal.negated) for terminal in terminals]
    ends = set(vocabulary.eog.tolist())
    return [
        token
        for token, piece in enumerate(vocabulary.pieces)
        if token not in ends
        and (
            (piece and machine.walk(state, piece) >= 0)
            or any((token in tokens) != negated for tokens, negated in named)
        )
    ]


def ids_of(allowed):
    return (np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed).tolist()


def machine_of(expression):
    try:
        return compile_rules(of_rule(expression))
    except GrammarError:
        assume(False)


def check_along_a_path(machine, vocabulary, rng, *, n_steps=3):
    """Compare with trying every token in each state of a random path; returns its states."""
    automaton = GrammarAutomaton(machine, vocabulary)
    states = [automaton.start()]
    while len(states) <= n_steps:
        state = states[-1]
        expected = brute(machine, vocabulary, state)
        allowed = automaton.allowed(state)
        assert ids_of(allowed) == expected
        assert allowed.dtype in (np.int32, np.bool_)
        assert not allowed.flags.writeable
        assert allowed is automaton.allowed(state)
        for token in sorted({-1, *range(vocabulary.n_tokens + 1)} - set(expected))[:: vocabulary.n_tokens // 20 + 1]:
            with pytest.raises(ProtocolError, match=f"token {token} is not allowed"):
                automaton.advance(state, token)
        if not expected:
            break
        states.append(automaton.advance(state, rng.choice(expected)))
    return states


@pytest.fixture(params=["usual", "always"])
def leaps(request, monkeypatch):
    """Shortcuts for many tokens as they are, and taken for every single one."""
    if request.param == "always":
        monkeypatch.setattr(token_mask, "_HEAVY", 0)
        monkeypatch.setattr(token_mask, "_LEAP", 0)


@settings(max_examples=n_examples(30))
@given(expressions, vocabularies, st.randoms(use_true_random=False))
@example(ANY_TEXT, make_vocabulary(FRAGMENTS), random.Random(0))
@example(STRING, make_vocabulary([b'"a', b'a"', b"\xe2\x82", b"\xac", b"a\xed\xa0b", b"a", b"a"]), random.Random(0))
def test_allowed_tokens_are_those_that_trying_finds(leaps, expression, vocabulary, rng):
    """Along a random path: the tokens, their order, and that none of the others can be taken."""
    check_along_a_path(machine_of(expression), vocabulary, rng)


@settings(max_examples=n_examples(30))
@given(expressions, vocabularies, st.randoms(use_true_random=False))
def test_a_machine_of_plain_stacks_allows_the_same(expression, vocabulary, rng):
    """The walk asks nothing of a machine but its table: one that tells every byte from every other gives the same tokens."""
    compiled = machine_of(expression)
    slow = SlowMachine(of_rule(expression), compiled.token_sets)
    automata = [GrammarAutomaton(machine, vocabulary) for machine in (slow, compiled)]
    states = check_along_a_path(slow, vocabulary, rng)
    assert states[0] == slow.start
    assert ids_of(automata[0].allowed(slow.start)) == ids_of(automata[1].allowed(compiled.start))


def check_on_real_vocabulary(path, seeds, n_steps):
    vocabulary = vocabulary_of(path)
    for seed in seeds:
        rng = random.Random(seed)
        text = rng.choice(REAL_GRAMMARS)
        check_along_a_path(compile_rules(read_gbnf(text)), vocabulary, rng, n_steps=n_steps)


JSON = r"""root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (string ws ":" ws value (ws "," ws string ws ":" ws value)*)? ws "}"
array ::= "[" ws (value (ws "," ws value)*)? ws "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt] | "\\u" [0-9a-fA-F]{4})* "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)?
ws ::= [ \t\n]*"""
REAL_GRAMMARS = (
    JSON,
    'root ::= ([\u4e00-\u9fff\u0430-\u044f]+ [ \\n])* "."',
    'root ::= ("# " [^\\n\\u00a0\\u2028]* "\\n")+',
    'root ::= word (" " word)*\nword ::= [a-z]+ | [A-Z] [a-z]* | "I" "\'" [a-z]',
    "root ::= " + " | ".join(f'"{chr(c)}" [^{chr(c)}]*' for c in range(ord("A"), ord("z")) if chr(c) not in "[\\]^"),
)
"""The last one tells more than 63 classes of bytes apart."""


def test_allowed_tokens_of_real_vocabularies(real_vocabulary):
    """Two states of a random path on each of six vocabularies, every token tried."""
    check_on_real_vocabulary(real_vocabulary, [real_vocabulary.name], n_steps=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_allowed_tokens_of_real_vocabularies_at_length(real_vocabulary, seed):
    """Twenty states of ten random paths on each."""
    check_on_real_vocabulary(real_vocabulary, [seed], n_steps=20)


@pytest.mark.parametrize("prefix", [b"", b"say ", b"\xf0\x9f"])
def test_states_inside_texts_of_a_real_vocabulary(real_vocabularies, prefix):
    """Shortcuts for many tokens leave none out: every character allowed but some, also inside one."""
    vocabulary = vocabulary_of(real_vocabularies[3])
    for pattern in ('[^"]*', "[^\\n\\u00a0]*", '[a-z \\u65e5\\U0001f600-\\U0001f64f"]*'):
        machine = compile_rules(read_gbnf(f'root ::= {pattern} "\\"" [0-9]*'))
        state = machine.walk(machine.start, prefix)
        if state >= 0:
            automaton = GrammarAutomaton(machine, vocabulary)
            assert ids_of(automaton.allowed(state)) == brute(machine, vocabulary, state)


def test_more_classes_than_there_are_bits(real_vocabularies):
    """A grammar that tells more than 63 classes of bytes apart is walked right, too."""
    machine = compile_rules(read_gbnf(REAL_GRAMMARS[-1]))
    assert machine.n_classes > 63
    vocabulary = vocabulary_of(real_vocabularies[0])
    automaton = GrammarAutomaton(machine, vocabulary)
    for text in (b"", b"a", b"Z1"):
        state = machine.walk(machine.start, text)
        assert ids_of(automaton.allowed(state)) == brute(machine, vocabulary, state)


@given(st.sets(st.integers(0x20, 0x10FFFF), min_size=1, max_size=3), st.booleans())
@example({0xE9}, False)
@example({0x20AC, 0x20AD}, True)
def test_part_of_a_character_is_allowed_where_one_goes_on_so(code_points, negated):
    """A token that ends inside a character is allowed if some character of the set begins with its bytes, else not."""
    characters = Characters.of([(c, c) for c in code_points if not 0xD800 <= c <= 0xDFFF], negated=negated)
    assume(characters.ranges)
    whole = [chr(c).encode() for c in {*code_points, 0xE9, 0x20AC, 0x1F600} if not 0xD800 <= c <= 0xDFFF]
    begun = sorted(
        {text[:n] for text in whole for n in range(1, len(text) + 1)} | {b"\xc0", b"\xed\xa0", b"\xf5", b"\x80"}
    )
    vocabulary = make_vocabulary(begun)
    automaton = GrammarAutomaton(compile_rules(of_rule(characters)), vocabulary)
    allowed = {vocabulary.pieces[token] for token in ids_of(automaton.allowed(automaton.start()))}
    assert allowed == {text for text in begun if goes_on(text, characters)}


def goes_on(begun, characters):
    """Does some character of the set begin with these bytes? Tried with the characters at and between the ends of ranges."""
    try:
        begun.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return False
    first, last = (next_character(begun, fill) for fill in (0x80, 0xBF))
    return any(low <= last and first <= high for low, high in characters.ranges)


def next_character(begun, fill):
    """The least or greatest code point that begins so: bytes of one kind after it, kept within what UTF-8 has."""
    length = 1 if begun[0] < 0x80 else 2 if begun[0] < 0xE0 else 3 if begun[0] < 0xF0 else 4
    value = begun[0] & (0x7F, 0x1F, 0x0F, 0x07)[length - 1]
    for byte in (*begun[1:], *[fill] * (length - len(begun))):
        value = value << 6 | byte & 0x3F
    least = (0, 0x80, 0x800, 0x10000)[length - 1]
    return min(max(value, least), 0x10FFFF)


def vocabulary_with_control():
    """Ids 0 <bos>, 1 <eos>, 2 a, 3 b, 4 <think> (control), 5 `<think>` as plain text."""
    vocabulary = make_vocabulary([b"a", b"b", b"", b"<think>"])
    texts = ("<bos>", "<eos>", "a", "b", "<think>", "<think>")
    return dataclasses.replace(vocabulary, texts=texts, control=np.array([0, 1, 4], dtype=np.int32))


def state_after(automaton, *tokens):
    state = automaton.start()
    for token in tokens:
        state = automaton.advance(state, token)
    return state


def test_control_tokens_come_through_token_terminals_alone():
    """`<think>` in quotes is text, without quotes the control token; what both accept goes on with both."""
    vocabulary = vocabulary_with_control()

    def allowed_by(grammar, *tokens):
        automaton = GrammarAutomaton(compile_rules(read_gbnf(grammar)), vocabulary)
        return ids_of(automaton.allowed(state_after(automaton, *tokens)))

    assert allowed_by('root ::= "<think>" "a"') == [5]
    assert allowed_by('root ::= <think> "a"') == [4]
    assert allowed_by('root ::= <think> "a"', 4) == [2]
    assert allowed_by('root ::= <[4]> "a" | "<think>" "b"') == [4, 5]
    assert allowed_by('root ::= !<think> "a"') == [0, 2, 3, 5]
    assert allowed_by('root ::= !<[3]> "a" | "a" "b"') == [0, 2, 4, 5]
    assert allowed_by('root ::= !<[3]> "a" | "a" "b"', 2) == [2, 3]
    assert allowed_by('root ::= !<[3]> "a" | "a" "b"', 4) == [2]


@pytest.mark.parametrize(
    ("terminal", "message"),
    [
        ("<thinks>", "no token <thinks>; its control tokens include <think>"),
        ("<[6]>", "token 6 does not exist: ids run from 0 to 5"),
        ("<eos>", "<eos> .token 1. ends generation"),
        ("<[1]>", "<eos> .token 1. ends generation"),
    ],
)
def test_a_token_that_is_not_there_is_named(terminal, message):
    """A spelling or id that the vocabulary does not have, or that ends a generation, is an error before anything runs."""
    machine = compile_rules(read_gbnf(f"root ::= {terminal}"))
    with pytest.raises(GrammarError, match=message):
        GrammarAutomaton(machine, vocabulary_with_control())


def test_ends_of_generation_are_never_allowed():
    """Not even where they have bytes that the grammar accepts, or where every token but some may come."""
    vocabulary = dataclasses.replace(make_vocabulary([b"a", b"b"]), eog=np.array([1, 3], dtype=np.int32))
    for grammar in ("root ::= [ab]+", "root ::= (!<bos>)+"):
        automaton = GrammarAutomaton(compile_rules(read_gbnf(grammar)), vocabulary)
        state = state_after(automaton, 2)
        assert automaton.can_end(state)
        assert ids_of(automaton.allowed(state)) == [2]
        with pytest.raises(ProtocolError, match="token 3 is not allowed"):
            automaton.advance(state, 3)


def test_what_is_kept_stays_within_its_budget():
    """The least recently used is forgotten; asked again it is the same; the last one always stays."""
    vocabulary = make_vocabulary([b"a", b"b", b"ab", b"ba"])
    machine = compile_rules(read_gbnf('root ::= "aabbab"'))
    automaton = GrammarAutomaton(machine, vocabulary, cache_bytes=2 * (6 + 400))
    states = [machine.walk(machine.start, b"aabbab"[:n]) for n in range(4)]
    arrays = [automaton.allowed(state) for state in states]
    assert [each.nbytes for each in arrays] == [6] * 4
    assert automaton.allowed(states[3]) is arrays[3]
    for state, before in zip(states, arrays, strict=True):
        assert automaton.allowed(state).tolist() == before.tolist()
        assert len(automaton._kept) == 2
        assert automaton._kept_bytes == sum(each.nbytes + 400 for each in automaton._kept.values())
    roomy = GrammarAutomaton(machine, vocabulary)
    kept = [roomy.allowed(state) for state in states]
    assert all(roomy.allowed(state) is array for state, array in zip(states, kept, strict=True))


@given(expressions, vocabularies, pieces)
@settings(max_examples=n_examples(40))
@example(LiteralText(b"b"), make_vocabulary([b"a", b"ab", b"b", b"aab", b"aabb"]), b"aa")
def test_a_prefix_comes_first_however_tokens_cut_it(expression, vocabulary, prefix):
    """Allowed and reached is what the prefix and then the grammar as one grammar would allow, in every state."""
    assume(not machine_of(expression).token_sets)
    inner = GrammarAutomaton(machine_of(expression), vocabulary)
    joined = compile_rules(of_rule(Concatenation((Repeat(LiteralText(prefix), 1, 1), expression))))
    prefixed = PrefixedAutomaton(inner, vocabulary, prefix)
    todo = [(prefixed.start(), joined.start)]
    seen = set()
    while todo and len(seen) < 20:
        ours, theirs = todo.pop()
        if ours in seen:
            continue
        seen.add(ours)
        assert prefixed.can_end(ours) is joined.can_end(theirs)
        expected = brute(joined, vocabulary, theirs)
        assert ids_of(prefixed.allowed(ours)) == expected
        for token in range(-1, vocabulary.n_tokens + 1):
            if token in expected:
                todo.append((prefixed.advance(ours, token), joined.walk(theirs, vocabulary.pieces[token])))
            else:
                with pytest.raises(ProtocolError, match=f"token {token} is not allowed"):
                    prefixed.advance(ours, token)


def test_a_prefix_on_a_real_vocabulary(real_vocabularies):
    """Behind a space that was taken back: the space, tokens that begin with it, and nothing else."""
    vocabulary = vocabulary_of(real_vocabularies[0])
    machine = compile_rules(read_gbnf("root ::= [a-z]+ ([ ] [a-z]+)*"))
    prefixed = PrefixedAutomaton(GrammarAutomaton(machine, vocabulary), vocabulary, b" ")
    joined = compile_rules(read_gbnf("root ::= ([ ] [a-z]+)+"))
    assert ids_of(prefixed.allowed(prefixed.start())) == brute(joined, vocabulary, joined.start)


@settings(max_examples=n_examples(40))
@given(vocabularies)
@example(make_vocabulary([b"a", b"a", b"ab", b"\xc3", b"\xc3\xa9", b"a"]))
def test_the_byte_trie_holds_every_beginning_once(vocabulary):
    """A node for each beginning of a token, found by it, with the tokens that end there and those that go on."""
    trie = byte_trie(vocabulary)
    spelled = {token: piece for token, piece in enumerate(vocabulary.pieces) if piece}
    beginnings = {piece[:n] for piece in spelled.values() for n in range(len(piece) + 1)}
    assert trie.n_nodes == len(beginnings) == trie.levels[-1]
    for text in beginnings:
        node = trie.find(text)
        own = trie.token[trie.first_rank[node] : trie.own_stop[node]].tolist() if text else []
        assert own == [token for token, piece in spelled.items() if piece == text]
        below = trie.token[trie.own_stop[node] : trie.last_rank[node]].tolist()
        assert sorted(below) == [t for t, piece in spelled.items() if piece.startswith(text) and piece != text]
        assert trie.own_rank[node] == (trie.first_rank[node] if own else len(trie.token))
        assert trie.levels[len(text)] <= node < trie.levels[len(text) + 1]
        assert trie.find(text + b"\x01") == -1
        if text:
            assert trie.parent[node] == trie.find(text[:-1])
            assert trie.byte[node] == text[-1]
        assert phase_of(text) == {BOUNDARY: "whole", BROKEN: "broken"}.get(int(trie.phase[node]), "begun")
    assert trie.token[trie.rank[sorted(spelled)]].tolist() == sorted(spelled)
    assert byte_trie(vocabulary) is trie


def phase_of(text):
    """As Python's decoder sees it."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return "begun" if error.reason == "unexpected end of data" else "broken"
    return "whole"


def test_a_vocabulary_without_text_allows_nothing():
    """No token has bytes: an empty trie, no token, no error."""
    vocabulary = make_vocabulary([])
    assert byte_trie(vocabulary).n_nodes == 1
    automaton = GrammarAutomaton(compile_rules(of_rule(LiteralText(b"a"))), vocabulary)
    assert ids_of(automaton.allowed(automaton.start())) == []
    assert byte_trie(vocabulary).find(b"") == ROOT


@pytest.mark.parametrize("name", ["c", "chess", "japanese", "json"])
def test_a_path_of_tokens_is_the_walk_of_its_bytes(name, test_data, real_vocabularies):
    """States depend on bytes alone: a path of tokens and the text it spells lead to the same one."""
    vocabulary = vocabulary_of(real_vocabularies[3])
    machine = compile_rules(read_gbnf(Path(test_data(f"grammar/gbnf/{name}.gbnf")).read_text()))
    automaton, rng = GrammarAutomaton(machine, vocabulary), random.Random(name)
    state, text = automaton.start(), b""
    for _ in range(20):
        ids = ids_of(automaton.allowed(state))
        if not ids:
            break
        token = rng.choice(ids)
        state, text = automaton.advance(state, token), text + vocabulary.pieces[token]
        assert automaton.walk(automaton.start(), text) == state


def test_looking_for_what_may_follow_is_bounded():
    """Each look has its steps; reading byte by byte asks for few at a time, so it goes on."""
    grammar = "root ::= [a-c] (root | [b-d] root [a-c]) [a-d] | [a-b]"
    vocabulary = make_vocabulary([bytes(one) for n in range(1, 5) for one in itertools.product(b"abcd", repeat=n)])
    machine = compile_rules(read_gbnf(grammar), GrammarLimits(max_steps=700))
    with pytest.raises(GrammarError, match="takes more than 700 steps"):
        GrammarAutomaton(machine, vocabulary).allowed(machine.start)
    assert machine.walk(machine.start, b"abc" * 10) != DEAD
    assert machine.n_spent > 700
    roomy = compile_rules(read_gbnf(grammar), GrammarLimits(max_steps=100_000))
    automaton = GrammarAutomaton(roomy, vocabulary)
    state = automaton.start()
    while roomy.n_spent < 100_000:
        state = automaton.advance(state, ids_of(automaton.allowed(state))[-1])


def test_many_token_terminals_take_little():
    """Twenty thousand of them, alone and excluded: rows of flags for each would take 40 MB a thousand tokens."""
    vocabulary = make_vocabulary([b"a", b"b"])
    for text, expected in (("<[2]>", [2]), ("!<[2]>", [0, 1, 3])):
        rules = "root ::= " + " | ".join(f'{text} "{i:x}"' for i in range(2_000))
        automaton = GrammarAutomaton(compile_rules(read_gbnf(rules)), vocabulary)
        eog = set(vocabulary.eog.tolist())
        assert ids_of(automaton.allowed(automaton.start())) == [each for each in expected if each not in eog]
