from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.errors import TemplateError
from selectrie.template.syntax.ast import (
    Compare,
    Constant,
    Expression,
    If,
    Include,
    Literal,
    Logical,
    Not,
    Output,
    Path,
)
from selectrie.template.syntax.parser import parse
from tests.support.n_examples import n_examples
from tests.support.template_strategies import NAMES, sources
from tests.support.written_templates import written

PAIRS = [
    ("{{name}} {{data.key[0]}}", "<<name>> <<data.key[0]>>"),
    ("{{~name~}} x", "<<~name~>> x"),
    ("{{gen 'x' temperature=0.7 max_tokens=50}}", "<<gen 'x' temperature=0.7 max_tokens=50>>"),
    ("{{gen 'x' pattern='[0-9]+'}}", "<<gen 'x' regex='[0-9]+'>>"),
    ("{{gen 'x' pattern='\\d+\\.'}}", "<<gen 'x' regex='\\\\d+\\\\.'>>"),
    ("{{gen 'x' stop='\\n'}}", "<<gen 'x' stop='\\n'>>"),
    ('{{gen "x" hidden=True n=3}}', "<<gen 'x' hidden=true n=3>>"),
    ("{{select 'x' options=valid logprobs='lp'}}", "<<select 'x' options=valid logprobs='lp'>>"),
    ("{{#select 'x' logprobs='lp'}}a{{or}}b{{/select}}", "<<#select 'x' logprobs='lp'>>a<<or>>b<</select>>"),
    (
        "{{#geneach 'x' num_iterations=3 join=', '}}{{gen 'this'}}{{/geneach}}",
        "<<#geneach 'x' num=3 join=', '>><<gen 'this'>><</geneach>>",
    ),
    (
        "{{#geneach 'x' min_iterations=1 max_iterations=9 stop=']'}}{{gen 'this.a'}}{{/geneach}}",
        "<<#geneach 'x' min=1 max=9 stop=']'>><<gen 'this.a'>><</geneach>>",
    ),
    ("{{#each items}}{{@index}} {{this.name}}{{/each}}", "<<#each items>><<@index>> <<this.name>><</each>>"),
    ("{{#if x}}a{{else}}b{{/if}}", "<<#if x>>a<<else>>b<</if>>"),
    ("{{#unless @last}},{{/unless}}", "<<#unless @last>>,<</unless>>"),
    ("{{#if (equal a 'x')}}y{{/if}}", "<<#if a == 'x'>>y<</if>>"),
    ("{{#if (== a 1)}}y{{/if}}", "<<#if a == 1>>y<</if>>"),
    ("{{#if (notequal a b.c)}}y{{/if}}", "<<#if a != b.c>>y<</if>>"),
    ("{{#if (greater a 3)}}y{{/if}}", "<<#if a > 3>>y<</if>>"),
    ("{{#if (< a b)}}y{{/if}}", "<<#if a < b>>y<</if>>"),
    ("{{#if (contains text 'needle')}}y{{/if}}", "<<#if 'needle' in text>>y<</if>>"),
    ("{{#if (not (equal a b))}}y{{/if}}", "<<#if not a == b>>y<</if>>"),
    ("{{#if not a}}y{{/if}}", "<<#if not a>>y<</if>>"),
    ("{{#if (and a (or b c) (less d 1))}}y{{/if}}", "<<#if a and (b or c) and d < 1>>y<</if>>"),
    ("{{#if a == b or c}}y{{/if}}", "<<#if a == b or c>>y<</if>>"),
    ("{{#if (equal == 3) and (less or b)}}y{{/if}}", "<<#if equal == 3 and (less or b)>>y<</if>>"),
    ("{{#if (contains)}}y{{/if}}", "<<#if contains>>y<</if>>"),
    ("{{set 'x' (equal a b)}}", "<<set 'x' a == b>>"),
    ("{{set x=True}}", "<<set x=true>>"),
    ("{{> part.hbs}}", "<<include 'part.hbs'>>"),
    ("{{~>dir/part~}}", "<<~include 'dir/part'~>>"),
    (
        "{{#block hidden=True}}a{{/block}}{{#block 'b'}}c{{/block}}",
        "<<#block hidden=true>>a<</block>><<#block 'b'>>c<</block>>",
    ),
    ("{{#system~}} a {{~/system}}{{#user}}b{{/user}}", "<<#system>>a<</system>><<#user>>b<</user>>"),
    ("{{#role 'tool'}}a{{/role}}{{#role name='user'}}b{{/role}}", "<<#role 'tool'>>a<</role>><<#user>>b<</user>>"),
    ("{{!-- a }} --}}{{! b }}{{~! c ~}}", "<<!-- a }} -->><<! b >><<! c >>"),
    ("\\{{x}} {{{x}}} \\\\{{x}}", "{{x}} {<<x>>} \\\\<<x>>"),
    ("{\"a\": {{x}}, 'b': {}} << >>", "{\"a\": <<x>>, 'b': {}} \\<< >>"),
]
"""A program in the handlebars dialect, and the same template in ours."""


