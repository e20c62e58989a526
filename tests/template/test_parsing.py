from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import OptionError, TemplateError
from selectrie.template.syntax.ast import (
    Block,
    Body,
    Comment,
    Compare,
    Constant,
    Each,
    Expression,
    GenEach,
    If,
    Include,
    Joint,
    ListOf,
    Literal,
    Logical,
    Not,
    Output,
    Path,
    Role,
    Segment,
    Set,
    Slot,
    Span,
    error_at,
    line_and_column,
)
from selectrie.template.syntax.parser import parse
from selectrie.template.syntax.tags import TAGS
from tests.support.n_examples import n_examples
from tests.support.template_strategies import inner_bodies, mutations, sources, walk
from tests.support.written_templates import written

TERMINALS = re.compile(r"\b([LR]PAR|[LR]SQB|__ANON\w*|[A-Z]+_NAME|OPEN\w*|CLOSE|BROKEN|LIST|INDEX|Token)\b")
A, B, C = Path("a"), Path("b"), Path("c")


def text(*parts: str) -> Body:
    return tuple(Literal(part) for part in parts)


def one(source: str) -> Segment:
    """The only segment of a source."""
    (segment,) = parse(source).body
    return segment


def condition(source: str) -> Expression:
    """What stands in an `if`."""
    segment = one(f"<<#if {source}>>x<</if>>")
    assert isinstance(segment, If)
    return segment.branches[0][0]


SEGMENTS = [
    ("<<name>>", Output(Path("name"))),
    ("<<~ name\n~>>", Output(Path("name"))),
    ("<<data.key>>", Output(Path("data", ("key",)))),
    ("<<data.user.if>>", Output(Path("data", ("user", "if")))),
    ('<<data["a b"]>>', Output(Path("data", ("a b",)))),
    ("<<items[0][-1]>>", Output(Path("items", (0, -1)))),
    ("<<items[i].x>>", Output(Path("items", (Path("i"), "x")))),
    ("<<a[b == 'x']>>", Output(Path("a", (Compare("==", B, Constant("x")),)))),
    ("<<@index>>", Output(Path("@index"))),
    ("<<this.name>>", Output(Path("this", ("name",)))),
    ("<<'<<'>>", Output(Constant("<<"))),
    ("<<! note >>", Comment(" note ")),
    ("<<!-- >> <b> -- -->>", Comment(" >> <b> -- ")),
    ("<<!>>", Comment("")),
    ("<<~!x~>>", Comment("x")),
    ("<<!---->>", Comment("")),
    ("<<set 'x' 3>>", Set("x", Constant(3))),
    ("<<set x=a or b>>", Set("x", Logical("or", (A, B)))),
    ("<<include 'dir/f.tmpl'>>", Include("dir/f.tmpl")),
    ("<<gen 'x'>>", Slot("gen", "x")),
    ("<<gen name='x'>>", Slot("gen", "x")),
    ("<<gen 'this.age' n=2>>", Slot("gen", "this.age", (("n", Constant(2)),))),
    ("<<select 'x' options=a k=3>>", Slot("select", "x", (("options", A), ("k", Constant(3))))),
    ("<<select k=3 name='x'>>", Slot("select", "x", (("k", Constant(3)),))),
    (
        "<<beam 'x' grammar='w.gbnf' width=8>>",
        Slot("beam", "x", (("grammar", Constant("w.gbnf")), ("width", Constant(8)))),
    ),
    ("<<gen 'x' hidden=not a and b>>", Slot("gen", "x", (("hidden", Logical("and", (Not(A), B))),))),
    ("<<#select 'x'>>a<<or>>b<</select>>", Slot("select", "x", (), (text("a"), text("b")))),
    ("<<#select 'x'>>a<<or>><</select>>", Slot("select", "x", (), (text("a"), ()))),
    (
        "<<#select 'x'>>a <<name>>!<</select>>",
        Slot("select", "x", (), ((Literal("a "), Output(Path("name")), Literal("!")),)),
    ),
    ("<<#select 'x'>>a<<! c >>b<</select>>", Slot("select", "x", (), (text("ab"),))),
    ("<<#each a>>x<</each>>", Each(A, text("x"))),
    ("<<#each a as b join=', '>>x<</each>>", Each(A, text("x"), "b", (("join", Constant(", ")),))),
    ("<<#each ['x', 1]>><</each>>", Each(ListOf((Constant("x"), Constant(1))), ())),
    ("<<#geneach 'x' num=3>>y<</geneach>>", GenEach("x", text("y"), (("num", Constant(3)),))),
    ("<<#if a>>x<</if>>", If(((A, text("x")),))),
    ("<<#if a>>x<<else>>y<</if>>", If(((A, text("x")),), text("y"))),
    ("<<#if a>>x<<elif b>>y<<elif c>><<else>><</if>>", If(((A, text("x")), (B, text("y")), (C, ())))),
    ("<<#unless a>>x<</unless>>", If(((Not(A), text("x")),))),
    ("<<#unless a>>x<<elif b>>y<<else>>z<</unless>>", If(((Not(A), text("x")), (B, text("y"))), text("z"))),
    ("<<#block>>x<</block>>", Block(text("x"))),
    ("<<#block 'b' hidden=true>>x<</block>>", Block(text("x"), "b", (("hidden", Constant(True)),))),
    (
        "<<#joint k=2>><<select 'x' options=a>><</joint>>",
        Joint((Slot("select", "x", (("options", A),)),), (("k", Constant(2)),)),
    ),
    ("<<#user>>x<</user>>", Role("user", text("x"))),
    ("<<#role 'tool'>>x<</role>>", Role("tool", text("x"))),
    ("<<#role name='system'>>x<</role>>", Role("system", text("x"))),
]


