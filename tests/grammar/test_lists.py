"""Grammars that are lists of texts: read without being compiled, at any size, as the same texts as rules are."""

from __future__ import annotations

import pickle
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.automaton import allowed_ids
from selectrie.errors import GrammarError
from selectrie.grammar import Grammar
from selectrie.grammar.machine.machine import ListMachine
from selectrie.grammar.machine.nfa import GrammarLimits
from selectrie.grammar.rules import TextList
from selectrie.grammar.token_automaton import GrammarAutomaton
from selectrie.testing import make_vocabulary
from tests.support.machines import compile_rules
from tests.support.n_examples import n_examples
from tests.support.word_lists import made_words

TEXTS = st.text("aab é\u20ac\U0001f600", max_size=5)
LISTS = st.lists(TEXTS, min_size=1, max_size=12)
PIECES = st.lists(
    st.sampled_from([b"a", b"b", b" ", "é".encode(), b"\xc3", b"\xa9", b"\xe2\x82", b"\xac", b"\xf0\x9f"]),
    min_size=1,
    max_size=4,
).map(b"".join)


def by_rules(texts: list[str]) -> Grammar:
    """The same texts as rules that are compiled."""
    return Grammar(TextList(tuple(dict.fromkeys(texts))).rules)


@settings(max_examples=n_examples(120))
@given(LISTS, st.lists(PIECES, min_size=3, max_size=20))
def test_a_list_allows_the_tokens_that_its_rules_allow(texts, pieces):
    """State by state, along every path of tokens: the compiled rules are the slow twin."""
    vocabulary = make_vocabulary(pieces)
    fast = GrammarAutomaton(ListMachine(TextList(tuple(dict.fromkeys(texts))).encoded), vocabulary)
    slow = GrammarAutomaton(compile_rules(by_rules(texts)._rule_set("test")), vocabulary)
    waiting = [(fast.start(), slow.start())]
    for one, other in waiting:
        assert fast.can_end(one) == slow.can_end(other)
        allowed = allowed_ids(fast.allowed(one)).tolist()
        assert allowed == allowed_ids(slow.allowed(other)).tolist()
        if len(waiting) < 200:
            waiting += [(fast.advance(one, token), slow.advance(other, token)) for token in allowed]


@settings(max_examples=n_examples(120))
@given(LISTS, st.lists(TEXTS, max_size=4))
def test_a_list_says_of_texts_what_its_rules_say(texts, others):
    """Verdict, place and what could stand there, of texts, of their beginnings and of bytes; and all that is known of the whole."""
    grammar, twin = Grammar.from_choices(texts), by_rules(texts)
    for text in {*texts, *others, *(text[:-1] for text in texts), *(text + "a" for text in texts)}:
        assert grammar.accepts(text) == twin.accepts(text)
        assert grammar.accepts(text.encode()[:-1]) == twin.accepts(text.encode()[:-1])
    assert grammar.is_finite
    assert grammar.count() == twin.count() == len(set(texts))
    assert list(grammar.expand()) == list(twin.expand())
    assert grammar.listed(0) == tuple(dict.fromkeys(texts))
    assert grammar.is_prefix_free == twin.is_prefix_free
    assert (grammar.digest, grammar.to_gbnf()) == (twin.digest, twin.to_gbnf())
    assert list(grammar.followed_by(".").expand()) == list(twin.followed_by(".").expand())


@settings(max_examples=n_examples(60))
@given(LISTS)
def test_what_is_found_wrong_with_a_list_is_what_is_wrong_with_its_rule(texts):
    """One rule, sound, each text made in one way; the samples are of it, and the same for the same seed."""
    grammar = Grammar.from_choices(texts)
    found, twin = grammar.check(seed=3).to_dict(), by_rules(texts).check(seed=3).to_dict()
    assert set(found.pop("samples")) <= set(texts)
    del twin["samples"]
    assert found == twin
    assert grammar.check(seed=3) == grammar.check(seed=3)


def test_a_list_of_100_000_texts_is_counted_and_tried():
    """What is read of it is what is looked at: a trial makes as many configurations as there are ways to go on beside it."""
    texts = made_words(100_000, n_each=2)
    grammar = Grammar.from_choices(texts)
    assert (grammar.count(), grammar.is_finite, grammar.is_prefix_free) == (100_000, True, False)
    assert list(islice(grammar.expand(), 3)) == sorted(texts, key=lambda text: (len(text), text))[:3]
    assert grammar.accepts(texts[77])
    assert grammar.accepts(texts[77] + "q").verdict == "no"
    assert grammar._machine("test").n_configurations < 30 * len(texts[77])
    assert grammar.check().n_texts == 100_000
    kept = pickle.loads(pickle.dumps(grammar))  # noqa: S301 - our own bytes
    assert kept.listed(0) == tuple(texts)


class CountedText(bytes):
    """A text that counts the bytes that are taken out of it."""

    n_taken = 0

    def __getitem__(self, place):
        CountedText.n_taken += len(range(*place.indices(len(self)))) if isinstance(place, slice) else 1
        return super().__getitem__(place)


def test_a_long_text_is_read_in_linear_time():
    """By bytes that are looked at: a few for each byte of the text, however far it was read."""
    n = 2_000
    machine = ListMachine([CountedText(b"a" * n), CountedText(b"a" * n + b"b")])
    CountedText.n_taken = 0
    assert machine.can_end(machine.walk(machine.start, b"a" * n))
    assert CountedText.n_taken < 8 * n


def test_what_a_list_takes_is_bounded_and_told():
    """The message says how long the list is, and what to do; what was read before stays."""
    texts = [text.encode() for text in sorted(made_words(2_000, n_each=2))]
    machine = ListMachine(texts, GrammarLimits(max_bytes=200_000))
    with pytest.raises(GrammarError, match=r"the list of 2000 texts led to \d+ prefixes.*use `select` to choose"):
        sum(machine.walk(machine.start, text) for text in texts)
    assert machine.can_end(machine.walk(machine.start, texts[0]))
