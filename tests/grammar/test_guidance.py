"""Grammars of llguidance behind the automaton port."""

from __future__ import annotations

import ast
import json
import pickle
import random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from json_schemas import accepts, allowed_ids, piece_vocabulary
from selectrie.errors import GrammarError, ProtocolError
from selectrie.grammar import Grammar, llguidance
from selectrie.grammar.llguidance import GuidanceAutomaton, read_guidance
from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.schema.schema import read_schema
from selectrie.grammar.token_automaton import GrammarAutomaton, PrefixedAutomaton
from selectrie.testing import make_vocabulary, spell
from tests.support.machines import compile_rules
from tests.support.n_examples import n_examples
from tests.support.vocabularies import vocabulary_of

TINY = make_vocabulary()
CATS = 'start: " cat" | " bat"'

TRANSLATED = {
    "json": (
        r"""
        root   ::= value
        value  ::= object | array | string | number | "true" | "false" | "null"
        object ::= "{" (string ":" value ("," string ":" value)*)? "}"
        array  ::= "[" (value ("," value)*)? "]"
        string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
        number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)?
        """,
        r"""
        start: value
        value: object | array | STRING | NUMBER | "true" | "false" | "null"
        object: "{" (STRING ":" value ("," STRING ":" value)*)? "}"
        array: "[" (value ("," value)*)? "]"
        STRING: /"([^"\\\x00-\x1f]|\\["\\\/bfnrt])*"/
        NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?/
        """,
    ),
    "list": (
        r"""
        root ::= item+
        item ::= "- " [^\r\n]+ "\n"
        """,
        r"""
        start: item+
        item: /- [^\r\n]+\n/
        """,
    ),
    "arithmetic": (
        r"""
        root ::= sum
        sum  ::= term ([-+] term)*
        term ::= factor ([*/] factor)*
        factor ::= [0-9]+ | "(" sum ")"
        """,
        r"""
        start: sum
        sum: term (/[-+]/ term)*
        term: factor (/[*\/]/ factor)*
        factor: /[0-9]+/ | "(" sum ")"
        """,
    ),
    "date": (
        r"""
        root ::= [0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])
        """,
        r"""
        start: /[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])/
        """,
    ),
}
"""Grammars in GBNF, and by hand in llguidance's Lark."""


def shown(automaton, vocabulary, state):
    return [vocabulary.texts[token] for token in allowed_ids(automaton, state)]


def walked(automaton, vocabulary, pieces):
    state = automaton.start()
    for token in spell(vocabulary, pieces):
        state = automaton.advance(state, token)
    return state


def test_text_that_is_forced_may_be_cut_by_tokens_in_any_way():
    """Not only the token that llguidance would force is allowed."""
    vocabulary = make_vocabulary()
    automaton = GuidanceAutomaton(read_guidance(CATS), vocabulary)
    assert shown(automaton, vocabulary, automaton.start()) == [" ", " c", " b", " cat", " bat"]
    assert shown(automaton, vocabulary, walked(automaton, vocabulary, [" c"])) == ["a", "at"]


def test_a_text_ends_where_the_grammar_can_and_nothing_follows():
    """End-of-generation tokens are no part of what is allowed."""
    vocabulary = make_vocabulary()
    automaton = GuidanceAutomaton(read_guidance('start: " cat" "s"?'), vocabulary)
    state = walked(automaton, vocabulary, [" cat"])
    assert automaton.can_end(state)
    assert shown(automaton, vocabulary, state) == ["s"]
    state = walked(automaton, vocabulary, [" c", "at", "s"])
    assert automaton.can_end(state)
    assert shown(automaton, vocabulary, state) == []
    assert not automaton.can_end(automaton.start())


@pytest.mark.parametrize("token", [-1, 1, 3, 26, 10_000])
def test_a_token_that_is_not_allowed_is_refused(token):
    """Below, beyond and inside the vocabulary, and the one that ends a text; and the state stays what it was."""
    vocabulary = make_vocabulary()
    automaton = GuidanceAutomaton(read_guidance(CATS), vocabulary)
    before = shown(automaton, vocabulary, automaton.start())
    with pytest.raises(ProtocolError, match=f"token {token} is not allowed in state 0"):
        automaton.advance(automaton.start(), token)
    assert shown(automaton, vocabulary, automaton.start()) == before


def test_the_same_path_is_the_same_state():
    """States are numbers that copy for nothing."""
    vocabulary = make_vocabulary()
    automaton = GuidanceAutomaton(read_guidance(CATS), vocabulary)
    assert walked(automaton, vocabulary, [" c", "at"]) == walked(automaton, vocabulary, [" c", "at"])
    assert walked(automaton, vocabulary, [" c", "at"]) != walked(automaton, vocabulary, [" cat"])


