"""What is told about a grammar: unused rules, left recursion, ambiguity, samples."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from selectrie.errors import GrammarError
from selectrie.grammar import Grammar, installed_names
from selectrie.grammar.analysis import MANY, DerivationCounter, report_on
from selectrie.grammar.enumeration import Texts
from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.rules import Alternatives, Characters, Concatenation, LiteralText, Reference, Repeat, RuleSet
from tests.support.n_examples import n_examples
from tests.support.random_texts import count_derivations


def report(text: str):
    return Grammar.from_gbnf(text).check()


def test_a_sound_grammar_has_nothing_to_mend():
    """Finite, counted, one way to make each text."""
    found = report('root ::= a | "c"\na ::= "a" | "b"')
    assert found.sound
    assert (found.finite, found.n_texts, found.n_rules, found.ambiguous) == (True, 3, 2, None)
    assert found.left_recursion == found.unreachable == found.unproductive == found.empty == found.undefined == ()
    assert set(found.samples) <= {"a", "b", "c"}


def test_rules_without_use_are_named():
    """Not reached, without texts, with the empty text alone: each is one thing."""
    found = report('root ::= "a" e | n\nn ::= "x" n\ne ::= "" ("" | e2){2}\ne2 ::= ""\nu ::= root v\nv ::= "b"?')
    assert found.unreachable == ("u", "v")
    assert found.unproductive == ("n",)
    assert found.empty == ("e", "e2")
    assert not found.sound
    assert found.n_texts == 1


@pytest.mark.parametrize(
    ("text", "cycles"),
    [
        ('root ::= root "a" | "b"', (("root",),)),
        ('root ::= "a" root | "b"', ()),
        ('root ::= a "x" | "y"\na ::= root "z" | "w"', (("root", "a"),)),
        ('root ::= o root "a" | "b"\no ::= "x"?', (("root",),)),
        ('root ::= o root "a" | "b"\no ::= "x"', ()),
        ('root ::= ("q"? root)* "b"', (("root",),)),
        ('root ::= "x" a b\na ::= c "1" | "2"\nc ::= a "3"\nb ::= b "4" | "5"', (("a", "c"), ("b",))),
        ('root ::= a | "r"\na ::= b | root "q"\nb ::= a "z" | "b"', (("root", "a"),)),
    ],
)
def test_left_recursion_is_shown_as_a_cycle(text, cycles):
    """The shortest one of each knot, from its first rule on; what only looks like it is not shown, and all of it compiles."""
    found = report(text)
    assert found.left_recursion == cycles
    assert found.error is None


def test_a_grammar_without_texts_is_reported_with_its_error():
    """What can be said without compiling is said."""
    found = report('root ::= "a" root')
    assert not found.sound
    assert "no text matches 'root'" in str(found.error)
    assert (found.unproductive, found.finite, found.samples) == (("root",), None, ())


def test_a_grammar_whose_texts_cannot_be_read_is_reported_with_its_error(monkeypatch: pytest.MonkeyPatch):
    """It compiles, and its machine comes to a limit at the first text."""

    def drawn(*_: object, **__: object) -> str:
        raise GrammarError("too ambiguous")

    monkeypatch.setattr(Texts, "draw", drawn)
    found = report('root ::= "a"')
    assert "too ambiguous" in str(found.error)
    assert (found.sound, found.finite, found.samples) == (False, True, ())


def test_undefined_rules_are_all_named():
    """No reader lets them through; rules made by hand may have them."""
    found = report_on(RuleSet({"root": Concatenation((Reference("x"), Reference("y"), LiteralText(b"a")))}), seed=0)
    assert found.undefined == ("x", "y")
    assert found.error is not None


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ('root ::= "a" | [a-c]', "a"),
        ('root ::= "a"? "a"?', "a"),
        ('root ::= root root | "a"', "aaa"),
        ('root ::= a | b\na ::= "x"* "y"\nb ::= "x" "y"*', "x y".replace(" ", "")),
        ('root ::= ([0-9] | [1-9] [0-9]*) "!"', "1!"),
        ("root ::= root | [a]", "a"),
        ('root ::= ("a"?)*', None),
        ('root ::= ("a"*)*', "aa"),
        ('root ::= "(" root ")" | "x"', None),
        ('root ::= "a" root | ""', None),
    ],
)
def test_the_shortest_ambiguous_text_is_shown(text, example):
    """Where a short text has two derivations; none is made up."""
    assert report(text).ambiguous == example


leaves = st.sampled_from(
    [LiteralText(b""), LiteralText(b"a"), LiteralText(b"ab"), Characters.of([(97, 98)]), Reference("x"), Reference("x")]
)
expressions = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda items: Concatenation(tuple(items)))
        | st.lists(inner, min_size=1, max_size=3).map(lambda options: Alternatives(tuple(options)))
        | st.builds(lambda item, most: Repeat(item, 0, most), inner, st.sampled_from([1, 2]))
    ),
    max_leaves=6,
)
flat = st.sampled_from(
    [LiteralText(b"a"), LiteralText(b"b"), Alternatives((LiteralText(b"a"), LiteralText(b"ab"))), LiteralText(b"")]
)


@settings(max_examples=n_examples(80))
@given(expressions, flat, st.text("ab", max_size=4))
def test_derivations_are_counted_as_on_paper(root, x, text):
    """0, 1 or more: a chart by recursion says the same where nothing is repeated that may be empty."""
    assume(not any(may_repeat_nothing(part) for part in walk(root)))
    rules = RuleSet({"root": root, "x": x})
    assert DerivationCounter(rules, 100_000).count(text) == min(MANY, count_derivations(rules, text))


def walk(part):
    """The expression and its parts."""
    yield part
    for inner in getattr(part, "items", ()) or getattr(part, "options", ()) or (getattr(part, "item", None),):
        if inner is not None:
            yield from walk(inner)


def may_repeat_nothing(part) -> bool:
    """Is it a repetition of what may be empty? There the two count differently, on purpose."""
    return (
        isinstance(part, Repeat)
        and DerivationCounter(RuleSet({"root": part.item, "x": LiteralText(b"")}), 10_000).count("") > 0
    )


def test_rules_that_lead_to_themselves_have_many_derivations():
    """A cycle of rules without a character in it makes each text in infinitely many ways."""
    rules = read_gbnf('root ::= a | "x"\na ::= root')
    assert [DerivationCounter(rules, 1_000).count(text) for text in ("x", "y")] == [MANY, 0]


def test_counting_derivations_gives_up():
    """Out of work is neither one nor many."""
    ways = DerivationCounter(read_gbnf('root ::= root root | "a"'), 30)
    assert ways.count("a" * 20) == -1


def test_a_count_of_repetitions_costs_work():
    """100 rounds are looked at again for each of 100 characters, which is far more than 1 000 steps."""
    assert DerivationCounter(read_gbnf('root ::= "a"{100}'), 1_000).count("a" * 100) == -1


@pytest.mark.short("arithmetic", "iso-date", "json", "list")
@pytest.mark.parametrize("name", installed_names())
def test_samples_are_of_the_grammar(name):
    """Each is accepted; they are ended where they grow long."""
    grammar = Grammar.load(name)
    found = grammar.check(seed=3)
    assert found.sound
    assert found.samples
    assert all(map(grammar.accepts, found.samples))


def test_samples_are_of_the_seed():
    """Equal seeds draw equal ones, others others."""
    grammar = Grammar.load("yes-no")
    assert grammar.check(seed=3) == grammar.check(seed=3)
    json_texts = Grammar.load("json")
    assert json_texts.check(seed=1).samples != json_texts.check(seed=2).samples


def test_endless_nesting_is_drawn_to_an_end():
    """Behind its soft limit a text takes the shortest way out."""
    found = report('root ::= "(" root root ")" | "x"')
    assert all(len(text) < 400 for text in found.samples)


@pytest.mark.parametrize(("length", "n_samples"), [(1_999, 1), (2_001, 1), (30_000, 0)])
def test_texts_of_many_characters_are_not_drawn_again_and_again(length, n_samples):
    """One sample of a long text, none of a very long one; the count is there."""
    n, rest = divmod(length, 1_000)
    found = report(f'root ::= ("a"{{1000}}){{{n}}} "b"{{{rest}}}')
    assert (len(found.samples), found.n_texts, found.ambiguous) == (n_samples, 1, None)


def test_token_terminals_leave_texts_out():
    """Nothing to show, nothing to count; finite or not is known."""
    found = report("root ::= <think> !<[7]>*")
    assert (found.has_tokens, found.finite, found.n_texts, found.samples) == (True, False, None, ())
    assert found.sound


def test_a_report_is_ready_for_json():
    """Numbers that JSON's readers cannot hold come as their logarithm; errors as their text."""
    found = json.loads(json.dumps(report("root ::= [0-9]{400}").to_dict()))
    assert (found["n_texts"], found["log10_texts"]) == (None, 400.0)
    assert json.loads(json.dumps(report('root ::= "a" root').to_dict()))["error"].startswith("line 1, column 1")
    assert json.loads(json.dumps(report("root ::= [0-9]").to_dict()))["n_texts"] == 10