@pytest.mark.parametrize(("program", "template"), PAIRS, ids=[ascii(program) for program, _ in PAIRS])
def test_programs_are_the_same_templates(program, template):
    """Each program has the segments of the template beside it, and is written as a program with the same segments."""
    document = parse(program, dialect="handlebars")
    assert document.body == parse(template).body
    assert parse(written(document), dialect="handlebars").body == document.body


FOREIGN = [
    (
        "{{await 'x'}}",
        "1:3",
        "await has no meaning here: a page is rendered in one pass; split the template in two, or pass the value",
    ),
    (
        "{{#if (await 'x')}}a{{/if}}",
        "1:8",
        "await has no meaning here: a page is rendered in one pass; split the template in two, or pass the value",
    ),
    (
        "{{set 'x' (await 'x')}}",
        "1:12",
        "await has no meaning here: a page is rendered in one pass; split the template in two, or pass the value",
    ),
    (
        "{{#select 'x' options=o}}{{/select}}",
        "1:1",
        "with options= a select is not a block: write it without # and without {{/select}}",
    ),
    (
        "{{#if a}}{{break}}{{/if}}",
        "1:12",
        "break has no meaning here: set num=, or stop= with min= and max=, on the geneach",
    ),
    ("{{parse program}}", "1:3", "parse has no meaning here: include a template file instead"),
    (
        "{{gen 'x' save_prompt='p'}}",
        "1:11",
        "gen takes no argument 'save_prompt'; the page contains the text before each slot",
    ),
    ("{{gen 'x' list_append=True}}", "1:11", "gen takes no argument 'list_append'; collect values with geneach"),
    ("{{gen 'x' stop_regex='a'}}", "1:11", "gen takes no argument 'stop_regex'; use regex= to describe the whole text"),
    ("{{gen 'x' token_healing=False}}", "1:11", "gen takes no argument 'token_healing'; slots are always healed"),
    ("{{gen}}", "1:6", "gen needs a name in quotes first, as in gen 'answer'"),
    (
        "{{#geneach 'x' single_call=True}}",
        "1:16",
        "geneach takes no argument 'single_call'; items are generated one by one; leave it out",
    ),
    ("{{#each a parallel=True}}", "1:11", "each takes no argument 'parallel'; slots are decided one after the other"),
    ("{{#each a hidden=True}}", "1:11", "each takes no argument 'hidden'; it takes join"),
    (
        "{{upper name}}",
        "1:9",
        "expected an operator or }}, not 'name'; templates cannot call functions; pass the result as a value, or write \\{{ for the characters {{",
    ),
    (
        "{{search 'x'}}",
        "1:3",
        "no tag is called 'search'; the tags are select, gen, beam, set, include; functions cannot be called",
    ),
    (
        "{{set 'x' (add 1 2)}}",
        "1:16",
        "expected an operator or ), not '1'; templates cannot call functions; pass the result as a value",
    ),
    (
        "{{set 'x' (parse p)}}",
        "1:12",
        "parse has no meaning here: include a template file instead",
    ),
    ("{{#if (less a)}}{{/if}}", "1:8", "less compares two values, not 1"),
    ("{{#if (and a)}}{{/if}}", "1:8", "and needs at least two values, not 1"),
    ("{{else if x}}", "1:8", "expected }}, not the reserved word 'if'; write {{elif …}}"),
    ("{{../name}}", "1:3", "expected a value or a tag, not '.'; a path begins with a name"),
    ("{{#if a}}x{{/each}}", "1:11", "expected {{/if}}, not {{/each}}: {{#if a}} of line 1 is still open"),
    (
        "{{#with a}}",
        "1:4",
        "no block is called 'with'; the blocks are select, geneach, each, if, unless, block, joint, role, system, user, assistant, raw",
    ),
    ("{{name", "1:1", "this tag is not closed; end it with }}, or write \\{{ for the characters {{"),
    ("{{!-- a }}", "1:1", "this comment is not closed; end it with --}}"),
    ("{{gen 'x' stop='\\ud800'}}", "1:17", "\\ud800 is half of a character; write the character itself"),
]
"""A program with what has no meaning here, and the place and reason of its error."""