@pytest.mark.parametrize(("source", "segment"), SEGMENTS, ids=[source for source, _ in SEGMENTS])
def test_every_tag_is_a_segment(source, segment):
    """One tag or block reads as the segment that its row names."""
    assert one(source) == segment


def test_every_tag_of_the_table_is_read_somewhere():
    """The rows above hold each tag that the table of tags has."""
    sources_of_all = " ".join(source for source, _ in SEGMENTS) + "<<#raw <<#system <<#assistant"
    assert [kind for kind in TAGS if not re.search(rf"<<#?{kind}\b", sources_of_all)] == []


CONDITIONS = [
    ("a and b and c", Logical("and", (A, B, C))),
    ("a or b and c", Logical("or", (A, Logical("and", (B, C))))),
    ("(a or b) and c", Logical("and", (Logical("or", (A, B)), C))),
    ("(a and b) and c", Logical("and", (Logical("and", (A, B)), C))),
    ("not a and b", Logical("and", (Not(A), B))),
    ("not (a and b)", Not(Logical("and", (A, B)))),
    ("not a == b", Not(Compare("==", A, B))),
    ("not not a", Not(Not(A))),
    ("a == (b != c)", Compare("==", A, Compare("!=", B, C))),
    ("a < b or a >= c", Logical("or", (Compare("<", A, B), Compare(">=", A, C)))),
    ("a not in b", Compare("not in", A, B)),
    (
        "a in [1, 2.5, -3, 1e3, true, False, None]",
        Compare("in", A, ListOf(tuple(map(Constant, (1, 2.5, -3, 1000.0, True, False, None))))),
    ),
    ("a in [b, [c],]", Compare("in", A, ListOf((B, ListOf((C,)))))),
    ("a in []", Compare("in", A, ListOf(()))),
    ("a == 'x\\n\\t\\\\\\'\\\"\\u00e9'", Compare("==", A, Constant("x\n\t\\'\"é"))),
    ('a == "it\'s"', Compare("==", A, Constant("it's"))),
    ("a == 'two\nlines'", Compare("==", A, Constant("two\nlines"))),
    ("a == '>>'", Compare("==", A, Constant(">>"))),
    ("android or notes or inner", Logical("or", (Path("android"), Path("notes"), Path("inner")))),
    ("größe > 3", Compare(">", Path("größe"), Constant(3))),
]


@pytest.mark.parametrize(("source", "expected"), CONDITIONS, ids=[source for source, _ in CONDITIONS])
def test_operators_bind_as_written(source, expected):
    """`or` binds least, then `and`, `not`, comparisons; parentheses stand before all."""
    found = condition(source)
    assert found == expected
    assert [type(one.value) for one in constants(found)] == [type(one.value) for one in constants(expected)]


def constants(expression: Expression) -> list[Constant]:
    """The constants of an expression, for their types: True equals 1."""
    match expression:
        case Constant():
            return [expression]
        case ListOf(several) | Logical(_, several):
            return [constant for each in several for constant in constants(each)]
        case Compare(_, left, right):
            return constants(left) + constants(right)
        case Not(operand):
            return constants(operand)
        case _:
            return []


