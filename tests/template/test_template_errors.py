from __future__ import annotations

import pytest

from selectrie.errors import RequestError, TemplateError
from selectrie.template.syntax.expressions import Span
from selectrie.template.syntax.parser import parse
from selectrie.template.syntax.source_positions import Refused
from selectrie.template.syntax.transformer import Reader

MISTAKES = [
    # blocks
    ("<<#if a>>x", "1:1", "<<#if a>> is not closed: expected <</if>> before the end of the template"),
    (
        "<<#if a>>x<<endif>>",
        "1:1",
        "<<#if a>> is not closed: expected <</if>> before the end of the template; <<endif>> is a value, and ends nothing",
    ),
    ("<<#if a>>x<</each>>", "1:11", "expected <</if>>, not <</each>>: <<#if a>> of line 1 is still open"),
    (
        "<<#if a>>\n<<#select 'x'>>a<<or>>b\n<</if>>",
        "3:1",
        "expected <</select>>, not <</if>>: <<#select 'x'>> of line 2 is still open",
    ),
    ("a<<or>>b", "1:2", "<<or>> parts the bodies of <<#select>> and stands nowhere else; no block is open here"),
    ("<<else>>", "1:1", "<<else>> parts the bodies of <<#if>> and stands nowhere else; no block is open here"),
    (
        "<<#if a>>x<<or>>y<</if>>",
        "1:11",
        "<<or>> parts the bodies of <<#select>> and stands nowhere else; here <<#if a>> of line 1 is open",
    ),
    (
        "<<#select 'x'>>a<<else>>b<</select>>",
        "1:17",
        "<<else>> parts the bodies of <<#if>> and stands nowhere else; here <<#select 'x'>> of line 1 is open",
    ),
    (
        "<<#if a>>x<<else>>y<<else>>z<</if>>",
        "1:20",
        "<<else>> behind the <<else>> of <<#if a>> in line 1, which is its last part",
    ),
    (
        "<<#if a>>x<<else>>y<<elif b>>z<</if>>",
        "1:20",
        "<<elif>> behind the <<else>> of <<#if a>> in line 1, which is its last part",
    ),
    ("<</if>>", "1:1", "<</if>> closes nothing: no block is open here"),
    ("<</foo>>", "1:1", "<</foo>> closes nothing: 'foo' is no block"),
    ("<</>>", "1:4", "expected the name of the block that ends here, as in <</if>>"),
    ("<</if x>>", "1:7", "expected >>, not 'x'"),
    (
        "<<#>>",
        "1:4",
        "expected the name of a block behind <<#; the blocks are select, geneach, each, if, unless, block, joint, role, system, user, assistant, raw",
    ),
    ("<<#raw>> x", "1:1", "this raw block is not closed; write <</raw>> where it ends"),
    (
        "<<#select 'x'>><</select>>",
        "1:1",
        "this select has no choices; write them between its tags with <<or>> between two",
    ),
    (
        "<<#select 'x'>>a<<gen 'y'>><</select>>",
        "1:17",
        "gen cannot stand in a choice of <<#select 'x'>> (line 1): a choice is text and values alone; is <</select>> missing?",
    ),
    (
        "<<#select 'x'>>a\n<<#if b>>",
        "2:1",
        "if cannot stand in a choice of <<#select 'x'>> (line 1): a choice is text and values alone; is <</select>> missing?",
    ),
    ("<<#joint>><<gen 'x'>><</joint>>", "1:11", "gen cannot stand in a joint: it holds text, values and selects alone"),
    (
        "<<#joint>><<#if x>>a<</if>><</joint>>",
        "1:11",
        "if cannot stand in a joint: it holds text, values and selects alone",
    ),
    (
        "<<#joint>><<#user>>a<</user>><</joint>>",
        "1:11",
        "user cannot stand in a joint: it holds text, values and selects alone",
    ),
    ("<<#joint>>abc<</joint>>", "1:1", "this joint has no select, so there is nothing to decide together"),
    ("<<#user>>hi\n<<#system>>", "2:1", "<<#system>> inside of <<#user>> of line 1: turns do not nest; close that one"),
    (
        "<<#user>><<#if a>><<#role 'x'>>",
        "1:19",
        "<<#role>> inside of <<#user>> of line 1: turns do not nest; close that one",
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
    ("<<if x>>", "1:3", "if is a block; write <<#if …>>, or name the value otherwise"),
    ("<<user>>", "1:3", "user is a block; write <<#user …>>, or name the value otherwise"),
    ("<<user.name>>", "1:3", "user is a block; write <<#user …>>, or name the value otherwise"),
    ("<<#gen 'x'>>", "1:4", "gen has no block form; write <<gen …>>"),
    ("<<#else>>", "1:4", "else begins no block; write <<else>>"),
    ("<<else if x>>", "1:8", "expected >>, not 'if', a word of the language; write <<elif …>>"),
    ("<<or x>>", "1:6", "expected >>, not 'x'"),
    ("<<#system 'x'>>", "1:11", "expected >>, not the text 'x'"),
    ("<<>>", "1:3", "this tag is empty; expected a value or a tag, or write \\<< for <<"),
    ("<<~~>>", "1:4", "this tag is empty; expected a value or a tag, or write \\<< for <<"),
    # names and arguments
    ("<<gen>>", "1:6", "gen wants a name in quotes first, as in gen 'answer'"),
    ("<<gen max_tokens=3>>", "1:6", "gen wants a name in quotes first, as in gen 'answer'"),
    ("<<select options=a>>", "1:9", "select wants a name in quotes first, as in select 'answer'"),
    ("<<#geneach num=3>>", "1:11", "geneach wants a name in quotes first, as in geneach 'items'"),
    ("<<select armor options=a>>", "1:10", "expected a name in quotes; write select 'armor'"),
    ("<<#role tool>>", "1:9", "expected a name in quotes; write role 'tool'"),
    ("<<#role>>", "1:8", "role wants the name of a role in quotes and nothing else, as in role 'tool'"),
    ("<<#role ''>>", "1:8", "role wants the name of a role in quotes and nothing else, as in role 'tool'"),
    ("<<gen name=x>>", "1:12", "a name is a text in quotes"),
    ("<<gen 'x' name='y'>>", "1:11", "the name of this gen is given twice"),
    ("<<gen 'if'>>", "1:8", "'if' is a word of the language; choose another name"),
    ("<<gen 'my name'>>", "1:8", "'my name' is no name: names are letters, digits and _, and begin with no digit"),
    ("<<gen 'user.name'>>", "1:8", "'user.name' is no name: names are letters, digits and _, and begin with no digit"),
    ("<<gen ''>>", "1:8", "'' is no name: names are letters, digits and _, and begin with no digit"),
    ("<<#geneach 'this'>>", "1:13", "'this' is a word of the language; choose another name"),
    ("<<set 'this' 3>>", "1:8", "'this' is a word of the language; choose another name"),
    (
        "<<set this 3>>",
        "1:7",
        "expected a name in quotes or a name, not 'this', a word of the language; choose another name",
    ),
    ("<<set x 3>>", "1:9", "expected =, not '3'; write <<set x=value>> or <<set 'x' value>>"),
    ("<<set 'x'>>", "1:10", "expected a value, not the end of the tag"),
    ("<<set 'x' 3 4>>", "1:13", "expected an operator or >>, not '4'"),
    ("<<#each a as user>>", "1:14", "expected a name, not 'user', a word of the language; choose another name"),
    ("<<#each a as>>", "1:13", "expected a name, not the end of the tag"),
    ("<<include file.tmpl>>", "1:11", "expected a file name in quotes; write include 'file.tmpl'"),
    ("<<include>>", "1:10", "expected a file name in quotes, not the end of the tag"),
    ("<<include ''>>", "1:11", "include wants the name of a file of the search path"),
    (
        "<<select 'x' optoins=a>>",
        "1:14",
        "select takes no argument 'optoins'; did you mean 'options'? it takes options, grammar, regex, rule, terminator, prior, k, temperature, seed, logprobs, hidden",
    ),
    (
        "<<gen 'x' foo=1>>",
        "1:11",
        "gen takes no argument 'foo'; it takes max_tokens, stop, regex, grammar, json, temperature, top_k, top_p, min_p, seed, n, hidden",
    ),
    ("<<#joint size=1>>", "1:10", "joint takes no argument 'size'; it takes k, budget"),
    ("<<gen 'x' n=1 n=2>>", "1:15", "n= is given twice"),
    ("<<gen 'x' n>>", "1:12", "expected =, not the end of the tag; an argument is written name=value"),
    ("<<gen 'x' n 1>>", "1:13", "expected =, not '1'"),
    ("<<gen 'x' n:1>>", "1:12", "expected =, not ':'; an argument is written name=value"),
    (
        "<<gen 'x' n=1, k=2>>",
        "1:14",
        "expected an argument (name=value), an operator or >>, not ','; parts of a tag are parted by blanks",
    ),
    ("<<gen 'x' n=>>", "1:13", "expected a value, not the end of the tag"),
    ("<<gen 'x' 'y'>>", "1:11", "expected an argument (name=value) or >>, not the text 'y'"),
    # values
    ("<<#if a = b>>", "1:9", "expected an operator or >>, not '='; to compare write =="),
    ("<<a = 3>>", "1:5", "to name a value write <<set a=…>>, to compare write =="),
    (
        "<<#if a == b == c>>",
        "1:14",
        "expected an operator or >>, not '=='; comparisons do not chain: join two with and",
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
    ("<<a + 1>>", "1:5", "expected an operator or >>, not '+'; values are not reckoned with"),
    (
        "<<f(x)>>",
        "1:4",
        "expected an operator or >>, not '('; a template calls no functions: give the value under a name",
    ),
    (
        "<<a [0]>>",
        "1:5",
        "expected an operator or >>, not '['; a place in a list stands directly behind its name: items[0]",
    ),
    ("<<a[0>>", "1:6", "expected ], not the end of the tag"),
    ("<<a[1.5]>>", "1:5", "a place is a whole number, or a key in quotes"),
    ("<<a[true]>>", "1:5", "a place is a whole number, or a key in quotes"),
    ("<<a.>>", "1:5", "expected a name, not the end of the tag"),
    ("<<a.0>>", "1:5", "expected a name, not '0'; a place in a list is written items[0]"),
    ("<<.a>>", "1:3", "expected a value or a tag, not '.'; a path begins with a name"),
    (
        "<<in>>",
        "1:3",
        "expected a value or a tag, not 'in', a word of the language; no value is called so; of a mapping it may be a key: data.key",
    ),
    (
        "<<#if user>>",
        "1:7",
        "expected a value, not 'user', a word of the language; no value is called so; of a mapping it may be a key: data.key",
    ),
    ("<<@foo>>", "1:3", "@foo is not known; there are @index, @first, @last, @key"),
    ("<<set x=[1,2>>", "1:13", "expected ',' or ], not the end of the tag"),
    ("<<set x=[1 2]>>", "1:12", "expected an operator, ',' or ], not '2'"),
    ("<<set x={'a': 1}>>", "1:9", "expected a value, not '{'; mappings are given as values, not written"),
    ("<<#if a == 1e999>>", "1:12", "1e999 is beyond the largest number"),
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
        "this string goes on over >>, and behind it the tag cannot be read; is its closing ' missing?",
    ),
    (
        "<<gen 'x>>, it's <<y>>",
        "1:7",
        "this string goes on over >>, and behind it the tag cannot be read; is its closing ' missing?",
    ),
    (
        "<<#if 'a>>\nI'm>>",
        "1:7",
        "this string goes on over >> and a line end; end it with ', or write \\n for the line ends that it has",
    ),
    (
        "<<gen 'x' regex='\\d+'>>",
        "1:18",
        "\\d is no escape; for a backslash write \\\\d (there are \\n \\t \\\\ \\' \\\" and \\uXXXX)",
    ),
    (
        "<<gen 'x' stop='a\\\nb'>>",
        "1:18",
        r"a backslash before '\n' is no escape; for a backslash write \\ (there are \n \t \\ \' \" and \uXXXX)",
    ),
    ("<<gen 'x' stop='\\u12'>>", "1:17", "\\u wants four hexadecimal digits, as in \\u00e9"),
    ("<<gen 'x' stop='\\ud83d'>>", "1:17", "\\ud83d is half a character; write the character itself"),
    ("<<gen 'x' stop=\\n>>", "1:16", "expected a value, not '\\\\'; a text stands in quotes"),
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
    assert sorted(alias for alias in aliases if not hasattr(Reader, alias)) == []