def test_what_is_allowed_cannot_be_written_to():
    """All states with the same tokens share one array: as bools where many are allowed, as ids where few are."""
    automaton = GuidanceAutomaton(read_guidance("start: /.b?/"), TINY)
    many, few = (automaton.allowed(state) for state in (automaton.start(), automaton.walk(automaton.start(), b"a")))
    assert (many.dtype, few.dtype) == (np.bool_, np.int32)
    for allowed in (many, few):
        with pytest.raises(ValueError, match="read-only"):
            allowed[0] = 1


def test_states_stay_valid_whatever_is_dropped():
    """With room for one matcher and one mask every answer is the one with room for all."""
    vocabulary = piece_vocabulary([b'":', b'{"', b"12", b'"a'])
    grammar = read_guidance(TRANSLATED["json"][1])
    roomy, tight = GuidanceAutomaton(grammar, vocabulary), GuidanceAutomaton(grammar, vocabulary, cache_bytes=0)
    rng = random.Random(1)
    pairs = [(roomy.start(), tight.start())]
    for _ in range(150):
        state, twin = rng.choice(pairs)
        ids = allowed_ids(roomy, state)
        assert ids == allowed_ids(tight, twin)
        assert roomy.can_end(state) == tight.can_end(twin)
        if ids:
            token = rng.choice(ids)
            pairs.append((roomy.advance(state, token), tight.advance(twin, token)))
    assert len(tight._matchers._values) == 1
    assert len(roomy._matchers._values) > 50


def test_where_no_token_fits_nothing_is_allowed():
    """A dead end is for the search to report: no error, and it is no end."""
    vocabulary = make_vocabulary([b"a", b"ab"])
    automaton = GuidanceAutomaton(read_guidance('start: "ac" | "ab"'), vocabulary, cache_bytes=0)
    state = automaton.advance(automaton.start(), 2)
    for _ in range(2):
        assert allowed_ids(automaton, state) == []
        assert not automaton.can_end(state)
        assert allowed_ids(automaton, automaton.start()) == [2, 3]


def test_all_tokens_of_the_same_bytes_are_allowed():
    """SentencePiece has 256 tokens for bytes beside those of its characters."""
    vocabulary = make_vocabulary([b"a", b"b", b"a", b"ab"])
    automaton = GuidanceAutomaton(read_guidance('start: "ab" | "b"'), vocabulary)
    assert allowed_ids(automaton, automaton.start()) == [2, 3, 4, 5]
    assert shown(automaton, vocabulary, automaton.advance(automaton.start(), 4)) == ["b"]


def test_control_tokens_are_allowed_where_the_grammar_names_them():
    """Their spelling as text is something else, and one that ends a generation is never allowed."""
    vocabulary = make_vocabulary([b"a", b"<", b"bos", b">"])
    automaton = GuidanceAutomaton(read_guidance("start: <bos> /a/"), vocabulary)
    assert shown(automaton, vocabulary, automaton.start()) == ["<bos>"]
    assert shown(automaton, vocabulary, automaton.advance(0, 0)) == ["a"]
    automaton = GuidanceAutomaton(read_guidance('start: "<bos>a" | <eos> "a"'), vocabulary)
    assert shown(automaton, vocabulary, automaton.start()) == ["<"]


def test_tokens_may_end_inside_a_character():
    """Allowed iff some character goes on like that."""
    vocabulary = make_vocabulary()
    automaton = GuidanceAutomaton(read_guidance("start: /é/"), vocabulary)
    assert allowed_ids(automaton, automaton.start()) == [23, 25]
    assert allowed_ids(automaton, automaton.advance(0, 23)) == [24]


def test_bytes_lead_to_the_state_they_spell():
    """`walk` knows no tokens; it refuses where the grammar does, and stays refused."""
    vocabulary = make_vocabulary()
    automaton = GuidanceAutomaton(read_guidance(CATS), vocabulary)
    state = automaton.walk(automaton.start(), b" ca")
    assert shown(automaton, vocabulary, state) == ["t"]
    assert automaton.can_end(automaton.walk(state, b"t"))
    assert automaton.walk(automaton.start(), b" cx") == -1
    assert automaton.walk(-1, b"a") == -1
    assert automaton.walk(automaton.start(), b"\xff") == -1


