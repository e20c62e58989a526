from __future__ import annotations

import pytest

from selectrie.errors import RequestError, TemplateError
from selectrie.template.syntax.ast import Refused, Span
from selectrie.template.syntax.parser import ProductionReader, parse

MISTAKES = [
    # blocks
    ("<<#if a>>x", "1:1", "<<#if a>> is not closed: expected <</if>> before the end of the template"),
    (
        "<<#if a>>x<<endif>>",
        "1:1",
        "<<#if a>> is not closed: expected <</if>> before the end of the template; <<endif>> is a value and does not end a block",
    ),
    ("<<#if a>>x<</each>>", "1:11", "expected <</if>>, not <</each>>: <<#if a>> of line 1 is still open"),
    (
        "<<#if a>>\n<<#select 'x'>>a<<or>>b\n<</if>>",
        "3:1",
        "expected <</select>>, not <</if>>: <<#select 'x'>> of line 2 is still open",
    ),
    ("a<<or>>b", "1:2", "<<or>> divides <<#select>> and cannot be used elsewhere; no block is open here"),
    ("<<else>>", "1:1", "<<else>> divides <<#if>> and cannot be used elsewhere; no block is open here"),
    (
        "<<#if a>>x<<or>>y<</if>>",
        "1:11",
        "<<or>> divides <<#select>> and cannot be used elsewhere; <<#if a>> of line 1 is open here",
    ),
    (
        "<<#select 'x'>>a<<else>>b<</select>>",
        "1:17",
        "<<else>> divides <<#if>> and cannot be used elsewhere; <<#select 'x'>> of line 1 is open here",
    ),
    (
        "<<#if a>>x<<else>>y<<else>>z<</if>>",
        "1:20",
        "<<else>> cannot follow <<else>>, the last part of <<#if a>> in line 1",
    ),
    (
        "<<#if a>>x<<else>>y<<elif b>>z<</if>>",
        "1:20",
        "<<elif>> cannot follow <<else>>, the last part of <<#if a>> in line 1",
    ),
    ("<</if>>", "1:1", "<</if>> closes nothing: no block is open here"),
    ("<</foo>>", "1:1", "<</foo>> closes nothing: 'foo' is not a block"),
    ("<</>>", "1:4", "expected the name of the block that ends here, as in <</if>>"),
    ("<</if x>>", "1:7", "expected >>, not 'x'"),
    (
        "<<#>>",
        "1:4",
        "expected the name of a block after <<#; the blocks are select, geneach, each, if, unless, block, joint, role, system, user, assistant, raw",
    ),
    ("<<#raw>> x", "1:1", "this raw block is not closed; write <</raw>> where it ends"),
    (
        "<<#select 'x'>><</select>>",
        "1:1",
        "this select has no choices; write them between its tags, separated by <<or>>",
    ),
    (
        "<<#select 'x'>>a<<gen 'y'>><</select>>",
        "1:17",
        "gen is not allowed in a choice of <<#select 'x'>> (line 1), which holds only text and values; is <</select>> missing?",
    ),
    (
        "<<#select 'x'>>a\n<<#if b>>",
        "2:1",
        "if is not allowed in a choice of <<#select 'x'>> (line 1), which holds only text and values; is <</select>> missing?",
    ),
    (
        "<<#joint>><<gen 'x'>><</joint>>",
        "1:11",
        "gen is not allowed in a joint, which holds only text, values and selects",
    ),
    (
        "<<#joint>><<#if x>>a<</if>><</joint>>",
        "1:11",
        "if is not allowed in a joint, which holds only text, values and selects",
    ),
    (
        "<<#joint>><<#user>>a<</user>><</joint>>",
        "1:11",
        "user is not allowed in a joint, which holds only text, values and selects",
    ),
    ("<<#joint>>abc<</joint>>", "1:1", "this joint has no select, so there is nothing to decide together"),
    (
        "<<#user>>hi\n<<#system>>",
        "2:1",
        "<<#system>> is inside <<#user>> of line 1, but turns cannot be nested; close that one",
    ),
    (
        "<<#user>><<#if a>><<#role 'x'>>",
        "1:19",
        "<<#role>> is inside <<#user>> of line 1, but turns cannot be nested; close that one",
    ),
    # tags
    ("<<slect 'x' options=a>>", "1:3", "no tag is called 'slect'; did you mean 'select'?"),
    ("<<Select 'x' options=a>>", "1:3", "no tag is called 'Select'; did you mean 'select'?"),
    (
        "<<frobnicate 'x'>>",
        "1:3",
        "no tag is called 'frobnicate'; the tags are select, gen, beam, set, include; functions cannot be called",
    ),
    ("<<#slect 'x'>>", "1:4", "no block is called 'slect'; did you mean 'select'?"),
    (
        "<<#frobnicate 'x'>>",
        "1:4",
        "no block is called 'frobnicate'; the blocks are select, geneach, each, if, unless, block, joint, role, system, user, assistant, raw",
    ),
    ("<<#for x in items>>", "1:4", "no block is called 'for'; did you mean 'each'?"),
    ("<<for x in items>>", "1:3", "no tag is called 'for'; did you mean <<#each …>>?"),
    ("<<if x>>", "1:3", "if is a block; write <<#if …>>, or rename the value"),
    ("<<user>>", "1:3", "user is a block; write <<#user …>>, or rename the value"),
    ("<<user.name>>", "1:3", "user is a block; write <<#user …>>, or rename the value"),
    ("<<#gen 'x'>>", "1:4", "gen has no block form; write <<gen …>>"),
    ("<<#else>>", "1:4", "else does not begin a block; write <<else>>"),
    ("<<else if x>>", "1:8", "expected >>, not the reserved word 'if'; write <<elif …>>"),
    ("<<or x>>", "1:6", "expected >>, not 'x'"),
    ("<<#system 'x'>>", "1:11", "expected >>, not the text 'x'"),
    ("<<>>", "1:3", "this tag is empty; expected a value or a tag, or write \\<< for the characters <<"),
    ("<<~~>>", "1:4", "this tag is empty; expected a value or a tag, or write \\<< for the characters <<"),
    # names and arguments
    ("<<gen>>", "1:6", "gen needs a name in quotes first, as in gen 'answer'"),
    ("<<gen max_tokens=3>>", "1:6", "gen needs a name in quotes first, as in gen 'answer'"),
    ("<<select options=a>>", "1:9", "select needs a name in quotes first, as in select 'answer'"),
    ("<<#geneach num=3>>", "1:11", "geneach needs a name in quotes first, as in geneach 'items'"),
    ("<<select armor options=a>>", "1:10", "expected a name in quotes; write select 'armor'"),
    ("<<#role tool>>", "1:9", "expected a name in quotes; write role 'tool'"),
    ("<<#role>>", "1:8", "role takes the name of a role in quotes and nothing else, as in role 'tool'"),
    ("<<#role ''>>", "1:8", "role takes the name of a role in quotes and nothing else, as in role 'tool'"),
    ("<<gen name=x>>", "1:12", "a name must be a text in quotes"),
    ("<<gen 'x' name='y'>>", "1:11", "the name of this gen is given twice"),
    ("<<gen 'if'>>", "1:8", "'if' is a reserved word; choose another name"),
    (
        "<<gen 'my name'>>",
        "1:8",
        "'my name' is not a name: names are letters, digits and _, and do not begin with a digit",
    ),
    (
        "<<gen 'user.name'>>",
        "1:8",
        "'user.name' is not a name: names are letters, digits and _, and do not begin with a digit",
    ),
    ("<<gen ''>>", "1:8", "'' is not a name: names are letters, digits and _, and do not begin with a digit"),
    ("<<#geneach 'this'>>", "1:13", "'this' is a reserved word; choose another name"),
    ("<<set 'this' 3>>", "1:8", "'this' is a reserved word; choose another name"),
    (
        "<<set this 3>>",
        "1:7",
        "expected a name in quotes or a name, not the reserved word 'this'; choose another name",
    ),
    ("<<set x 3>>", "1:9", "expected =, not '3'; write <<set x=value>> or <<set 'x' value>>"),
    ("<<set 'x'>>", "1:10", "expected a value, not the end of the tag"),
    ("<<set 'x' 3 4>>", "1:13", "expected an operator or >>, not '4'"),
    ("<<#each a as user>>", "1:14", "expected a name, not the reserved word 'user'; choose another name"),
    ("<<#each a as>>", "1:13", "expected a name, not the end of the tag"),
    ("<<include file.tmpl>>", "1:11", "expected a file name in quotes; write include 'file.tmpl'"),
    ("<<include>>", "1:10", "expected a file name in quotes, not the end of the tag"),
    ("<<include ''>>", "1:11", "include needs the name of a file of the search path"),
    (
        "<<select 'x' optoins=a>>",
        "1:14",
        "select takes no argument 'optoins'; did you mean 'options'? it takes options, grammar, regex, rule, terminator, prior, k, temperature, seed, logprobs, hidden",
    ),
    (
        "<<gen 'x' foo=1>>",
        "1:11",
        "gen takes no argument 'foo'; it takes max_tokens, stop, regex, grammar, json, temperature, top_k, typical_p, top_p, min_p, seed, n, hidden",
    ),
    ("<<#joint size=1>>", "1:10", "joint takes no argument 'size'; it takes k, budget"),
    ("<<gen 'x' n=1 n=2>>", "1:15", "n= is given twice"),
    ("<<gen 'x' n>>", "1:12", "expected =, not the end of the tag; an argument is written name=value"),
    ("<<gen 'x' n 1>>", "1:13", "expected =, not '1'"),
    ("<<gen 'x' n:1>>", "1:12", "expected =, not ':'; an argument is written name=value"),
    (
        "<<gen 'x' n=1, k=2>>",
        "1:14",
        "expected an argument (name=value), an operator or >>, not ','; the parts of a tag are separated by blanks",
    ),
    ("<<gen 'x' n=>>", "1:13", "expected a value, not the end of the tag"),
    ("<<gen 'x' 'y'>>", "1:11", "expected an argument (name=value) or >>, not the text 'y'"),
    # values
    ("<<#if a = b>>", "1:9", "expected an operator or >>, not '='; to compare write =="),
    ("<<a = 3>>", "1:5", "to name a value write <<set a=…>>, to compare write =="),
    (
        "<<#if a == b == c>>",
        "1:14",
        "expected an operator or >>, not '=='; comparisons cannot be chained: join two with and",
    ),
    ("<<#if a && b>>", "1:9", "expected an operator or >>, not '&'; write and"),
    ("<<#if a || b>>", "1:9", "expected an operator or >>, not '|'; write or; values have no filters"),
    ("<<#if !a>>", "1:7", "expected a value, not '!'; write not"),
    ("<<#if a is none>>", "1:9", "expected an operator or >>, not 'is'; to compare write =="),
    ("<<#if a and>>", "1:12", "expected a value, not the end of the tag"),
    ("<<#if a b>>", "1:9", "expected an operator or >>, not 'b'"),
    ("<<#if>>", "1:6", "expected a value, not the end of the tag"),
    ("<<#if (a>>", "1:9", "expected ), not the end of the tag"),
    ("<<#if a)>>", "1:8", "expected an operator or >>, not ')'"),
    ("<<a | upper>>", "1:5", "expected an operator or >>, not '|'; write or; values have no filters"),
    (
        "<<a + 1>>",
        "1:5",
        "expected an operator or >>, not '+'; templates have no arithmetic: pass the result as a value",
    ),
    (
        "<<f(x)>>",
        "1:4",
        "expected an operator or >>, not '('; templates cannot call functions; pass the result as a value",
    ),
    (
        "<<a [0]>>",
        "1:5",
        "expected an operator or >>, not '['; an index directly follows the name of a list: items[0]",
    ),
    ("<<a[0>>", "1:6", "expected ], not the end of the tag"),
    ("<<a[1.5]>>", "1:5", "an index must be a whole number or a key in quotes"),
    ("<<a[true]>>", "1:5", "an index must be a whole number or a key in quotes"),
    ("<<a.>>", "1:5", "expected a name, not the end of the tag"),
    ("<<a.0>>", "1:5", "expected a name, not '0'; an index is written items[0]"),
    ("<<.a>>", "1:3", "expected a value or a tag, not '.'; a path begins with a name"),
    (
        "<<in>>",
        "1:3",
        "expected a value or a tag, not the reserved word 'in'; it cannot name a value, but it can be a key: data.key",
    ),
    (
        "<<#if user>>",
        "1:7",
        "expected a value, not the reserved word 'user'; it cannot name a value, but it can be a key: data.key",
    ),
    ("<<@foo>>", "1:3", "@foo is unknown; a loop has @index, @first, @last, @key"),
    ("<<set x=[1,2>>", "1:13", "expected ',' or ], not the end of the tag"),
    ("<<set x=[1 2]>>", "1:12", "expected an operator, ',' or ], not '2'"),
    ("<<set x={'a': 1}>>", "1:9", "expected a value, not '{'; mappings cannot be written here; pass one as a value"),
    ("<<#if a == 1e999>>", "1:12", "1e999 exceeds the largest number"),
    ("<<3>>", "1:1", "this tag names no value; write \\<< for the characters <<"),
    (
        "<<gen “x”>>",
        "1:7",
        "expected a name in quotes, an argument (name=value) or >>, not '“'; write straight quotes, ' or \"",
    ),
    # texts
    ("<<gen 'x", "1:7", "this string is not closed; end it with '"),
    (
        "<<gen 'x>> isn't",
        "1:7",
        "this string continues past >>, and the rest of the tag cannot be read; is its closing ' missing?",
    ),
    (
        "<<gen 'x>>, it's <<y>>",
        "1:7",
        "this string continues past >>, and the rest of the tag cannot be read; is its closing ' missing?",
    ),
    (
        "<<#if 'a>>\nI'm>>",
        "1:7",
        "this string continues past >> and a line end; end it with ', or write \\n for each line end in it",
    ),
    (
        "<<gen 'x' regex='\\d+'>>",
        "1:18",
        "\\d is not an escape; for a backslash write \\\\d (the escapes are \\n \\t \\\\ \\' \\\" and \\uXXXX)",
    ),
    (
        "<<gen 'x' stop='a\\\nb'>>",
        "1:18",
        r"a backslash before '\n' is not an escape; for a backslash write \\ (the escapes are \n \t \\ \' \" and \uXXXX)",
    ),
    ("<<gen 'x' stop='\\u12'>>", "1:17", "\\u needs four hexadecimal digits, as in \\u00e9"),
    ("<<gen 'x' stop='\\ud83d'>>", "1:17", "\\ud83d is half of a character; write the character itself"),
    ("<<gen 'x' stop=\\n>>", "1:16", "expected a value, not '\\\\'; put texts in quotes"),
    # delimiters
    ("<<name", "1:1", "this tag is not closed; end it with >>, or write \\<< for the characters <<"),
    ("<<name and more", "1:1", "this tag is not closed; end it with >>, or write \\<< for the characters <<"),
    ("<<gen 'x'>", "1:1", "this tag is not closed; end it with >>, or write \\<< for the characters <<"),
    ("<<gen 'x' <<name>>", "1:1", "this tag is not closed; end it with >>, or write \\<< for the characters <<"),
    ("1 << 2", "1:3", "this tag is not closed; end it with >>, or write \\<< for the characters <<"),
    ("1 << 2 and 3 >> 4", "1:3", "this tag names no value; write \\<< for the characters <<"),
    ("cout << x << endl;", "1:6", "this tag is not closed; end it with >>, or write \\<< for the characters <<"),
    ("if (a<<2) {}\n<<b>>", "1:6", "this tag is not closed; end it with >>, or write \\<< for the characters <<"),
    ("<<hello, world>>", "1:8", "expected an operator or >>, not ','; write \\<< for the characters <<"),
    ("<<! note", "1:1", "this comment is not closed; end it with >>"),
    ("<<!-- note >>", "1:1", "this comment is not closed; end it with -->>"),
]
"""Source, line and column of the caret, and the whole reason."""


