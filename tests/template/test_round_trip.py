from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.template.syntax.ast import (
    Comment,
    Compare,
    Constant,
    Document,
    Expression,
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
from tests.support.n_examples import n_examples
from tests.support.template_strategies import documents, expressions, sources
from tests.support.written_templates import expression_text, written

DIALECTS = ["selectrie", "handlebars"]


def text_of(*body):
    """The text of a template in our dialect."""
    return written(Document("made", "", body))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=n_examples(30))
def test_written_segments_are_read_as_they_were(dialect, data):
    """A document's text reads as the same segments, and they are written as the same text: `True` stays apart from `1`."""
    document = data.draw(documents(dialect))
    text = written(document)
    again = parse(text, dialect=dialect)
    assert again.body == document.body
    assert written(again) == text


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=n_examples(30))
def test_a_source_is_the_template_of_its_segments(dialect, data):
    """What people write has the segments of the text that is written from them."""
    document = parse(data.draw(sources(dialect)), dialect=dialect)
    assert parse(written(document), dialect=dialect).body == document.body


@given(documents())
@settings(max_examples=n_examples(30))
def test_dialects_differ_in_spelling_alone(document):
    """The same segments are written and read in either dialect."""
    other = Document("made", "", document.body, "handlebars")
    assert parse(written(other), dialect="handlebars").body == parse(written(document)).body


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
            return expression_text(expression)


@given(expressions())
@settings(max_examples=n_examples(60))
def test_parentheses_are_left_out_where_they_say_nothing(expression):
    """The text with as few parentheses as can be reads as the one with all of them."""
    assert parse(f"<<set x={expression_text(expression)}>>").body == (Set("x", expression),)
    assert parse(f"<<set x={loud(expression)}>>").body == (Set("x", expression),)


SAME = [
    ("  <<~ name ~>>  x", "<<name>>x"),
    ("<<#unless a>>x<</unless>>", "<<#if not a>>x<</if>>"),
    ("<<#raw>>a <<b>> \\<<<</raw>>", "a \\<<b>> \\\\\\<<"),
    ("<<!-- x -->>", "<<! x >>"),
    ('<<set x="it\'s">>', "<<set 'x' 'it\\'s'>>"),
    ("<<set x='a\tb\nc\\u00e9\\\\'>>", "<<set 'x' 'a\\tb\\ncé\\\\'>>"),
    ("<<set x=[1,2.50,-3e2,True,None,]>>", "<<set 'x' [1, 2.5, -300.0, true, none]>>"),
    ("<<a['b']['c d'][0][i]['if']>>", "<<a.b['c d'][0][i].if>>"),
    ("<<#if ((a)) and ((b) or (not (c)))>>x<<else>><</if>>", "<<#if a and (b or not c)>>x<</if>>"),
    ("<<#role 'user'>>x<</role>>", "<<#user>>x<</user>>"),
    ("<<#role name=this['role']>>x<</role>>", "<<#role this.role>>x<</role>>"),
]
"""Two ways to write a template."""


@pytest.mark.parametrize(("source", "other"), SAME, ids=[ascii(source) for source, _ in SAME])
def test_two_ways_to_write_a_template(source, other):
    """Both have the same segments, with values of the same types."""
    assert parse(source).body == parse(other).body
    assert written(parse(source)) == written(parse(other))


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


@pytest.mark.parametrize(("text", "source"), LITERALS, ids=[ascii(text) for text, _ in LITERALS])
def test_literals_are_escaped_where_they_must_be(text, source):
    """Two opening signs are escaped, and so are backslashes before them; others stand as they are."""
    assert parse(source).body == (Literal(text),)
    assert text_of(Literal(text)) == source


@pytest.mark.parametrize(("text", "source"), BEFORE_TAGS, ids=[ascii(text) for text, _ in BEFORE_TAGS])
def test_literals_before_tags_leave_the_tag_a_tag(text, source):
    """A sign or backslashes at the end of a literal do not change the tag behind it."""
    body = (Literal(text), Output(Path("a")))
    assert parse(source).body == body
    assert text_of(*body) == source


def test_a_comment_may_hold_the_end_of_the_other_dialect():
    """It goes on to its own end."""
    assert parse("{{!--a-->>b--}}", dialect="handlebars").body == (Comment("a-->>b"),)
    assert parse("<<!--a--~}}b-->>").body == (Comment("a--~}}b"),)


def test_the_round_trip_sees_a_changed_segment():
    """Segments that differ in a name, a type or a literal's text are written differently."""
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
    assert len({text_of(*body) for body in different}) == len(different)


def test_long_runs_are_read_in_time():
    """Backslashes and opening signs are read in one pass."""
    text = "\\" * 50_000 + "a" + "\\" * 50_000 + "<" * 50_000
    assert parse(text_of(Literal(text), Output(Path("a")))).body == (Literal(text), Output(Path("a")))
