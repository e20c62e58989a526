"""Allowed tokens against llama.cpp's own grammar sampler: what differs is listed here beforehand, and counted."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.token_automaton import GrammarAutomaton
from tests.support.llama_grammar import llama_grammar
from tests.support.machines import compile_rules
from tests.support.real_data import REAL_VOCABULARIES, TEST_DATA
from tests.support.vocabularies import vocabulary_of

FOLDER = Path(TEST_DATA, "grammar", "gbnf")
SHORT = ("json", "yes-no", "japanese", "arithmetic")
GRAMMARS = sorted(path.stem for path in FOLDER.glob("*.gbnf")) if TEST_DATA else list(SHORT)
N_GRAMMARS = 11

EXCLUDED = {"list": ("\x85", "\u2028", "\u2029")}
"""By grammar: characters of more than one byte that a negated class leaves out."""
NUL, BROKEN, CONTROL = "NUL", "broken UTF-8", "control token"
PARTIAL, INSIDE = "begins an excluded character", "ends inside a character"
"""Where llama.cpp and we may differ:

NUL: the piece holds one. llama.cpp takes it for the end of the text.
broken UTF-8: what is begun and the piece are no beginning of UTF-8. llama.cpp does not look at bytes that go on with a
character, nor for overlong forms and surrogates; we never allow them.
control token: it has no bytes. llama.cpp spells its name out and reads that as text; we allow it only where the grammar
asks for a token.
begins an excluded character: the piece ends inside a character, and one that a negated class leaves out begins so.
llama.cpp refuses it though others begin so, too; we allow it.
ends inside a character: a character is begun. llama.cpp lets the text end there if it could have ended before; we do not.
"""


def kind_of_difference(name, pending, piece, is_ours):
    """The class that a difference falls into, or None."""
    if not piece:
        return None if is_ours else CONTROL
    if b"\0" in piece:
        return NUL
    rest = unfinished(pending + piece)
    if rest is None:
        return None if is_ours else BROKEN
    if is_ours and rest and any(char.encode().startswith(rest) for char in EXCLUDED.get(name, ())):
        return PARTIAL
    return None


def agree_on_ends(theirs, ours, pending):
    """Does only llama.cpp let the text end here, inside a character? Any other difference fails."""
    assert theirs == ours or (theirs and pending), f"the text may {'not ' * (not ours)}end here"
    return theirs != ours


def unfinished(text):
    """The bytes of a character that is begun at the end of UTF-8 text, or None where it is no beginning of UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return text[error.start :] if error.reason == "unexpected end of data" else None
    return b""


def compare(name, path, *, seed, n_steps):
    """Along one random path that both accept: counts of differences by class, steps, and what must not be."""
    vocabulary, text = vocabulary_of(path), (FOLDER / f"{name}.gbnf").read_text()
    automaton = GrammarAutomaton(compile_rules(read_gbnf(text)), vocabulary)
    rng, state, written, counts = random.Random(seed), automaton.start(), b"", Counter()
    with llama_grammar(path, text) as theirs:
        for _ in range(n_steps):
            allowed = theirs.allowed()
            ours = flags_of(automaton.allowed(state), vocabulary.n_tokens)
            pending = unfinished(written)
            counts[INSIDE] += agree_on_ends(bool(allowed[vocabulary.eog].any()), automaton.can_end(state), pending)
            allowed[vocabulary.eog] = False
            for token in np.flatnonzero(allowed != ours).tolist():
                kind = kind_of_difference(name, pending, vocabulary.pieces[token], bool(ours[token]))
                assert kind, f"{written!r}: {vocabulary.show(token)!r} ({token}) is{' not' * (not ours[token])} allowed"
                counts[kind] += 1
            token = chosen(vocabulary, np.flatnonzero(allowed & ours), rng)
            if token is None:
                break
            theirs.accept(token)
            state = automaton.advance(state, token)
            written += vocabulary.pieces[token]
            counts["steps"] += 1
    return counts