def test_a_healed_prompt_goes_before_it():
    """Tokens may go beyond the prefix into the grammar."""
    vocabulary = make_vocabulary()
    automaton = PrefixedAutomaton(GuidanceAutomaton(read_guidance('start: "at" | "ar"'), vocabulary), vocabulary, b" c")
    assert shown(automaton, vocabulary, automaton.start()) == [" ", " c", " cat", " car"]
    assert automaton.can_end(walked(automaton, vocabulary, [" car"]))


@pytest.mark.parametrize("prefix", [b"", b" ", b"a", b"\xc3", b"zz", b"ab"])
def test_tokens_that_go_beyond_a_prefix(prefix):
    """As our own recogniser finds them, also inside a character and where a piece begins one that was refused."""
    pieces = [
        b" ",
        b" a",
        b" ab",
        b" ac",
        b" acb",
        b" b",
        b"a",
        b"aa",
        b"aab",
        b"ab",
        b"abab",
        b"\xc3\xa9",
        b"\xa9",
        b"\xc3\xa9a",
    ]
    vocabulary = make_vocabulary([*pieces, b"aaa\xc3", b" aa\xc3\xa9x", b"ab\xff"])
    guided = GuidanceAutomaton(read_guidance("/(a|ab|\u00e9)+x?/"), vocabulary)
    ours = Grammar.from_regex("(a|ab|\u00e9)+x?")._automaton_of(vocabulary)
    for text in (b"", b"a", b"aab"):
        states = [each.walk(each.start(), text) for each in (guided, ours)]
        found = [each.allowed_after(state, prefix) for each, state in zip((guided, ours), states, strict=True)]
        ids = [np.flatnonzero(one) if one.dtype == np.bool_ else one for one in found]
        assert ids[0].tolist() == ids[1].tolist()
    n_states = len(guided._parent)
    guided.allowed_after(guided.start(), b"a")
    assert len(guided._parent) == n_states


def test_rules_too_many_for_its_stack_are_refused():
    """Going into rules by recursion it would end the process."""
    chain = "start: r0\n" + "".join(f'r{i}: r{i + 1} | "a"\n' for i in range(5_000)) + 'r5000: "z"'
    with pytest.raises(GrammarError, match="5002 rules; llguidance reads at most 1000"):
        read_guidance(chain)
    items = {f"a{i}": {"items": {"$ref": f"#/$defs/a{i + 1}"}} for i in range(5_000)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**items, "a5000": {"type": "null"}}}
    with pytest.raises(GrammarError, match="at most 1000"):
        read_guidance(json.dumps({"grammars": [{"json_schema": schema}]}))
    with pytest.raises(GrammarError, match=r"\$ref at #/\$defs/a\d+.* at most 1000 are supported"):
        Grammar.from_json_schema(schema, route="llguidance")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("start: foo", 'line 1, column 8: unknown name: "foo"\n  start: foo\n         ^'),
        ('start: "a"\n  b\nx: "c', "line 3"),
        ("/a(?=b)/", "look-around"),
        ("start: start", "cannot spell any text"),
        ("", "no start rule"),
        ('{"x"', "the serialised grammar is not JSON"),
        ('{"grammars": []}', "at least one"),
        ('{"grammars": [{"json_schema": {"not": {}}}]}', 'Unimplemented keys: \\["not"\\]'),
        ('{"grammars": [{"lark_grammar": "start: /a/"}], "max_tokens": 3}', "max_tokens"),
        ("start: <nope>", "nope"),
        ("(" * 1_000_000, "1000000 characters"),
        ("(" * 400_000, "."),
        ("start: " + "(" * 400_000, "."),
        ('{"grammars": ' + "[" * 500_000, "."),
    ],
)
def test_what_llguidance_refuses_is_a_grammar_error(text, message):
    """With its message, and the place with a caret where it gives one."""
    with pytest.raises(GrammarError, match=message.replace("^", "\\^")):
        read_guidance(text).automaton(make_vocabulary())


def test_a_regular_expression_matches_the_whole_text():
    """Slashes around it, or by name, then without."""
    for grammar in (read_guidance("/[ab]+c/"), read_guidance("[ab]+c", dialect="regex")):
        automaton = grammar.automaton(piece_vocabulary())
        assert [accepts(automaton, text) for text in (b"abc", b"c", b"abcc", b"ab")] == [True, False, False, False]


def test_the_digest_is_that_of_the_grammar_and_of_what_reads_it():
    """Equal grammars have equal digests, others others."""
    assert read_guidance(CATS).digest == read_guidance(CATS).digest != read_guidance(CATS + " ").digest
    assert read_guidance(CATS).route.startswith("llguidance ")
    assert (
        llguidance.GuidanceGrammar("x", "llguidance 1").digest != llguidance.GuidanceGrammar("x", "llguidance 2").digest
    )