LITERALS = [
    (r"a \<< b", "a << b"),
    (r"\<<x>>", "<<x>>"),
    (r"\\\<<", "\\<<"),
    (r"\\ \n \' <\<<", r"\\ \n \' <<<"),
    ("1 < 2 > 0 >> {{x}}", "1 < 2 > 0 >> {{x}}"),
    ("<<#raw>>a <<b>> \\<< \\ <<! c<</raw>>", "a <<b>> \\<< \\ <<! c"),
    ("x<<#raw>>y<</raw>>z", "xyz"),
    ("x <<~#raw~>> y <<~/raw~>> z", "xyz"),
    ("x <<#raw>> <</raw~>> z", "x  z"),
    ("a\r\nb\r\n", "a\r\nb\r\n"),
    ("\u2028\ud800\x00", "\u2028\ud800\x00"),
]


@pytest.mark.parametrize(("source", "expected"), LITERALS, ids=[ascii(source) for source, _ in LITERALS])
def test_text_is_one_literal(source, expected):
    """Escapes and raw blocks become part of the literal that they stand in."""
    assert parse(source).body == text(expected)


TAGGED = [
    (r"\\<<a>>", ["\\", A]),
    (r"\\\\<<a>>", ["\\\\", A]),
    (r"\\\<<a>>", ["\\<<a>>"]),
    ("<<<a>>>", ["<", A, ">"]),
    ("<<<<a>>", ["<<", A]),
    (r"\<<<a>>", ["<<<a>>"]),
    (r"\<<<<a>>", ["<<", A]),
    (" <<~a>> ", [A, " "]),
    (" <<a~>> ", [" ", A]),
    (" <<~a~>>\r\n\t", [A]),
    (" <<a~>> <<~b>> ", [" ", A, B, " "]),
    (" x <<~a~>> \n y <<~b>>z", [" x", A, "y", B, "z"]),
    ("a <<~! c ~>> b", ["a", "c", "b"]),
    ("<<a~>> x \\<< y <<~b>>", [A, "x << y", B]),
    ("<<a~>> <<#raw>> x<</raw>> y ", [A, " x y "]),
    ("<<a~>><<#raw>> x <</raw>> <<~b>>", [A, " x ", B]),
    ("<<a~>> \\<< <<~b>>", [A, "<<", B]),
    ("\u2003<<~a~>>\u00a0", [A]),
]


@pytest.mark.parametrize(("source", "expected"), TAGGED, ids=[ascii(source) for source, _ in TAGGED])
def test_what_stands_beside_a_tag(source, expected):
    """A `~` trims the literal beside it; backslashes before a delimiter are read in pairs; a tag begins at the last two signs."""
    found = parse(source).body
    assert [
        one.text.strip() if isinstance(one, Comment) else one.text if isinstance(one, Literal) else one.value
        for one in found
    ] == expected


@given(
    texts=st.lists(
        st.text(alphabet="a \n\t\u00a0\\x", max_size=4).map(lambda text: text + "."), min_size=2, max_size=4
    ),
    trims=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3),
    blanks=st.lists(st.sampled_from(("", " ", " \n")), min_size=8, max_size=8),
)
@settings(max_examples=n_examples(60))
def test_trimming_is_stripping(texts, trims, blanks):
    """Between tags stands the text, stripped on the sides where its neighbours have a `~`: the same by `str.strip`."""
    texts = [blanks[2 * i] + text + blanks[2 * i + 1] for i, text in enumerate(texts)]
    source, expected = texts[0], []
    for i, text_ in enumerate(texts):
        left = i > 0 and trims[i - 1][1]
        right = i < len(texts) - 1 and trims[i][0]
        kept = text_.lstrip() if left else text_
        expected.append(kept.rstrip() if right else kept)
        if i:
            before, behind = trims[i - 1]
            source += "<<" + "~" * before + "a" + "~" * behind + ">>" + text_
    assert [one.text for one in parse(source).body if isinstance(one, Literal)] == expected


@given(st.text(max_size=30))
@settings(max_examples=n_examples(50))
def test_text_without_the_delimiter_is_itself(source):
    """Any text that has no `<<` is one literal of exactly that text, whatever its characters; no text is no segment."""
    if "<<" not in source:
        (expected,) = text(source) if source else (None,)
        assert parse(source).body == ((expected,) if expected else ())
        assert [one.span for one in parse(source).body] == [Span(0, len(source))] * bool(source)


