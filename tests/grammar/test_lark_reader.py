"""Lark's notation: what is read has the language of lark's own Earley parser that tries every way of cutting a text."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import LarkError

from selectrie.errors import GrammarError
from selectrie.grammar.readers.lark import MAX_DEPTH, read_lark
from selectrie.grammar.rules import Reference, RuleSet
from tests.support.machines import compile_rules
from tests.support.n_examples import n_examples
from tests.support.slow_language import accepts

MEGABYTE = 1_000_000
SHORT = ["".join(letters) for size in range(4) for letters in product("ab ", repeat=size)]


def of_lark(grammar: str, text: str) -> bool:
    """Does lark parse it?"""
    return lark_takes(grammar, [text]) == [text]


def ours(rules: RuleSet, checked: list[str]) -> list[str]:
    """The texts that the machine takes; the slow reading of the rules must agree."""
    try:
        machine = compile_rules(rules)
    except GrammarError as error:
        if not error.reason.startswith("no text matches"):
            raise
        return [text for text in checked if accepts(rules, text)]
    ends = [machine.walk(machine.start, text.encode()) for text in checked]
    taken = [text for text, end in zip(checked, ends, strict=True) if end >= 0 and machine.can_end(end)]
    assert taken == [text for text in checked if accepts(rules, text)]
    return taken


def lark_takes(grammar: str, checked: list[str]) -> list[str]:
    """The texts that lark parses, with one parser for all of them."""
    parser = Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="forest")
    taken = []
    for text in checked:
        try:
            parser.parse(text)
        except LarkError:
            continue
        except (
            RuntimeError
        ) as error:  # parsed in several ways, with ignored text at the end or within the last terminal
            if "multiple start symbol items" not in str(error):
                raise
        taken.append(text)
    return taken


values = st.sampled_from(
    ('"a"', '"b"', '"ab"', '"A"i', "/a|b/", "/[ab]b?/", "A", "B", '"a".."b"', "x", "y", "start", "_t{A}", '_t{"b"}')
)
parts = st.recursive(
    values,
    lambda inner: st.one_of(
        st.builds("{} {}".format, inner, inner),
        st.builds("({} | {})".format, inner, inner),
        st.builds("({}){}".format, inner, st.sampled_from(("?", "*", "+", "~2", "~1..2", "~0..1"))),
        st.builds("[{}]".format, inner),
        st.just("()"),
    ),
    max_leaves=5,
)
IGNORES = st.sampled_from(("", '%ignore " "\n', "%ignore B\n", '%ignore " "\n%ignore "b"\n'))


@given(parts, parts, parts, IGNORES)
@settings(max_examples=n_examples(40))
@example('x "a" | "a"', "y start | A", '_t{B} "b"', '%ignore " "\n')
@example("[A] x*", '"b" y?', "A | start", '%ignore " "\n')
def test_a_grammar_has_the_language_of_lark(start, x, y, ignores):
    """Whatever the rules, recursion and ignored text among them: ours and lark's parser take the same short texts."""
    grammar = f'start: {start}\n?x: {x} | "b"\n!y.2: {y}\n_t{{p}}: p "a" | p\nA: "a"\nB.3: "b"\n{ignores}'
    try:
        wanted = lark_takes(grammar, SHORT)
    except LarkError:
        assume(condition=False)
    assert ours(read_lark(grammar), SHORT) == wanted


def test_the_comparison_can_fail():
    """Without the ignored text the languages differ, and the comparison sees it."""
    assert ours(read_lark('start: "a" "b"'), SHORT) != lark_takes('start: "a" "b"\n%ignore " "', SHORT)


LISTS = r"""
// a list of values, as JSON has them
?start: value (";" value)*     -> all
value: ESCAPED_STRING | SIGNED_NUMBER
     # comments may stand between the alternatives
     | "[" _separated{value, ","} "]"
     | pair{CNAME, value} -> pair
     | "nil"i~1..2
_separated{item, sign}: item (sign item)*
pair{left, right}: left "=" right

%import common (ESCAPED_STRING, SIGNED_NUMBER)
%import common.CNAME
%import common.WS -> SPACE
%ignore SPACE
%ignore /\/\*[^*]*\*\//
"""


def test_lists_with_templates_imports_and_ignored_text():
    """A grammar with most of the notation, on texts to check by hand, against lark."""
    accepted = [
        '"a"',
        ' [1, -2.5e3,"x\\"y"] ',
        "a = [b=1,c = nil]; NIL nil",
        "/* note */ 1 ;/**/2",
        "[ [ [1] ] ]",
        '"[";1',
    ]
    rejected = ["", "[1,]", '"a', "1 2", "nil nil nil", "/* open 1", '"\\"', "= 1", "a == 1"]
    assert ours(read_lark(LISTS), accepted + rejected) == accepted
    assert lark_takes(LISTS, accepted + rejected) == accepted