@given(words=st.lists(st.text("abc\u00e9", max_size=4), min_size=1, max_size=6, unique=True))
def test_allowed_tokens_are_those_that_some_word_goes_on_with(words):
    """Brute force over the vocabulary, along every word."""
    vocabulary = TINY
    lark = "start: " + " | ".join(f'"{word}"' for word in words)
    automaton = GuidanceAutomaton(read_guidance(lark), vocabulary)
    texts = [word.encode() for word in words]
    for text in texts:
        for n in range(len(text) + 1):
            state = automaton.walk(automaton.start(), text[:n])
            expected = [
                token
                for token, piece in enumerate(vocabulary.pieces)
                if piece and any(other.startswith(text[:n] + piece) for other in texts)
            ]
            assert allowed_ids(automaton, state) == expected
            assert automaton.can_end(state) == (text[:n] in texts)


def compare(name, vocabulary, *, paths, seed=0):
    """Asserts that both recognisers allow the same along random paths; gives how many states were compared."""
    gbnf, lark = TRANSLATED[name]
    ours = GrammarAutomaton(compile_rules(read_gbnf(gbnf)), vocabulary)
    theirs = GuidanceAutomaton(read_guidance(lark), vocabulary)
    rng = random.Random(seed)
    compared = 0
    for _ in range(paths):
        state, twin = ours.start(), theirs.start()
        for _ in range(24):
            ids = allowed_ids(ours, state)
            np.testing.assert_array_equal(ids, allowed_ids(theirs, twin))
            assert ours.can_end(state) == theirs.can_end(twin)
            compared += 1
            if not ids:
                break
            plain = [token for token in rng.sample(ids, min(8, len(ids))) if vocabulary.pieces[token].isascii()]
            token = rng.choice(plain or ids)
            state, twin = ours.advance(state, token), theirs.advance(twin, token)
    return compared


@pytest.mark.parametrize("name", TRANSLATED)
def test_both_recognisers_allow_the_same(name):
    """The same grammar, ours and llguidance's, along random paths over bytes and some longer tokens."""
    longer = [
        b'{"',
        b'":',
        b'","',
        b"- ",
        b"a\n- b",
        b"12",
        b"2024-",
        b"-0",
        b"1)",
        "é\n".encode(),
        b"\n-",
        b"]}",
        b"3*(4",
        b'\\"',
    ]
    assert compare(name, piece_vocabulary(longer), paths=12) > 60


@pytest.mark.long
@pytest.mark.parametrize("name", TRANSLATED)
def test_both_recognisers_allow_the_same_of_real_tokens(name, real_vocabulary):
    """As above on real vocabularies."""
    assert compare(name, vocabulary_of(real_vocabulary), paths=12) > 60


WORDS = {"type": "string", "maxLength": 500, "pattern": r"^(?:\S+\s+){0,49}\S+$"}
"""Its lexer spends much on each blank."""


@pytest.mark.short("string", "name")
@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (WORDS, '"I have not tried it yet."'),
        ({"patternProperties": {"[A-Za-z0-9]{1,255}": {"type": "string"}}}, '{"x": "a"}'),
        ({"properties": {f"p{i}": {"type": "integer"} for i in range(2_000)}}, '{"p5": 1, "p1999": 2}'),
    ],
    ids=["string", "name", "properties"],
)
def test_a_text_is_one_however_much_its_lexer_costs(schema, text):
    """By bytes as by tokens; llguidance's own limits once said no to them."""
    grammar = Grammar.from_json_schema(schema)
    assert grammar.accepts(text).verdict == "yes"
    assert accepts(grammar._source.automaton(piece_vocabulary([b'"I have', b'{"x'])), text.encode())


def test_too_many_ways_to_go_on_are_told_as_such():
    """By what to do about them, not by llguidance's parser."""
    grammar = Grammar.from_json_schema({"properties": {f"p{i}": {"type": "null"} for i in range(200)}})
    with (
        patch.object(llguidance, "LIMITS", {**llguidance.LIMITS, "max_items_in_row": 500}),
        pytest.raises(GrammarError, match=r"in 807 ways at one position.* fewer optional properties"),
    ):
        grammar.accepts("{")


