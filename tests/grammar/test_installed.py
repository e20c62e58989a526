"""The grammars that come with selectrie: what their headers say, held against readers and writers that know no grammar."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.grammar import Grammar
from selectrie.grammar.grammar import installed_names, installed_summary
from selectrie.grammar.readers.gbnf import read_gbnf
from selectrie.grammar.rules import RuleSet
from tests.support.installed_oracles import EXACT, ORACLES
from tests.support.llama_grammar import llama_grammar
from tests.support.n_examples import n_examples
from tests.support.random_texts import RandomTexts, count_derivations
from tests.support.valid_texts import VALID
from tests.support.vocabularies import vocabulary_of

FOLDER = Path(__file__).resolve().parents[2] / "grammars"
DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = (
    "arithmetic",
    "c-expression",
    "chess",
    "csv",
    "email",
    "iso-date",
    "json",
    "json-lines",
    "list",
    "move",
    "python-literal",
    "rpg-character",
    "semver",
    "sql-select",
    "uuid",
    "yes-no",
)
CLOSED = ("iso-date", "move", "rpg-character", "sql-select", "uuid", "yes-no")
"""Grammars none of whose texts begins another: their headers say so."""

HEADER = re.compile(
    r"# (?P<name>[a-z-]+): (?P<summary>.+)\n#\n(?P<text>(?:# .+\n)+)#\n(?P<yes>(?:# yes: .+\n){3})(?P<no>(?:# no: .+\n){3})\n[a-z]"
)
ESCAPE = re.compile(r"\\(?:([nrt\\])|x([0-9A-F]{2})|u([0-9A-F]{4})|U([0-9A-F]{8}))")
PLAIN = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}

each = pytest.mark.parametrize("name", NAMES)


def unescaped(example: str) -> str:
    r"""The text that an example stands for: `\n`, `\r`, `\t`, `\\`, `\xHH`, `\uHHHH` and `\UHHHHHHHH` are escapes."""
    return ESCAPE.sub(lambda m: PLAIN[m[1]] if m[1] else chr(int(m[2] or m[3] or m[4], 16)), example)


def examples(name: str, verdict: str) -> list[str]:
    """The texts that a header lists under yes or no."""
    lines = re.findall(rf"^# {verdict}: (.+)$", (FOLDER / f"{name}.gbnf").read_text(), re.MULTILINE)
    return [unescaped(line) for line in lines]


@cache
def grammar(name: str) -> Grammar:
    """The installed grammar, compiled once."""
    return Grammar.load(name)


@cache
def rules(name: str) -> RuleSet:
    """Its rules as read."""
    return read_gbnf((FOLDER / f"{name}.gbnf").read_text())


def verdict(name: str, text: str) -> str:
    """yes, no or unfinished."""
    return grammar(name).accepts(text).verdict


@cache
def drawn(name: str) -> tuple[str, ...]:
    """Sixty random texts of the grammar."""
    maker, rng = RandomTexts(rules(name)), random.Random(7)
    return tuple(maker.draw(rng) for _ in range(60))


def damaged(text: str, rng: random.Random) -> str:
    """The text with one character taken out, put in or exchanged."""
    place, other = rng.randrange(len(text) + 1), rng.choice(text + '0a-" \n9.#+x')
    return text[:place] + rng.choice(("", other)) + text[place + rng.randint(0, 1) :]


def test_these_grammars_are_installed():
    """The names are promised: a file more or less is a change of what users can load."""
    assert installed_names() == NAMES


@each
def test_header_says_what_is_accepted(name):
    """A header in the fixed form: name, summary, source, three texts it accepts and three it rejects, and it does."""
    header = HEADER.match((FOLDER / f"{name}.gbnf").read_text())
    assert header, "not in the fixed form"
    assert header["name"] == name
    assert header["summary"] == installed_summary(name)
    assert re.match(r"# (Source: |Written for this library)", header["text"])
    assert [verdict(name, text) for text in examples(name, "yes")] == ["yes"] * 3
    assert [verdict(name, text) == "yes" for text in examples(name, "no")] == [False] * 3
    assert [ORACLES[name](text) for text in examples(name, "yes")] == [True] * 3


@each
def test_llama_cpp_reads_it(name, embedded):
    """The files are GBNF, not a dialect: llama.cpp's own sampler walks the examples token by token and may end there."""
    vocabulary = vocabulary_of(embedded)
    for text in examples(name, "yes")[:2]:
        with llama_grammar(embedded, (FOLDER / f"{name}.gbnf").read_text()) as theirs:
            for token in vocabulary.encode(text.encode()):
                assert theirs.allowed()[token], (text, vocabulary.pieces[token])
                theirs.accept(token)
            assert theirs.allowed()[vocabulary.eos]


@each
def test_random_texts_are_what_they_should_be(name):
    """What the rules make is accepted by the grammar, and by a reader that does not know it."""
    texts = drawn(name)
    assert [text for text in texts if verdict(name, text) != "yes"] == []
    assert [text for text in texts if not ORACLES[name](text)] == []


@each
def test_damaged_texts_are_judged_as_the_oracle_does(name):
    """After a change of one character: what the grammar accepts its oracle accepts too, and the other way round where the
    two are meant to be equal."""
    rng = random.Random(8)
    texts = [damaged(text, rng) for text in drawn(name) for _ in range(4)]
    verdicts = [(verdict(name, text) == "yes", ORACLES[name](text), text) for text in texts]
    assert [row for row in verdicts if row[0] > row[1]] == []
    assert name not in EXACT or [row for row in verdicts if row[0] != row[1]] == []
    assert not all(accepted for accepted, _, _ in verdicts)