@pytest.mark.parametrize(("program", "place", "reason"), FOREIGN, ids=[ascii(program) for program, *_ in FOREIGN])
def test_what_has_no_meaning_is_refused(program, place, reason):
    """Commands and arguments that are not the page's are refused, each with what to do instead."""
    with pytest.raises(TemplateError) as caught:
        parse(program, dialect="handlebars")
    assert (f"{caught.value.line}:{caught.value.column}", caught.value.reason) == (place, reason)


def as_helpers(expression: Expression) -> str:
    """An expression by helpers alone."""
    match expression:
        case Not(operand):
            return f"(not {as_helpers(operand)})"
        case Logical(operator, operands):
            return f"({operator} {' '.join(map(as_helpers, operands))})"
        case Compare("in", left, right):
            return f"(contains {as_helpers(right)} {as_helpers(left)})"
        case Compare(operator, left, right):
            word = {"==": "equal", "!=": "notequal", ">": "greater", "<": "less"}.get(operator, operator)
            return f"({word} {as_helpers(left)} {as_helpers(right)})"
        case Path(name):
            return name
        case _:
            return "'text'"


def conditions(depth: int = 3) -> st.SearchStrategy[Expression]:
    plain = st.builds(Path, st.sampled_from(NAMES)) | st.just(Constant("text"))
    if not depth:
        return plain
    inner = st.deferred(lambda: conditions(depth - 1))
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    operators = st.sampled_from(("==", "!=", ">", "<", ">=", "<=", "in"))
    return st.one_of(
        plain,
        st.builds(Not, inner),
        st.builds(Logical, st.sampled_from(("and", "or")), several),
        st.builds(Compare, operators, inner, inner),
    )


@given(conditions())
@settings(max_examples=n_examples(60))
def test_helpers_are_operators(expression):
    """A condition by helpers reads as the one by operators, however they are nested, also over values called like a helper."""
    by_helpers = f"{{{{#if {as_helpers(expression)}}}}}x{{{{/if}}}}"
    expected = If(((expression, (Literal("x"),)),))
    assert parse(by_helpers, dialect="handlebars").body == (expected,)
    by_operators = written(parse(by_helpers, dialect="handlebars"))
    assert parse(by_operators, dialect="handlebars").body == (expected,)


@given(sources("handlebars", depth=1))
@settings(max_examples=n_examples(30))
def test_the_other_dialect_sees_text(source):
    """A program has no tag for our dialect, but where it holds our delimiters."""
    if "<<" not in source:
        assert parse(source).body == ((Literal(source),) if source else ())


def test_helpers_and_partials_are_of_one_dialect():
    """Our dialect has neither: there the words are values, and `>` compares."""
    assert parse("<<(equal)>>").body == (Output(Path("equal")),)
    for source in ("<<#if (equal a b)>>", "<<#if (== a b)>>", "<<> file>>"):
        with pytest.raises(TemplateError):
            parse(source)
    assert parse("{{>file}}", dialect="handlebars").body == (Include("file"),)


def test_a_tutorial_reads_as_a_page():
    """A whole program of the kind its tutorials have: roles, a hidden block, a loop over a list, a choice."""
    program = """
{{~! a proverb, made up anew ~}}
{{#system~}}
You are a helpful clerk.
{{~/system}}
{{#block hidden=True}}{{#user~}}
Which of these is it? {{#each kinds}}{{this}}{{#unless @last}}, {{/unless}}{{/each}}
{{~/user}}{{/block}}
{{#assistant~}}
{{#select 'kind'}}order{{or}}complaint{{/select}} because "{{gen 'why' max_tokens=20 stop='"'}}"
{{#if (equal kind "order")}}Items:{{#geneach 'items' num_iterations=2 join=','}} {{gen 'this' pattern="\\w+"}}{{/geneach}}{{/if}}
{{~/assistant}}
"""
    body = parse(program, dialect="handlebars").body
    assert [type(segment).__name__ for segment in body] == [
        "Comment",
        "Role",
        "Literal",
        "Block",
        "Literal",
        "Role",
        "Literal",
    ]
    kinds = [type(segment).__name__ for segment in body[5].body]
    assert kinds == ["Slot", "Literal", "Slot", "Literal", "If"]
    assert body[1].body == (Literal("You are a helpful clerk."),)
