"""Arbitrary and mutated texts to every reader, and arbitrary bytes to what they read: it works, or it is an error of ours."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import numpy as np
import pytest

from selectrie.errors import GrammarError, SelectrieError
from selectrie.grammar import Grammar
from selectrie.grammar.grammar import installed_grammar, installed_names
from selectrie.testing import make_vocabulary

LARK = """start: value
?value: object | "[" [value ("," value)*] "]" | STRING | SIGNED_NUMBER -> number | _list{value, ","}
_list{item, mark}: item (mark item)~1..3
object: "{" STRING ":" value "}"
STRING: /"[^"\\n]*?"/i
%import common.SIGNED_NUMBER
%ignore /[ \\t]+/"""
GUIDED = 'start: head tail{2,3} | %json {"type": "string", "maxLength": 3}\nhead: /[a-c]+x?/ & /.{2,4}/\ntail[lazy]: /[0-9]*;/'
PATTERNS = (r"(?i)^a+(b|[c-e&&\w]){2,3}?\d*+$", r"(?P<x>a|\x41\u00e9)[^\]]*(?m:^b$)?", r"[[:alpha:]-z]|(a?b?)*c{,3}\Z")
SCHEMA = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {"type": ["object", "null"], "properties": {"a": {"$ref": "#/$defs/node"}, "b~/": {"enum": [1, "x"]}}}
    },
    "oneOf": [{"minimum": 1.5, "multipleOf": 3}, {"pattern": "^a+$", "maxLength": 4, "format": "date"}],
    "items": {"minItems": 1, "maxItems": 2, "prefixItems": [True, {"const": None}]},
}
PLAIN = (
    '{"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"anyOf": [{"const": 1}, {"$ref": "#"}]}}, '
    '"required": ["a"], "additionalProperties": false}'
)
READERS = {
    "gbnf": (Grammar.from_gbnf, [installed_grammar(name) for name in installed_names()]),
    "regex": (Grammar.from_regex, PATTERNS),
    "lark": (Grammar.from_lark, [LARK]),
    "schema": (Grammar.from_json_schema, [json.dumps(SCHEMA), PLAIN, '{"type": "integer", "maximum": 1e3}']),
    "llguidance": (Grammar.from_llguidance, [GUIDED, *(f"/{one}/" for one in PATTERNS)]),
}
SIGNS = "()[]{}|*+?^$\\/\"'<>!:=,.~-#%&@_ \n\t\0\x7f09azAZ\u00e9\u4e00\U0001f600\ud800\udfff\u0130\ufeff"
VOCABULARY = make_vocabulary([*(bytes([byte]) for byte in range(256)), b'{"', b"ab", b"\xc3\xa9", b"12", b'":'])


def mutated(text: str, rng: random.Random) -> str:
    """A few cuts, copies, swaps and strange characters."""
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at, to = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        to = min(to, at + rng.choice((1, 3, 20)))
        part = text[at:to]
        new = rng.choice(
            ("", part * 2, part[::-1], rng.choice(SIGNS), str(10 ** rng.randrange(12)), chr(rng.randrange(0x110000)))
        )
        text = text[:at] + new + text[to:]
    return text


def arbitrary(rng: random.Random) -> str:
    """Signs that mean something, or bytes as characters."""
    n = rng.randrange(60)
    return "".join(rng.choices(SIGNS, k=n)) if rng.random() < 0.5 else rng.randbytes(n).decode("latin-1")


def fuzz(reader: str, rng: random.Random) -> bool:
    """Read one text, and what was read against bytes; False where it was refused."""
    read, examples = READERS[reader]
    text = arbitrary(rng) if rng.random() < 0.2 else mutated(rng.choice(examples), rng)
    try:
        grammar = read(text)
        automaton = grammar.automaton(VOCABULARY, prefix=rng.choice((b"", b"", b"a", b"\xc3")))
        state = automaton.start()
        for _ in range(6):
            allowed = automaton.allowed(state)
            ids = np.flatnonzero(allowed) if allowed.dtype == np.bool_ else allowed
            automaton.can_end(state)
            if not len(ids):
                break
            state = automaton.advance(state, int(rng.choice(ids.tolist())))
        grammar.accepts(rng.randbytes(12))
        grammar.accepts(rng.choice(("{}", "ab", '"\u00e9', "1 + 2")))
        assert grammar.digest
    except SelectrieError:
        return False
    except Exception as error:
        raise AssertionError(f"{reader} of {text!r}") from error
    return True


def report(grammar: Grammar) -> None:
    """All that is told about a grammar of rules."""
    for what in (grammar.check, lambda: list(grammar.expand(3)), grammar.count, lambda: grammar.rules):
        with suppress(SelectrieError):
            what()


@pytest.mark.parametrize("reader", READERS)
def test_any_text_is_read_or_refused(reader):
    """Mutated grammars and arbitrary texts, and what was read is led through arbitrary bytes; some are read, some not."""
    rng = random.Random(f"{reader} 1")
    outcomes = {fuzz(reader, rng) for _ in range(60)}
    assert outcomes == {True, False}


def test_any_grammar_is_told_about():
    """Checking, counting, listing and printing what was read; some of it is."""
    rng, read = random.Random(3), 0
    for _ in range(25):
        reader = rng.choice(("gbnf", "regex"))
        try:
            grammar = READERS[reader][0](mutated(rng.choice(READERS[reader][1])[:400], rng))
        except GrammarError:
            continue
        report(grammar)
        read += 1
    assert read


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("reader", READERS)
def test_any_text_is_read_or_refused_at_length(reader, seed):
    """Five hundred texts for each reader and seed."""
    rng = random.Random(f"{reader} at length {seed}")
    for _ in range(500):
        fuzz(reader, rng)
