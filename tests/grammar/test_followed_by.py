"""A grammar with a literal text behind each of its texts."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import GrammarError, OptionError, TextError
from selectrie.grammar import Grammar
from selectrie.grammar.grammar import MAX_FOLLOWED
from tests.support.n_examples import n_examples

SOURCES = (
    'root ::= "a" root | "b"',
    'root ::= ("a" | "ab")* "."?',
    'root ::= inner "." root-followed\ninner ::= "a"\nroot-followed ::= "b" | ""',
    "root ::= [ab.]*",
    'root ::= root "a" | "."',
)


@settings(max_examples=n_examples(200))
@given(st.sampled_from(SOURCES), st.sampled_from([".", "a", "ab", "é"]), st.text("ab.é", max_size=5))
def test_its_texts_are_those_of_the_grammar_and_the_text_behind_them(source, following, text):
    """A text is one of it where it ends so and the grammar has what stands before."""
    grammar = Grammar.from_gbnf(source)
    expected = text.endswith(following) and bool(grammar.accepts(text.removesuffix(following)))
    assert bool(grammar.followed_by(following).accepts(text)) == expected
    assert bool(grammar.followed_by(following).accepts(text + following)) == bool(grammar.accepts(text))


def test_the_texts_of_a_finite_one():
    """Listed: each once, with the text behind it."""
    grammar = Grammar.from_choices(["b", "a", "a."])
    assert list(grammar.followed_by(".").expand()) == ["a.", "b.", "a.."]


def test_nothing_behind_it_is_the_grammar_itself():
    """The empty text changes nothing."""
    grammar = Grammar.from_choices(["a"])
    assert grammar.followed_by("") is grammar


def test_it_is_made_once_and_kept_for_a_while():
    """The same object for the same text; the one that was not asked for the longest goes first."""
    grammar = Grammar.from_choices(["a"])
    first, other = grammar.followed_by("0"), grammar.followed_by("x")
    for number in range(1, MAX_FOLLOWED):
        assert grammar.followed_by("0") is first
        grammar.followed_by(str(number))
    assert grammar.followed_by("0") is first
    assert grammar.followed_by("x") is not other


def test_it_is_a_grammar_like_others():
    """It has the name of its own, can be followed again, pickled and written as GBNF."""
    rules, texts = Grammar.from_gbnf('root ::= "a"', name="letters"), Grammar.from_choices(["a"], name="letters")
    for grammar, root in ((rules, "root-followed-followed"), (texts, "root")):
        twice = grammar.followed_by(".").followed_by("!")
        assert twice.name == "letters"
        assert pickle.loads(pickle.dumps(twice)).accepts("a.!")  # noqa: S301 - our own bytes
        assert Grammar.from_gbnf(twice.to_gbnf(), root=root).accepts("a.!")
        assert twice.digest != grammar.digest


def test_a_token_terminal_stays_one():
    """Tokens by name are no text, and what stands behind them is."""
    followed = Grammar.from_gbnf("root ::= <[5]> | [a-z]").followed_by(".")
    assert followed.accepts("q.")
    assert not followed.accepts("q")


def test_a_grammar_that_llguidance_reads_cannot_be_followed():
    """It is walked, not taken apart."""
    with pytest.raises(GrammarError, match="followed_by is not available for llguidance"):
        Grammar.from_llguidance('start: "a"').followed_by(".")


def test_what_cannot_follow():
    """What is no text, or none that has bytes."""
    grammar = Grammar.from_choices(["a"])
    with pytest.raises(OptionError, match="text=3"):
        grammar.followed_by(3)
    with pytest.raises(TextError):
        grammar.followed_by("\ud800")
