"""Grammars of llguidance behind the automaton port."""

from __future__ import annotations

import json

import numpy as np
import pytest

from selectrie.errors import GrammarError, ProtocolError
from selectrie.grammar.guidance import GuidanceAutomaton, read_guidance
from selectrie.testing import make_vocabulary, spell

pytest.importorskip("llguidance")


def shown(automaton, vocabulary, state):
    allowed = automaton.allowed(state)
    ids = np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed
    return [vocabulary.texts[i] for i in ids]


def test_every_token_that_fits_is_allowed():
    """Forced text may be cut by tokens in any way."""
    vocabulary = make_vocabulary()
    automaton = GuidanceAutomaton(read_guidance('start: " cat" | " bat"'), vocabulary)
    assert shown(automaton, vocabulary, automaton.start()) == [" ", " c", " b", " cat", " bat"]
    s = automaton.advance(0, spell(vocabulary, [" cat"])[0])
    assert automaton.can_end(s)
    assert automaton.walk(0, b" ca") > 0
    assert automaton.walk(0, b"cx") == -1
    with pytest.raises(ProtocolError):
        automaton.advance(s, 3)
    for g in ('start: foo', '{"grammars":[{"json_schema":{"not":{}}}]}', "/a(?=b)/", "start: start",'{"x"', 'start: <nope>'):
        with pytest.raises(GrammarError) as e:
            GuidanceAutomaton(read_guidance(g), vocabulary)
        assert str(e.value)