def refused(source: str, **options: str) -> TemplateError:
    """The error of a source that cannot be read."""
    with pytest.raises(TemplateError) as caught:
        parse(source, **options)
    return caught.value


@pytest.mark.parametrize(("source", "place", "reason"), MISTAKES, ids=[ascii(source) for source, *_ in MISTAKES])
def test_each_mistake_has_its_message(source, place, reason):
    """A mistake that people make ends in the error of its row, at the place of its row."""
    error = refused(source)
    assert (f"{error.line}:{error.column}", error.reason) == (place, reason)


@pytest.mark.parametrize(("source", "place", "reason"), MISTAKES, ids=[ascii(source) for source, *_ in MISTAKES])
def test_mistakes_stand_where_they_are_made(source, place, reason):
    """What comes before a mistake moves its place, and changes its message in no other way."""
    line, column = map(int, place.split(":"))
    moved = refused("first <<name>>\r\n" + "é" * 3 + source)
    assert (moved.line, moved.column) == (line + 1, column + 3 * (line == 1))
    for known in ("line 2", "line 1"):
        reason = reason.replace(known, f"line {int(known[-1]) + 1}")
    assert moved.reason == reason


def test_the_message_shows_file_line_and_caret():
    """An error reads as the line of the file with a caret below the place, and is the caller's."""
    error = refused("Name: <<name>>\nArmor: <<selct 'armor' options=armors>>!\n", name="sheet.tmpl")
    assert str(error) == (
        "sheet.tmpl:2:10: no tag is called 'selct'; did you mean 'select'?\n"
        "  Armor: <<selct 'armor' options=armors>>!\n"
        "           ^"
    )
    assert isinstance(error, RequestError)
    assert isinstance(error, ValueError)
    assert error.code == "template"
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_the_first_mistake_is_told():
    """Of several mistakes the first in the source is the error, whichever part of the parser sees it."""
    assert refused("<<gen>><<'x").column == 6
    assert refused("<</if>><<gen>>").column == 1
    assert refused("<<a b>><<#if").column == 5


