from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import TemplateError
from selectrie.template.syntax.ast import (
    Comment,
    Compare,
    Constant,
    Document,
    Expression,
    If,
    ListOf,
    Literal,
    Logical,
    Not,
    Output,
    Path,
    Role,
    Set,
)
from selectrie.template.syntax.parser import parse
from selectrie.template.syntax.unparse import unparse
from tests.support.template_strategies import documents, expressions, sources

DIALECTS = ["selectrie", "handlebars"]


def printed(body, dialect="selectrie"):
    return unparse(Document("made", "", tuple(body), dialect))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=30)
def test_printed_segments_are_read_as_they_were(dialect, data):
    """A document's text reads as the same segments, and prints as the same text: `True` stays apart from `1`."""
    document = data.draw(documents(dialect))
    text = unparse(document)
    again = parse(text, dialect=dialect)
    assert again.body == document.body
    assert unparse(again) == text


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=30)
def test_a_source_and_its_canonical_text_are_one_template(dialect, data):
    """What people write and what is printed of it have the same segments."""
    document = parse(data.draw(sources(dialect)), dialect=dialect)
    assert parse(unparse(document), dialect=dialect).body == document.body


@given(documents())
@settings(max_examples=30)
def test_dialects_differ_in_spelling_alone(document):
    """The same segments are printed and read in either dialect."""
    other = Document("made", "", document.body, "handlebars")
    assert parse(unparse(other), dialect="handlebars").body == parse(unparse(document)).body


def loud(expression: Expression) -> str:
    """An expression with parentheses around each part, whether they are needed or not."""
    match expression:
        case Not(operand):
            return f"(not {loud(operand)})"
        case Compare(operator, left, right):
            return f"({loud(left)} {operator} {loud(right)})"
        case Logical(operator, operands):
            return "(" + f" {operator} ".join(map(loud, operands)) + ")"
        case ListOf(items):
            return "[" + ", ".join(map(loud, items)) + "]"
        case _:
            return printed([Set("x", expression)]).removeprefix("<<set 'x' ").removesuffix(">>")


@given(expressions())
@settings(max_examples=60)
def test_parentheses_are_left_out_where_they_say_nothing(expression):
    """The text with few parentheses reads as the one with all of them, and is no longer."""
    text = printed([If(((expression, (Literal("x"),)),))])
    every = f"<<#if {loud(expression)}>>x<</if>>"
    assert parse(text).body == parse(every).body
    assert len(text) <= len(every)


CANONICAL = [
    ("  <<~ name ~>>  x", "<<name>>x"),
    ("<<#unless a>>x<</unless>>", "<<#if not a>>x<</if>>"),
    ("<<#raw>>a <<b>> \\<<<</raw>>", "a \\<<b>> \\\\\\<<"),
    ("<<!---- x -->><<!-- a>>b -->><<!--~-->>", "<<!---- x -->><<!-- a>>b -->><<!--~-->>"),
    ("<<!-- x -->>", "<<! x >>"),
    ('<<set x="it\'s">>', "<<set 'x' 'it\\'s'>>"),
    ("<<set x='a\tb\nc\\u00e9\\\\'>>", "<<set 'x' 'a\\tb\\ncé\\\\'>>"),
    ("<<set x=[1,2.50,-3e2,True,None,]>>", "<<set 'x' [1, 2.5, -300.0, true, none]>>"),
    ("<<a['b']['c d'][0][i]['if']>>", "<<a.b['c d'][0][i].if>>"),
    ("<<gen name='x' n=2>>", "<<gen 'x' n=2>>"),
    ("<<#if ((a)) and ((b) or (not (c)))>>x<<else>><</if>>", "<<#if a and (b or not c)>>x<</if>>"),
    ("<<#if (a == b) == (not c)>>x<</if>>", "<<#if (a == b) == (not c)>>x<</if>>"),
    ("<<#if (a or b) or c>>x<</if>>", "<<#if (a or b) or c>>x<</if>>"),
    ("<<#role 'user'>>x<</role>><<#role 'tool'>>y<</role>>", "<<#user>>x<</user>><<#role 'tool'>>y<</role>>"),
    ("<<#each a as this_one>>x<</each>>", "<<#each a as this_one>>x<</each>>"),
    (
        "<<#joint k=2>><<#select 'x'>><<or>>b<</select>><</joint>>",
        "<<#joint k=2>><<#select 'x'>><<or>>b<</select>><</joint>>",
    ),
    ("\\\\<<a>><<<b>>\\", "\\\\<<a>><<<b>>\\"),
]