def test_terminals_stand_for_every_text_they_match():
    """As documented: "iffy" is `if` and `fy`, which lark's basic lexer never finds and its complete one does."""
    grammar = 'start: "if" NAME\nNAME: /[a-z]+/\n%ignore " "'
    texts = ["if fy", "iffy", "if"]
    assert ours(read_lark(grammar), texts) == lark_takes(grammar, texts) == ["if fy", "iffy"]
    with pytest.raises(LarkError):
        Lark(grammar, parser="lalr", lexer="basic").parse("iffy")


@pytest.mark.parametrize(
    ("name", "accepted", "rejected"),
    [
        ("ESCAPED_STRING", ['""', r'"a\"b"', r'"\\"'], ['"', '"a"b"', '"a\nb"', r'"\"']),
        ("C_COMMENT", ["/**/", "/* a * b\n*/", "/***/"], ["/*/", "/* a */ */"]),
        ("SIGNED_FLOAT", ["-1.5", "+1e5", "2."], ["1", "."]),
        ("CPP_COMMENT", ["// x"], ["// x\n"]),
        ("WORD", ["abC"], ["", "a1"]),
        ("NEWLINE", ["\r\n\n"], ["\r"]),
    ],
)
def test_terminals_of_larks_own_files(name, accepted, rejected):
    """Those that lark defines by first matches and look-behind are the texts its lexers take for them."""
    rules = read_lark(f"start: {name}\n%import common.{name}")
    assert ours(rules, accepted + rejected) == accepted
    assert [text for text in accepted + rejected if of_lark(f"start: {name}\n%import common.{name}", text)] == accepted