def test_what_is_too_various_is_not_counted():
    """The report is there all the same."""
    found = report("root ::= (" + " | ".join(f'"{i}x"' for i in range(60)) + "){0,90}")
    assert found.finite
    assert found.samples


def test_shipped_grammars_are_what_they_are(test_data):
    """llama.cpp's JSON makes one digit in two ways; its SQL has rules that nothing uses."""
    folder = test_data("grammar/gbnf")
    assert Grammar.from_file(folder / "json.gbnf").check().ambiguous is not None
    assert Grammar.from_file(folder / "sql.gbnf").check().unreachable == ("condition", "columnname", "integer", "ws")
    assert Grammar.from_file(folder / "yes-no.gbnf").check().n_texts == 2


@pytest.mark.parametrize("ask", ["check", "rules", "is_finite"])
def test_grammars_of_llguidance_have_no_rules_of_ours(ask):
    """They are walked, not taken apart, and the error says so."""
    grammar = Grammar.from_llguidance("start: /[ab]+/")
    with pytest.raises(GrammarError, match="because llguidance reads it"):
        getattr(grammar, ask)() if ask == "check" else getattr(grammar, ask)


def test_drawing_is_bounded(monkeypatch):
    """Texts that are hard to find are left out, and the grammar is no worse for it."""
    rules = Grammar.from_gbnf('root ::= .* "a" .{200}')
    assert len(rules.check().samples) == 5
    monkeypatch.setattr("selectrie.grammar.analysis.MAX_STEPS", 150_000)
    report = rules.check()
    assert len(report.samples) < 5
    assert report.sound