def flags_of(allowed, n_tokens):
    """bool[V] of either form."""
    if allowed.dtype == np.bool_:
        return allowed
    flags = np.zeros(n_tokens, dtype=np.bool_)
    flags[allowed] = True
    return flags


def chosen(vocabulary, tokens, rng):
    """One of the tokens, every other time a short one: those lead out of texts and into structure."""
    if not len(tokens):
        return None
    short = tokens[vocabulary.lengths[tokens] <= 2]
    return int(rng.choice(short if len(short) and rng.random() < 0.5 else tokens))


@pytest.mark.short(*SHORT)
@pytest.mark.parametrize("name", GRAMMARS)
def test_allowed_tokens_are_those_of_llama_cpp(name, real_vocabularies, record_property):
    """Two random paths through each grammar, each on another vocabulary: no difference but of the classes above."""
    place = GRAMMARS.index(name)
    for turn in range(2):
        path = real_vocabularies[(place + 3 * turn) % len(real_vocabularies)]
        record_property(path.stem, str(dict(compare(name, path, seed=turn, n_steps=10))))


@pytest.mark.long
@pytest.mark.parametrize("name", GRAMMARS)
def test_allowed_tokens_are_those_of_llama_cpp_everywhere(name, real_vocabulary, capsys):
    """Every grammar on every vocabulary, three paths each; what differs is printed by class."""
    counts = sum((compare(name, real_vocabulary, seed=seed, n_steps=30) for seed in range(10, 13)), Counter())
    with capsys.disabled():
        sys.stdout.write(f"\n{real_vocabulary.stem} {name}: {dict(counts)}")


def test_every_grammar_is_there(real_vocabularies):
    """The oracle is asked about all grammars of the data folder on six vocabularies."""
    assert len(GRAMMARS) == N_GRAMMARS
    assert len(real_vocabularies) == len(REAL_VOCABULARIES) == 6


@pytest.mark.parametrize(
    ("name", "pending", "piece", "is_ours", "expected"),
    [
        ("json", b"", b"a", True, None),
        ("json", b"", b"a", False, None),
        ("json", b"", b"", True, None),
        ("json", b"", b"", False, CONTROL),
        ("json", b"", b"a\0", False, NUL),
        ("json", b"", b"\xc3", False, None),
        ("json", b"", b"\xc3(", False, BROKEN),
        ("json", b"", b"\xc3(", True, None),
        ("json", b"\xed", b"\xa0", False, BROKEN),
        ("json", b"\xed", b"\x9f", False, None),
        ("list", b"", b"x\xe2\x80", True, PARTIAL),
        ("list", b"", b"x\xe2\x80", False, None),
        ("json", b"", b"x\xe2\x80", True, None),
        ("list", b"\xe2", b"\x81", True, None),
    ],
)
def test_only_the_listed_differences_are_excused(name, pending, piece, is_ours, expected):
    """A difference outside the classes has no class, so the comparison fails on it."""
    assert kind_of_difference(name, pending, piece, is_ours) == expected


def test_a_wrong_end_is_found():
    """Ends differ inside a character alone, and there only where llama.cpp is the one to allow it."""
    assert agree_on_ends(True, False, b"\xc3") is True
    assert agree_on_ends(True, True, b"") is agree_on_ends(False, False, b"\xc3") is False
    for theirs, ours, pending in ((True, False, b""), (False, True, b""), (False, True, b"\xc3")):
        with pytest.raises(AssertionError, match="end here"):
            agree_on_ends(theirs, ours, pending)


def test_a_wrong_token_is_found(real_vocabularies, monkeypatch):
    """One token taken from what is allowed, and the comparison fails and names it."""
    honest = GrammarAutomaton.allowed

    def without_one(self, state):
        flags = flags_of(honest(self, state), self._vocabulary.n_tokens).copy()
        flags[np.flatnonzero(flags)[0]] = False
        return flags

    monkeypatch.setattr(GrammarAutomaton, "allowed", without_one)
    with pytest.raises(AssertionError, match="is not allowed"):
        compare("yes-no", real_vocabularies[0], seed=0, n_steps=1)