def test_what_is_imported_from_files(tmp_path: Path):
    """Rules of other files bring what they need under names of their own; override and extend reach into them."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "signs.lark").write_text(
        '%import .deep.more.DOT\nsign: PLUS | DOT\nPLUS: "+"\nhidden: "h"\n%ignore "x"\n'
    )
    (tmp_path / "inner" / "deep").mkdir()
    (tmp_path / "inner" / "deep" / "more.lark").write_text('DOT: "."\n')
    text = "%import .inner.signs.sign -> mark\n%import .inner.signs (hidden)\n"
    text += 'start: mark hidden PLUS\nPLUS: "p"\n%extend mark: "*"\n%override hidden: "H" | PLUS\n'
    rules = read_lark(text, folder=tmp_path)
    assert ours(rules, ["+Hp", ".pp", "*Hp", "phh", "+hp", "x+Hp"]) == ["+Hp", ".pp", "*Hp"]
    assert "inner__signs__PLUS" in rules.rules
    assert text[rules.spans["start"].start : rules.spans["start"].stop] == "start"
    assert "mark" not in rules.spans


@pytest.mark.parametrize(
    ("grammar", "name", "place"),
    [
        ("start: X\n%declare X", "'X' is only declared", (1, 8)),
        ("start: /a(?=b)/", "look-ahead", (1, 10)),
        ('start: /".*?"/', "lazy", (1, 11)),
        ("start: /a+?/", "nothing follows this lazy count", (1, 10)),
        ("start: /a/l", "the flag l", (1, 11)),
        ("start: A\nA: B\nB: A", "a terminal contains itself: ", (2, 1)),
        ("start: A\nA: start", "a terminal contains the rule 'start'", (2, 4)),
        ('start: A\nA: "a" -> b', "a terminal cannot have an alias", (2, 11)),
        ("start: t{t}\nt{x}: x", "the template 't' is used without arguments", (1, 10)),
        ("start: t{a}\na: t{a}\nt{x}: x{a}", "a template cannot be the argument", (3, 7)),
        ("start: t{a, a}\na: \nt{x}: x", "takes 1 arguments, not 2", (1, 8)),
        ("start: a\na: b", "'b' is not defined", (2, 4)),
        ('start: "a"\nunused: b', "'b' is not defined", (2, 9)),
        ('start: "a"\nstart: "b"', "is defined twice", (2, 1)),
        ('start: "a"\n%override b: "b"', "is not defined yet", (2, 11)),
        ('start: "a"\n%extend b: "b"', "is not defined yet", (2, 9)),
        ('start: "z".."a"', "is not an ascending range", (1, 8)),
        ('start: "ab".."c"', "is not an ascending range", (1, 8)),
        ('start: "a"~3..2', "are not a range", (1, 12)),
        ('start: "a"~9999999', "too large", (1, 12)),
        ('start: "a"~999999', "exceeds the limit", (1, 8)),
        ("%import nothing.X", "none of the grammars that come with Lark", (1, 17)),
        ("%import common.NOTHING\nstart: NOTHING", "does not define 'NOTHING'", (1, 16)),
        ("%import common.WS -> ws\nstart: ws", "WS is imported as ws", (1, 16)),
        ("%import common.WS\n%import .common.INT\nstart: WS", "with and without a leading dot", (2, 17)),
        ("%import X", "nothing is imported from 'X'", (1, 9)),
        ("%unknown X", "not a statement", (1, 1)),
        ("start: 'a'", "a string is written in double quotes", (1, 8)),
        ('start: "a', "not closed", (1, 8)),
        ("start: /a", "not closed", (1, 8)),
        ("start: (", "expected", (1, 9)),
        ("start: a)", "expected", (1, 9)),
        ("start", "found the end", (1, 6)),
        ("t{a,a}: a", "two parameters of one name", (1, 1)),
        (r'start: "\ud800"', "surrogate", (1, 8)),
        ('start: "a"\n%ignore start', "a terminal contains the rule 'start'", (2, 9)),
    ],
)
def test_what_cannot_be_carried_over_is_refused_by_name(grammar, name, place):
    """The message names what is in the way, and where."""
    with pytest.raises(GrammarError) as caught:
        read_lark(grammar)
    assert name in caught.value.reason
    assert (caught.value.line, caught.value.column) == place


def test_a_start_that_is_not_there_is_refused():
    """The rules that could be meant are named."""
    with pytest.raises(GrammarError, match="there is no rule 'start' to start with; the rules are: 'first'"):
        read_lark('first: "a"\nSTART: "b"')


def test_errors_of_imported_files_name_the_file(tmp_path: Path):
    """What is wrong in another file, files that import each other, and files that are no text, are refused by name."""
    (tmp_path / "broken.lark").write_text("a: (\n")
    (tmp_path / "round.lark").write_text("%import .round.a\na: \n")
    (tmp_path / "bytes.lark").write_bytes(b"\xff")
    for name, reason in (("broken", "broken.lark: expected"), ("round", "imports itself"), ("bytes", "cannot be read")):
        with pytest.raises(GrammarError, match=reason):
            read_lark(f"%import .{name}.a\nstart: a", folder=tmp_path)


def test_lazy_counts_that_change_nothing_are_read():
    """A lazy count before what it cannot hold itself is like a greedy one."""
    grammar = 'start: /"[^"]*?"/ /a??b/'
    texts = ['""b', '"x"ab', '"x"b', '"x"y"b']
    assert ours(read_lark(grammar), texts) == lark_takes(grammar, texts) == texts[:3]


@pytest.mark.parametrize(
    "grammar",
    [
        "start: " + "(" * MEGABYTE,
        "start: " + "[" * MEGABYTE,
        'start: "' + "a" * MEGABYTE,
        "start: " + "a " * (MEGABYTE // 2),
        "start: /" + "(" * MEGABYTE + "/",
        pytest.param("".join(f"r{i}: r{i + 1}\n" for i in range(60_000)), marks=pytest.mark.long),
        "start: t{t{" + "x" * 70 + "}}\n" + "t{a}: t{t{a}}",
        pytest.param("start: " + "\\\n" * 100 + "|" * MEGABYTE, marks=pytest.mark.long),
    ],
    ids=lambda grammar: f"{grammar[:12]!r}×{len(grammar)}",
)
def test_a_megabyte_of_anything_ends_in_an_error(grammar):
    """Deep, long and endless grammars are refused; none hangs or overflows the stack."""
    with pytest.raises(GrammarError) as caught:
        read_lark(grammar)
    assert len(str(caught.value)) < 600


def test_nesting_up_to_the_bound_is_read():
    """The deepest grammar that is allowed, and a chain of terminals far longer than Python's stack."""
    deep = "start: " + "(" * MAX_DEPTH + '"a"' + ")?" * MAX_DEPTH
    assert ours(read_lark(deep), ["a", "", "aa"]) == ["a", ""]
    chain = "start: T0\n" + "".join(f"T{i}: T{i + 1}\n" for i in range(3_000)) + 'T3000: "x"'
    assert read_lark(chain.replace("T", "T_")).rules["T_2999"] == Reference("T_3000")


@given(st.text(st.sampled_from('abAB:|()[]{}?*+~.,"/\\%->!_#0 2\n'), max_size=20).map("start: ".__add__))
@settings(max_examples=n_examples(200))
def test_any_text_is_read_or_refused(grammar):
    """Nothing but our own error comes out, whatever goes in."""
    try:
        read_lark(grammar)
    except GrammarError as error:
        seen = error.reason
    else:
        seen = "read"
    assert seen