@settings(max_examples=n_examples(15))
@given(
    words=st.lists(st.text("abI\u00e9", min_size=1, max_size=4), min_size=3, max_size=12),
    most=st.sampled_from([20, 200, 500]),
    fuel=st.sampled_from([2_000, 10_000, 30_000, 200_000]),
)
def test_a_reader_that_gives_up_says_so(words, most, fuel):
    """With less for its lexer to spend it says the same, or raises; it never refuses a text for that."""
    grammar = read_schema({**WORDS, "maxLength": most})
    vocabulary = piece_vocabulary([b"ab", b"a b", b"a a b I a b", b"a a"])
    spelled = json.dumps(" ".join(words), ensure_ascii=False).encode()

    def readings():
        automaton = grammar.automaton(vocabulary)
        yield automaton.allowed_after(automaton.walk(automaton.start(), b'"'), b"a").tolist()
        states = [automaton.walk(automaton.start(), spelled[:n]) for n in range(0, len(spelled) + 1, 5)]
        yield [state >= 0 for state in states]
        yield [automaton.allowed_after(state, b"a").tolist() for state in states if state >= 0]
        yield Grammar(grammar).accepts(spelled).verdict

    expected = [*readings()]
    with patch.object(llguidance, "LIMITS", {"step_lexer_fuel": fuel}):
        try:
            for reading, found in zip(readings(), expected, strict=True):
                assert reading == found
        except GrammarError as error:
            assert "llguidance gave up" in str(error)  # noqa: PT017 - it may as well not


def test_tokens_that_its_lexer_gives_up_on_are_not_refused():
    """Tokens are tried one by one there, and a limit of its own must not pass for a refusal."""
    grammar = read_schema({**WORDS, "maxLength": 500})
    with patch.object(llguidance, "LIMITS", {"step_lexer_fuel": 5_000}):
        automaton = grammar.automaton(piece_vocabulary([b"a a", b"a b b b b b b", b"aI a b a a b a b"]))
        inside = automaton.walk(automaton.start(), b'"')
        with pytest.raises(GrammarError, match="llguidance gave up"):
            automaton.allowed_after(inside, b"a")


class Counted(GuidanceAutomaton):
    """Counts the tokens that are read."""

    n_steps = 0

    def _step(self, state, token):
        type(self).n_steps += 1
        return super()._step(state, token)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Grammar.from_json_schema({"type": "string"}), '"ab'),
        (lambda: Grammar.from_json_schema({"type": "string"}), '"a\n'),
        (lambda: Grammar.from_llguidance("start: /[^x]*y/"), "abx"),
    ],
)
def test_a_verdict_takes_a_step_a_byte_and_what_is_expected_few_more(make, text, monkeypatch):
    """Where any character may stand it once took a matcher for each, 1.1 million."""
    monkeypatch.setattr(llguidance, "GuidanceAutomaton", Counted)
    Counted.n_steps = 0
    verdict = make().accepts(text)
    assert bool(verdict) is False
    assert Counted.n_steps <= len(text.encode())
    assert len(verdict.expected) < 20
    assert Counted.n_steps < 500
    assert verdict.expected is verdict.expected


def named(expected, character):
    """Is a character among what a verdict says is expected, by itself, in a range, or by its first byte?"""
    for one in expected:
        ends = one.split("\u2026")
        if ends[0].startswith("byte"):
            low, high = (int(end.removeprefix("byte "), 0) for end in (ends[0], ends[-1]))
            if low <= character.encode()[0] <= high:
                return True
        elif one != "the end":
            low, high = (
                int(f"0x{end[2:]}", 0) if end[:2] == "U+" else ord(ast.literal_eval(end)) for end in (ends[0], ends[-1])
            )
            if low <= ord(character) <= high:
                return True
    return False


@pytest.mark.parametrize(
    ("lark", "texts"),
    [
        ("start: /[^x\u20ac]*y/", ["", "a", "\u00e9"]),
        ("start: /[a\u00e9\u65e5\U0001f600\u0900-\u0903]+/", ["", "a", "\u65e5"]),
        (r"start: /\"[^\"\\\x00-\x1f]*\"/", ["", '"', '"\u00e9"']),
    ],
)
def test_what_is_expected_is_what_may_follow(lark, texts):
    """A character that is named may stand there, and one that is not may not; a first byte stands for some of its own."""
    grammar = Grammar.from_llguidance(lark)
    for text in texts:
        expected = grammar.accepts(text).expected
        for character in 'aexy"\\\n\u00e9\u00fc\u20ac\u65e5\u0902\u0904\U0001f600\U0001f601':
            may_follow = grammar.accepts(text + character).verdict != "no"
            assert not may_follow or named(expected, character)
            if not any(one.startswith("byte") for one in expected):
                assert may_follow == named(expected, character)


def test_a_verdict_can_be_sent_to_another_process():
    """With all that it says."""
    verdict = Grammar.from_llguidance(CATS).accepts(" c")
    sent = pickle.loads(pickle.dumps(verdict))  # noqa: S301
    assert (sent, sent.expected) == (verdict, ("'a'",))