@pytest.mark.parametrize(("source", "canonical"), CANONICAL, ids=[ascii(source) for source, _ in CANONICAL])
def test_one_spelling_of_each(source, canonical):
    """A source prints as the canonical text of its row, which prints as itself."""
    assert unparse(parse(source)) == canonical
    assert unparse(parse(canonical)) == canonical


LITERALS = [
    ("<<", "\\<<"),
    ("<", "<"),
    ("<<<", "\\<<<"),
    ("<<<<", "\\<<\\<<"),
    ("\\<<", "\\\\\\<<"),
    ("\\\\", "\\\\"),
    ("\\ <", "\\ <"),
]
"""A literal at the end of a template, and its text."""
BEFORE_TAGS = [
    ("<", "<<<a>>"),
    ("\\", "\\\\<<a>>"),
    ("\\<", "\\\\<<<a>>"),
    ("<<", "\\<<<<a>>"),
    ("\\<<<", "\\\\\\<<<<<a>>"),
    ("\\ ", "\\ <<a>>"),
]
"""A literal before the tag `<<a>>`, and the text of both."""


@pytest.mark.parametrize(("text", "written"), LITERALS, ids=[ascii(text) for text, _ in LITERALS])
def test_literals_are_escaped_where_they_must_be(text, written):
    """Two opening signs are escaped, and so are backslashes before them; others stand as they are."""
    assert printed([Literal(text)]) == written
    assert parse(written).body == (Literal(text),)


@pytest.mark.parametrize(("text", "written"), BEFORE_TAGS, ids=[ascii(text) for text, _ in BEFORE_TAGS])
def test_literals_before_tags_leave_the_tag_a_tag(text, written):
    """A sign or backslashes at the end of a literal do not change the tag behind it."""
    body = (Literal(text), Output(Path("a")))
    assert printed(body) == written
    assert parse(written).body == body


def test_a_comment_with_its_own_end_cannot_be_written():
    """No source has such a comment; printing it is refused, and says why."""
    with pytest.raises(TemplateError, match="a comment that contains -->> cannot be written: 'a-->>b'"):
        printed([Comment("a-->>b")])
    with pytest.raises(TemplateError, match="a comment that contains --}} cannot be written"):
        printed([Comment("a--~}}b")], "handlebars")
    assert parse(printed([Comment("a-->>b")], "handlebars"), dialect="handlebars").body == (Comment("a-->>b"),)


def test_the_round_trip_sees_a_changed_segment():
    """Segments that differ in a name, a type or a literal's text print differently."""
    different = [
        [Output(Path("a"))],
        [Output(Path("b"))],
        [Output(Path("a", ("b",)))],
        [Output(Path("a", (0,)))],
        [Output(Path("a", (Path("b"),)))],
        [Set("a", Constant(1))],
        [Set("a", Constant(1.0))],
        [Set("a", Constant("1"))],
        [Set("a", Constant(value=True))],
        [Literal("a")],
        [Literal("a ")],
        [Role("user", (Literal("a"),))],
        [Role("users", (Literal("a"),))],
    ]
    assert len({printed(body) for body in different}) == len(different)


def test_long_documents_print_in_time():
    """Runs of backslashes and opening signs are escaped in one pass."""
    text = "\\" * 50_000 + "a" + "\\" * 50_000 + "<" * 50_000
    assert parse(printed([Literal(text), Output(Path("a"))])).body == (Literal(text), Output(Path("a")))