def test_long_tags_are_shortened():
    """A tag or word that a message names is cut; the line is shown around the place alone."""
    name = "b" * 5000
    for source in (
        f"<<#if {name}>>x",
        f"<<{name} 'x'>>",
        f"<<{name} {name}>>",
        f"<<#{name}>>",
        f"<</{name}>>",
        f"<<#if a>><</{name}>>",
        f"<<gen 'x' {name}=1>>",
        f"<<gen {name}>>",
        f"<<gen '1{name}'>>",
        f"<<include {name}>>",
        f"<<set {name} 1>>",
        f"<<{name} = 1>>",
        f"<<gen 'x' '{name}'>>",
        f"<<@{name}>>",
        f"<<#if a == {'9' * 280}e999>>",
        "y" * 5000 + "<<gen>>",
    ):
        error = refused(source)
        assert len(error.reason) < 200, error.reason
        assert len(str(error)) < 500


def test_tags_are_named_as_written_on_one_line():
    """A tag of several lines is named with its blanks drawn together."""
    error = refused("<<#if a\n   and b>>x")
    assert error.reason == "<<#if a and b>> is not closed: expected <</if>> before the end of the template"


def test_braces_in_a_tag_are_no_places_of_the_message():
    """A tag that holds `{line}` is named as it is."""
    assert refused("<<#if a == '{line}'>>x").reason.startswith("<<#if a == '{line}'>> is not closed")
    reason = Refused(0, "{tag} of line {line}", Span(0, 13)).error("<<'{line}'>> <<", "x").reason
    assert reason == "<<'{line}'>> of line 1"


def test_every_production_has_its_meaning():
    """No alias of the grammar file is without a method, which lark would leave as a tree."""
    import re
    from importlib.resources import files

    grammar = files("selectrie.template.syntax").joinpath("template.lark").read_text(encoding="utf-8")
    aliases = set(re.findall(r"-> (\w+)", grammar))
    assert len(aliases) > 30
    assert sorted(alias for alias in aliases if not hasattr(ProductionReader, alias)) == []
