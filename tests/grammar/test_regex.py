"""Regular expressions: what is read has the language that Python's own `re.fullmatch` gives the pattern."""

from __future__ import annotations

import re
import sys
import warnings
from itertools import product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from selectrie.errors import GrammarError
from selectrie.grammar.readers.regex import MAX_DEPTH, case_variants, category, read_regex
from selectrie.grammar.rules import EMPTY, Characters, LiteralText, RuleSet
from tests.support.machines import compile_rules
from tests.support.n_examples import n_examples
from tests.support.slow_language import accepts

MEGABYTE = 1_000_000
LETTERS = ("a", "b", "A", "1", "_", " ", "\n", "é", "K", "\u212a", "ß", "ſ", "s", "-", "]")
atoms = st.sampled_from(
    (
        *(
            "a",
            "b",
            "A",
            "k",
            "s",
            "é",
            "_",
            " ",
            ".",
            r"\d",
            r"\w",
            r"\s",
            r"\D",
            r"\W",
            r"\S",
            r"\n",
            "",
            r"\x41",
            r"\101",
        ),
        *(
            "[ab]",
            "[^a]",
            "[a-c1]",
            r"[^\W\d]",
            "[]a]",
            r"[\]-]",
            "[^]]",
            r"[\s_]",
            r"[^\n]",
            r"[\x00-\U0001F600]",
            r"[\D]",
        ),
        *(
            "^",
            "$",
            r"\A",
            r"\Z",
            "(?#note)",
            r"\N{LATIN SMALL LETTER E WITH ACUTE}",
            "{",
            "a{,",
            "]",
            "}",
            r"\-",
            "(?:)",
        ),
    )
)
counts = st.sampled_from(
    (
        *("*", "+", "?", "{2}", "{1,2}", "{2,}", "{,2}", "{0}", "{,}", "*?", "+?", "??", "{1,3}?"),
        *("*+", "++", "?+", "{1,2}+", "{2}+"),
    )
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(("({})", "(?:{})", "(?i:{})", "(?s:{})", "(?a:{})", "(?x:{})", "(?-i:{})", "(?is-x:{})"))
    grouped = st.builds(str.format, groups, inner)
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("{}{}".format, grouped, counts),
        st.builds("{}{}".format, atoms, counts),
        grouped,
    )


patterns = st.builds(
    "{}{}".format, st.sampled_from(("", "", "(?i)", "(?s)", "(?a)", "(?x)")), st.recursive(atoms, _larger)
)
texts = st.lists(st.text(st.sampled_from(LETTERS), max_size=5), min_size=8, max_size=8, unique=True)
SHORT = ["".join(letters) for size in range(5) for letters in product("ab\n", repeat=size)]


