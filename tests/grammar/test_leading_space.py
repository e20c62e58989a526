"""A space before each text that does not begin with one, token by token, against every path that spells such a text."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie import Grammar
from selectrie.core.automaton import allowed_ids
from selectrie.core.vocabulary import Vocabulary
from selectrie.errors import ProtocolError
from selectrie.testing import make_vocabulary
from tests.support.n_examples import n_examples

spaced = st.text(alphabet=" ab", max_size=4)
texts = st.lists(spaced, min_size=1, max_size=5, unique=True).filter(any)
pieces = st.lists(st.text(alphabet=" ab", min_size=1, max_size=3).map(str.encode), min_size=2, max_size=14)


def spelled(text: str) -> bytes:
    """What a tokenizer writes that adds a space unless there is one."""
    return (text if text.startswith(" ") else " " + text).encode()


def viable(paths: set[bytes], vocabulary: Vocabulary, before: bytes) -> list[int]:
    """The tokens after which one of the texts can still be spelled in any bytes."""
    return [
        token
        for token, piece in enumerate(vocabulary.pieces)
        if piece and any(path.startswith(before + piece) for path in paths)
    ]


@given(texts=texts, pieces=pieces)
@example(texts=["a", " a"], pieces=[b" ", b"a", b" a"])
@example(texts=["  a", "a"], pieces=[b"  ", b" ", b"a", b" a", b"  a"])
@example(texts=[" "], pieces=[b" ", b"a"])
@example(texts=["", "b"], pieces=[b" ", b"b"])
@settings(max_examples=n_examples(200))
def test_each_text_is_spelled_after_one_space_at_most(texts, pieces):
    """Allowed tokens, states, ends and walks are those of the spelled texts, in every state that is reached."""
    vocabulary = make_vocabulary(pieces)
    paths = {spelled(text) for text in texts if text}
    automaton = Grammar.from_choices(texts).automaton(vocabulary, shares_space=True)
    todo = [(automaton.start(), b"")]
    seen = set()
    while todo:
        state, before = todo.pop()
        if (state, before) in seen:
            continue
        seen.add((state, before))
        assert automaton.can_end(state) == (before in paths)
        assert automaton.walk(automaton.start(), before) == state
        expected = viable(paths, vocabulary, before)
        assert allowed_ids(automaton.allowed(state)).tolist() == expected
        for token in range(vocabulary.n_tokens):
            if token in expected:
                todo.append((automaton.advance(state, token), before + vocabulary.pieces[token]))
            else:
                with pytest.raises(ProtocolError, match=f"token {token} is not allowed"):
                    automaton.advance(state, token)
    assert automaton.walk(automaton.start(), b"a") == -1


def test_a_token_that_a_grammar_names_comes_after_the_space():
    """A control token at the beginning of a text is allowed behind the space, and behind nothing else."""
    vocabulary = make_vocabulary([b" ", b"a"])
    grammar = Grammar.from_gbnf('root ::= <[0]> "a" | " a"')
    automaton = grammar.automaton(vocabulary, shares_space=True)
    space, letter = (vocabulary.pieces.index(piece) for piece in (b" ", b"a"))
    assert allowed_ids(automaton.allowed(automaton.start())).tolist() == [space]
    after = automaton.advance(automaton.start(), space)
    assert allowed_ids(automaton.allowed(after)).tolist() == sorted([0, letter])
    assert automaton.can_end(automaton.advance(automaton.advance(after, 0), letter))
    assert automaton.can_end(automaton.advance(after, letter))