@pytest.mark.long
@each
def test_many_random_texts(name):
    """The two laws above on a thousand texts, and on one damaged copy of each."""
    maker, rng = RandomTexts(rules(name)), random.Random(9)
    texts = [maker.draw(rng) for _ in range(1_000)]
    texts += [damaged(text, rng) for text in texts]
    verdicts = [(verdict(name, text) == "yes", ORACLES[name](text), text) for text in texts]
    assert [row for row in verdicts[:1_000] if row[:2] != (True, True)] == []
    assert [row for row in verdicts[1_000:] if row[0] > row[1] or (name in EXACT and row[0] != row[1])] == []


@each
@settings(max_examples=n_examples(25))
@given(data=st.data())
def test_valid_texts_are_accepted(name, data):
    """Texts that the format's own writers make, or its rules, are accepted."""
    text = data.draw(VALID[name])
    assert ORACLES[name](text)
    assert verdict(name, text) == "yes"


@each
def test_every_text_has_one_reading(name):
    """No ambiguity: the rules make a text in one way, so that a recogniser holds few stacks."""
    short = [text for text in dict.fromkeys(drawn(name)) if len(text) < 70][:15]
    assert [count_derivations(rules(name), text) for text in short] == [1] * len(short)


@pytest.mark.short("!c-expression", "!sql-select")
@each
def test_there_is_nothing_to_mend(name):
    """Checked like a user's grammar: every rule is used and matches something, none begins with itself, none is ambiguous."""
    report = grammar(name).check()
    assert report.sound
    assert (report.left_recursion, report.empty, report.ambiguous) == ((), (), None)


@pytest.mark.parametrize("name", CLOSED)
def test_no_text_begins_another(name):
    """Behind a finished text nothing may come, and each part of it is unfinished."""
    for text in drawn(name)[:15]:
        assert {verdict(name, text + more) for more in "a0A9 ,;\n}'-é"} == {"no"}
        assert {verdict(name, text[:end]) for end in range(len(text))} == {"unfinished"}


def test_every_day_of_the_calendar():
    """iso-date accepts each day at the turn of a month that `datetime` has in some years, and no other; all years for 29 February."""
    days = [f"{month:02}-{day:02}" for month in range(14) for day in (0, 1, 28, 29, 30, 31, 32)]
    dates = [f"{year:04}-{day}" for year in (0, 1, 4, 1900, 2000, 2023, 2024, 9999) for day in days]
    dates += [f"{year:04}-02-29" for year in range(0, 10_000, 7)]
    wrong = [date for date in dates if (verdict("iso-date", date) == "yes") != ORACLES["iso-date"](date)]
    assert wrong == []
    assert grammar("iso-date").count() == dt.date.max.toordinal()


def test_finite_grammars_are_their_lists():
    """`move` has 39 texts, `yes-no` four; expanding gives all of them, shortest first."""
    steps = map(" ".join, itertools.product(("north", "south", "east", "west"), "123456789"))
    moves = sorted([*steps, "turn left", "turn right", "stop"], key=lambda text: (len(text), text))
    assert list(grammar("move").expand()) == moves
    assert list(grammar("yes-no").expand()) == ["No", "no", "Yes", "yes"]
    finite = [name for name in NAMES if grammar(name).is_finite]
    assert finite == ["email", "iso-date", "move", "rpg-character", "uuid", "yes-no"]


@pytest.mark.parametrize(("name", "opening"), [("json", "["), ("python-literal", "[")])
def test_blanks_end(name, opening):
    """Indentation is bounded: 32 blanks, not one more, nor a second line break."""
    assert verdict(name, f"{opening}\n{' ' * 32}1]") == "yes"
    assert verdict(name, f"{opening}\n{' ' * 33}") == "no"
    assert verdict(name, f"{opening}\n\n") == "no"
    assert verdict(name, f"{opening}  ") == "no"


@pytest.mark.parametrize("name", ["json", "python-literal", "arithmetic", "c-expression", "sql-select"])
def test_deep_nesting_is_walked(name):
    """A thousand open brackets are unfinished, not an error."""
    bracket = {"json": "[", "python-literal": "[", "sql-select": "SELECT "}.get(name, "(")
    text = bracket + "(" * 1000 if name == "sql-select" else bracket * 1000
    assert verdict(name, text) == "unfinished"


@each
def test_the_page_names_it(name):
    """The page on grammars has a row for each, with the first line of its header."""
    assert f"| `{name}` | {installed_summary(name)} |" in (DOCS / "grammars.md").read_text()


def test_the_checks_can_fail():
    """An ambiguous grammar has two readings, a wrong one is found by the oracle, a repeated empty text is refused."""
    ambiguous = read_gbnf('root ::= "a"? "a"? "b"')
    assert count_derivations(ambiguous, "ab") == 2
    assert count_derivations(ambiguous, "ac") == 0
    without_leap_years = read_gbnf('root ::= "2023-02-" ("28" | "29")')
    texts = {RandomTexts(without_leap_years).draw(random.Random(seed)) for seed in range(20)}
    assert [ORACLES["iso-date"](text) for text in sorted(texts)] == [True, False]
    with pytest.raises(ValueError, match="repeats the empty text"):
        count_derivations(read_gbnf('root ::= ("a"?)*'), "a")