def compiled(pattern: str) -> re.Pattern[str] | None:
    """What Python makes of it; None where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(pattern)
        except (re.error, OverflowError):
            return None


def tried(pattern: str) -> tuple[RuleSet | None, GrammarError | None]:
    """What we make of it, or our error; nothing else ever comes out."""
    try:
        return read_regex(pattern), None
    except GrammarError as error:
        return None, error


def differences(pattern: re.Pattern[str], rules: RuleSet, checked: list[str]) -> list[str]:
    """Texts that Python, the machine and the slow reading do not agree on."""
    machine = compile_rules(rules)
    found = []
    for text in checked:
        end = machine.walk(machine.start, text.encode())
        verdicts = {pattern.fullmatch(text) is not None, end >= 0 and machine.can_end(end), accepts(rules, text)}
        found += [text] if len(verdicts) > 1 else []
    return found


@given(patterns, texts)
@settings(max_examples=n_examples(200))
@example("(?:a|^b|b$)*", SHORT)
@example("(?:a?$)+\n?", SHORT)
@example("(?:^a|b)(?:\n|$)*", SHORT)
@example(r"(a*$\n?|\Ab)\Z\n*", SHORT)
@example("(?i)[^k-s]ſ", ["k\u017f", "\u212aS", "as", "ts"])
@example("a*+a", SHORT)
@example("(?:a?+b){2}", SHORT)
def test_a_pattern_has_the_language_that_python_gives_it(pattern, checked):
    """Any text of any pattern: Python's full match, our compiled machine and the slow reading of our rules agree; what is
    refused is a possessive count, an anchor, or what no text matches.
    """
    python = compiled(pattern)
    assume(python is not None)
    rules, refusal = tried(pattern)
    if rules is not None:
        assert differences(python, rules, checked) == []
    elif "no text can match" in refusal.reason:
        assert not any(map(python.fullmatch, [*checked, *SHORT]))
    else:
        assert re.search("anchor|possessive count", refusal.reason)


def test_differences_are_found():
    """The comparison above can fail: the rules of another pattern differ where they should."""
    assert differences(re.compile("a*b"), read_regex("a+b"), ["ab", "b", "a"]) == ["b"]


@given(st.text(st.sampled_from("ab1-^$.|?*+(){}[]\\,:=!<>PsixmdwN\n #&~"), max_size=12))
@settings(max_examples=n_examples(400))
def test_what_python_refuses_is_refused(pattern):
    """Whatever the text: our error and nothing else, or rules; and never rules where Python sees no pattern."""
    rules, refusal = tried(pattern)
    if rules is None:
        assert refusal.line is not None
    else:
        python = compiled(pattern)
        assert python is not None
        assert differences(python, rules, [*SHORT[:14], pattern]) == []


@pytest.mark.parametrize(
    ("pattern", "accepted", "rejected"),
    [
        ("[0-9]{4}-[0-9]{2}", ["2024-01"], ["2024-1", "x2024-01", "2024-01\n"]),
        ("(?P<a>yes|no)(?i: MAYBE)?", ["yes", "no maybe", "no Maybe"], ["YES", "no MAYBE "]),
        ("^a$", ["a"], ["a\n", "aa"]),
        ("a$\n", ["a\n"], ["a"]),
        (r"a\Z\n?", ["a"], ["a\n"]),
        ("a{2,3}(?:^|b)", ["aab", "aaab"], ["b", "ab", "aa", "aaaab"]),
        ("(?m)^a$", ["a"], ["a\n"]),
        ("(?x) a b # c\n *", ["a", "abb"], ["a b", "ab*"]),
        ("a{", ["a{"], ["a"]),
        ("(?i)straße", ["STRAßE", "ſtraße", "STRA\u1e9eE"], ["strasse"]),
        (r"\x41\u00e9\U0001F600\101\0\N{BULLET}", ["Aé😀A\0•"], ["A"]),
        ("[a-]|[^-a]b", ["-", "a", "xb"], ["-b", "b"]),
        (".", ["\r", "\x85", "é"], ["\n", ""]),
        (r"a|[^\s\S]b", ["a"], ["b", "ab"]),
        ("", [""], ["a"]),
    ],
)
def test_patterns_to_check_by_hand(pattern, accepted, rejected):
    """Each pattern takes the first texts and none of the others."""
    rules = read_regex(pattern)
    assert [text for text in [*accepted, *rejected] if accepts(rules, text)] == accepted
    assert all(re.fullmatch(pattern, text) for text in accepted)


@pytest.mark.parametrize(
    ("pattern", "name", "column"),
    [
        ("ab(?=c)", "look-ahead '(?=…'", 3),
        ("(?!c)d", "negative look-ahead", 1),
        ("(?<=c)d", "look-behind", 1),
        ("(?<!c)d", "negative look-behind", 1),
        (r"(a)\1", r"the back-reference '\1'", 4),
        ("(?P<x>a)(?P=x)", "a back-reference", 9),
        ("(a)?(?(1)b|c)", "a conditional group", 5),
        ("(?>a|ab)c", "an atomic group", 1),
        (r"a\b", r"the word boundary '\b'", 2),
        (r"a\Bb", r"the word boundary '\B'", 2),
        ("(?m)a^b", "'^' with the multi-line flag", 6),
        ("a*+a", "possessive", 2),
        ("(?:ab)*+c", "possessive", 7),
        ("(?:a++)*", "possessive", 5),
        ("(?L)a", "flag L", 1),
        ("a^b", "no text can match", 2),
        ("$a", "no text can match", 1),
        ("a(b", "not closed", 2),
        ("a)b", "no group is open", 2),
        ("a**", "an item that is repeated already", 3),
        ("*a", "nothing to repeat", 1),
        ("^*", "nothing to repeat", 2),
        ("a{3,2}", "ends below its beginning", 2),
        ("a{9999999999999}", "exceeds the limit", 2),
        ("[b-a]", "not a range", 2),
        (r"[\d-a]", "not a range", 2),
        ("[ab", "not closed", 1),
        ("a\\", "nothing follows", 2),
        (r"\q", "not a valid escape", 1),
        (r"\x4", "not a valid escape", 1),
        (r"\400", "octal", 1),
        (r"\U00110000", "not a valid escape", 1),
        (r"\N{NO SUCH THING}", "not the name of a character", 1),
        ("a(?i)b", "at its start", 2),
        ("(?P<a>x)(?P<a>y)", "used twice", 9),
        ("\ud800", "surrogate", 1),
    ],
)
def test_what_is_no_grammar_is_refused_by_name(pattern, name, column):
    """The message names what is in the way and the caret stands below it."""
    with pytest.raises(GrammarError, match=re.escape(name)) as caught:
        read_regex(pattern)
    assert caught.value.column == column
    assert str(caught.value).endswith("\n  " + " " * (column - 1) + "^") or "\n" in pattern


def test_escapes_reach_to_the_last_character():
    """U+10FFFF can be written, by itself and as the end of a range."""
    last = chr(sys.maxunicode)
    for pattern in (r"\U0010FFFF", r"[b-\U0010FFFF]"):
        assert differences(re.compile(pattern), read_regex(pattern), ["a", last, last * 2]) == []


def test_the_null_character_tells_states_apart():
    """What may follow `x` and `y` differs in U+0000 alone, and in nothing behind it."""
    pattern = r"x(?:[\x00b]d|ce)|y(?:bd|ce)"
    checked = [first + second + third for first, second, third in product("xy", "\0bc", "de")]
    assert differences(re.compile(pattern), read_regex(pattern), checked) == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads possessive counts from 3.11 on")
@pytest.mark.parametrize(
    "pattern", ["a*+", "a++b", "(?:a?+b){2}", "a*+b?1", "(a*+|b++)_?", "a{2}+a", r"a++$", "(a++b)*"]
)
def test_possessive_counts_that_lose_nothing_are_read(pattern):
    """Where none of the characters may follow, possessive and greedy are the same texts."""
    checked = ["".join(letters) for size in range(6) for letters in product("ab1_", repeat=size)]
    assert differences(re.compile(pattern), read_regex(pattern), checked) == []


def test_lines_of_a_pattern_are_counted():
    """In a pattern of several lines, line and column are those of the place."""
    with pytest.raises(GrammarError) as caught:
        read_regex("(?x) a\n  (?=b)")
    assert (caught.value.line, caught.value.column, caught.value.excerpt) == (2, 3, "  (?=b)")


def test_categories_are_those_of_str():
    """Over every code point: digits, spaces and word characters are what the methods of str say."""
    said = {"d": str.isdecimal, "s": str.isspace, "w": lambda one: one.isalnum() or one == "_"}
    for letter, holds in said.items():
        codes = {code for a, b in category(letter, ascii_only=False).ranges for code in range(a, b + 1)}
        assert codes == {code for code in range(0x110000) if holds(chr(code))}


def test_case_is_ignored_as_python_does():
    """Over every character that has a case: the ones Python takes for the same, and no others."""
    cased = [chr(code) for code in range(0x110000) if len(case_variants(code, ascii_only=False)) > 1]
    everything = "".join(cased) + "éßŉǰİıΐ0_"
    for character in everything:
        same = re.findall(re.escape(character), everything, re.IGNORECASE)
        assert set(map(ord, same)) == set(case_variants(ord(character), ascii_only=False))


def test_text_stays_text():
    """Plain characters in a row are one literal; one rule, `root`, with its place."""
    rules = read_regex("abc")
    assert dict(rules.rules) == {"root": LiteralText(b"abc")}
    assert read_regex("").rules["root"] == EMPTY
    assert read_regex("[b-da]").rules["root"] == Characters(((97, 100),))
    assert rules.spans["root"].stop == 3


@pytest.mark.parametrize(
    "pattern",
    [
        "(" * MEGABYTE,
        "(?:" * (MEGABYTE // 3),
        pytest.param("[" * MEGABYTE, marks=pytest.mark.long),
        pytest.param("a|" * (MEGABYTE // 2), marks=pytest.mark.long),
        "a*" * (MEGABYTE // 2),
        pytest.param("\\" * 999_999, marks=pytest.mark.long),
        "(a?" * 20_000 + ")" * 20_000,
        "a{" + "9" * MEGABYTE + "}",
        pytest.param("(?i)" + "k" * MEGABYTE, marks=pytest.mark.long),
        "(?:" * 60 + "a?$" + ")*b?" * 60,
        "(?:" + "a?" * 200 + "|^)(?:^|b)",
    ],
    ids=lambda pattern: f"{pattern[:6]}×{len(pattern)}",
)
def test_a_megabyte_of_anything_ends_in_an_error(pattern):
    """Deep, long and huge patterns are refused with a place; none hangs or overflows the stack."""
    with pytest.raises(GrammarError) as caught:
        read_regex(pattern)
    assert len(str(caught.value)) < 500


def test_a_long_literal_is_no_problem():
    """A megabyte of plain characters is one text, and groups may be nested up to the bound."""
    assert read_regex("a" * MEGABYTE).rules["root"] == LiteralText(b"a" * MEGABYTE)
    assert accepts(read_regex("(?:a" * MAX_DEPTH + ")?" * MAX_DEPTH), "a" * 5)