@pytest.mark.parametrize("dialect", ["selectrie", "handlebars"])
@given(data=st.data())
@settings(max_examples=n_examples(20))
def test_spans_lie_in_the_source_in_order(dialect, data):
    """Each segment's span lies within the span of what it stands in, behind those before it; its text reads as that segment."""
    source = data.draw(sources(dialect))
    document = parse(source, dialect=dialect)

    def check(body: Body, around: Span, *, choice: bool = False) -> None:
        place = around.start
        for segment in body:
            span = segment.span
            assert place <= span.start < span.stop <= around.stop
            place = span.stop
            part = source[span.start : span.stop]
            if not isinstance(segment, Literal) or (not part.endswith("\\") and not choice):
                assert parse(part, dialect=dialect).body == (segment,)
            inner_start = span.start
            for inner in inner_bodies(segment):
                check(inner, Span(inner_start, span.stop), choice=isinstance(segment, Slot))
                inner_start = inner[-1].span.stop if inner else inner_start

    check(document.body, Span(0, len(source)))


def test_expressions_have_spans():
    """The span of a value holds exactly its words."""
    source = "x<<#if  a.b[0] == 'é' and not [c, 1] >>y<</if>><<select 'q' options = data['k'] >>"
    document = parse(source)
    (found, _), condition_ = document.body[1].branches[0], document.body[1].branches[0][0]
    shown = [found, *condition_.operands, condition_.operands[0].left, condition_.operands[1].operand.items[1]]
    shown.append(document.body[2].arguments[0][1])
    assert [source[one.span.start : one.span.stop] for one in shown] == [
        "a.b[0] == 'é' and not [c, 1]",
        "a.b[0] == 'é'",
        "not [c, 1]",
        "a.b[0]",
        "1",
        "data['k']",
    ]


def check_error(error: TemplateError, source: str) -> None:
    """Its place lies in the source, its line is shown, and none of the grammar's own names is."""
    lines = source.split("\n")
    assert error.name == "page.tmpl"
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert error.excerpt == lines[error.line - 1].rstrip("\r")
    assert str(error).startswith(f"page.tmpl:{error.line}:{error.column}: ")
    assert not TERMINALS.search(error.reason)


@given(source=mutations(sources(depth=1)), dialect=st.sampled_from(("selectrie", "handlebars")))
@settings(max_examples=n_examples(80))
def test_any_source_is_a_document_or_one_error(source, dialect):
    """Whatever was done to a template, it is read, or refused with a place in it and words that people use."""
    try:
        document = parse(source, name="page.tmpl", dialect=dialect)
    except TemplateError as error:
        check_error(error, source)
    else:
        assert parse(written(document), dialect=dialect).body == document.body


def test_the_law_of_mutations_can_fail():
    """An error that names a terminal, or another place, is found."""
    with pytest.raises(AssertionError):
        check_error(TemplateError("expected RPAR", name="page.tmpl", line=1, column=1, excerpt="x"), "x")
    with pytest.raises(AssertionError):
        check_error(TemplateError("expected )", name="page.tmpl", line=1, column=3, excerpt="x"), "x")


