"""A list of choices as an automaton, against looking through the list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from selectrie.core.automaton import Automaton, ChoiceAutomaton
from selectrie.core.token_trie import TokenTrie
from selectrie.errors import ChoiceError, ProtocolError

paths = st.lists(st.integers(0, 4), max_size=5).map(tuple)
choice_lists = st.lists(paths, min_size=1, max_size=12)


def automaton_of(choices) -> Automaton:
    return ChoiceAutomaton(TokenTrie.from_sequences(choices))


def state_after(automaton: Automaton, path) -> int:
    state = automaton.start()
    for token in path:
        state = automaton.advance(state, token)
    return state


@given(choice_lists)
@example([()])
@example([(1,), (1, 2), (1,)])
def test_what_may_come_next_is_what_the_list_holds(choices):
    """After every beginning of a choice: the tokens that go on with one, whether one ends, and nothing else goes."""
    automaton = automaton_of(choices)
    for path in {choice[:n] for choice in choices for n in range(len(choice) + 1)}:
        state = state_after(automaton, path)
        following = sorted({c[len(path)] for c in choices if len(c) > len(path) and c[: len(path)] == path})
        allowed = automaton.allowed(state)
        assert allowed.dtype == np.int32
        assert allowed.tolist() == following
        assert automaton.can_end(state) is (path in choices)
        for token in set(range(-1, 7)) - set(following):
            with pytest.raises(ProtocolError, match=f"token {token} "):
                automaton.advance(state, token)


@given(choice_lists, st.randoms(use_true_random=False))
def test_every_walk_ends_in_a_choice(choices, random):
    """However tokens are taken among those allowed, a walk that ends where it can has written a choice, and all are met."""
    automaton = automaton_of(choices)
    state, path = automaton.start(), ()
    while len(allowed := automaton.allowed(state)):
        if automaton.can_end(state) and random.random() < 0.5:
            break
        path = (*path, random.choice(allowed.tolist()))
        state = automaton.advance(state, path[-1])
    assert automaton.can_end(state)
    assert path in choices


def test_states_are_shared_and_stay():
    """A state is a number: two sequences in one state go on apart, and the first state is as it was."""
    automaton = automaton_of([(1, 2, 3), (1, 4)])
    state = state_after(automaton, (1,))
    left, right = automaton.advance(state, 2), automaton.advance(state, 4)
    assert automaton.allowed(state).tolist() == [2, 4]
    assert automaton.allowed(left).tolist() == [3]
    assert automaton.allowed(right).tolist() == []
    assert automaton.can_end(right)


def test_no_choices_are_refused():
    """Nothing would be allowed."""
    with pytest.raises(ChoiceError, match="at least one"):
        automaton_of([])