def mixed(depth: int) -> str:
    pairs = -(-depth // 2)
    return "<<#if " + "(not " * pairs + "a" + ")" * pairs + ">>x<</if>>"


def nested(depth: int) -> str:
    return "<<#if a>>" * depth + "x" + "<</if>>" * depth


@pytest.mark.parametrize(
    ("fits", "reason"),
    [
        (nested, "blocks are nested more than 64 deep"),
        (lambda depth: "<<#if " + "(" * depth + "a" + ")" * depth + ">>x<</if>>", "nested more than 64 deep"),
        (lambda depth: "<<#if " + "not " * depth + "a>>x<</if>>", "nested more than 64 deep"),
        (mixed, "nested more than 64 deep"),
        (lambda depth: "<<set x=" + "[" * depth + "]" * depth + ">>", "nested more than 64 deep"),
        (lambda depth: "<<a" + "[a" * depth + "]" * depth + ">>", "nested more than 64 deep"),
        (lambda depth: "<<a" + ".b" * depth + ">>", "this path has more than 64 steps"),
        (lambda depth: "<<#block>>" * depth + "<</block>>" * depth, "blocks are nested more than 64 deep"),
    ],
    ids=["blocks", "parentheses", "not", "mixed", "lists", "indices", "keys", "empty"],
)
def test_depth_is_64(fits, reason):
    """64 inside each other are read, also as written from their segments; one more is refused by name."""
    document = parse(fits(64))
    assert parse(written(document)).body == document.body
    with pytest.raises(TemplateError, match=reason):
        parse(fits(65))


def test_what_is_beside_counts_for_no_depth():
    """Hundreds of negations, brackets and blocks beside each other are no depth."""
    many = " and ".join(["not (a) and not b[0] == c"] * 100)
    assert len(condition(many).operands) == 200
    assert len(parse("<<#if a>>x<</if>>" * 200).body) == 200
    assert condition("(" * 63 + "a not in [b]" + ")" * 63) == Compare("not in", A, ListOf((B,)))


BOMBS = {
    "openings": "<<" * 100_000,
    "openings apart": "<< " * 100_000,
    "blocks": "<<#if a>>" * 20_000,
    "ends": "<</if>>" * 20_000,
    "hashes": "<<#" * 100_000,
    "parentheses": "<<" + "(" * 200_000,
    "brackets": "<<a" + "[" * 200_000,
    "not": "<<#if " + "not " * 50_000,
    "string": "<<'" + "\\'" * 100_000,
    "comment": "<<!" * 60_000,
    "long comment": "<<!--" * 40_000,
    "raw": "<<#raw>>" * 20_000,
    "half raw": "<<#raw" * 20_000,
    "digits": "<<" + "9" * 200_000 + ">>",
    "number": "<<#if a == " + "9" * 300 + "e999>>",
    "keys": "<<a" + ".b" * 100_000 + ">>",
    "blank": "<<" + " " * 200_000,
    "quotes": "<<" + "'" * 200_001,
}


@pytest.mark.parametrize("source", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_end_in_one_error(source):
    """Long and deep sources are refused at their first mistake, without recursion."""
    with pytest.raises(TemplateError) as caught:
        parse(source)
    assert len(str(caught.value)) < 600


def test_long_sources_are_read():
    """Long runs of what is allowed are one segment, or as many as there are."""
    assert parse("\\" * 300_000).body == text("\\" * 300_000)
    assert parse("a<b " * 100_000).body == text("a<b " * 100_000)
    assert parse(" " * 100_000 + "<<~a~>>" + " " * 100_000).body == (Output(A),)
    assert len(parse("<<a>>" * 1_000).body) == 1_000
    assert len(one("<<set x=[" + "1," * 1_000 + "]>>").value.items) == 1_000


def test_parsing_from_many_threads():
    """One source read in several threads at once gives the same segments each time."""
    source = "".join(source + "\n" for source, _ in SEGMENTS)
    expected = parse(source).body
    with ThreadPoolExecutor(4) as pool:
        assert all(body == expected for body in pool.map(lambda _: parse(source).body, range(8)))


def test_a_document_knows_its_source():
    """Name, source and dialect are kept as given."""
    document = parse("{{a}}", name="x.hbs", dialect="handlebars")
    assert (document.name, document.source, document.dialect) == ("x.hbs", "{{a}}", "handlebars")
    assert document.body == (Output(A),)
    with pytest.raises(OptionError, match=r"dialect='jinja': expected one of selectrie, handlebars"):
        parse("", dialect="jinja")


def test_places_count_from_one():
    """Lines end at a line feed; columns count characters; places beyond the source are its end."""
    source = "ab\r\né<<\n"
    assert [line_and_column(source, offset) for offset in (0, 2, 4, 5, 8, 99, -1)] == [
        (1, 1),
        (1, 3),
        (2, 1),
        (2, 2),
        (3, 1),
        (3, 1),
        (1, 1),
    ]


def test_errors_show_the_line_and_a_caret():
    """`error_at` names file, line and column, and shows the line with a caret below the place."""
    document = parse("first\nArmor: <<armor>>!\r\n", name="sheet.tmpl")
    error = error_at(document, document.body[1].span, "no value is called 'armor'")
    assert str(error) == (
        "sheet.tmpl:2:8: no value is called 'armor'\n"
        "  Armor: <<armor>>!\n"
        "         ^"
    )  # fmt: skip


def test_walk_visits_what_is_inside():
    """The helper of these tests reaches the segments within segments."""
    seen: list[str] = []
    walk(parse("<<#if a>><<#each b>>x<</each>><<else>>y<</if>>").body, lambda one: seen.append(type(one).__name__))
    assert seen == ["If", "Each", "Literal", "Literal"]
