r"""Mistakes in templates. In the tables `¦` stands before the character that the error points to; it is no part of the source."""

from __future__ import annotations

import math
from enum import Enum
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.engine.rendering.slots import SelectSlot, slot_of
from selectrie.errors import TemplateError
from selectrie.grammar import Grammar
from selectrie.options import ScoringRule
from selectrie.template.analysis.template import Template
from selectrie.template.interpreter import Continue, Decide, Interpreter
from selectrie.template.syntax.ast import line_and_column
from tests.support.n_examples import n_examples
from tests.support.template_strategies import mutations, sources


class Armor(Enum):
    PLATE = "plate"
    CLOTH = "cloth"


def assert_wrong(marked, message, values=None):
    """The template, or its check with values, raises this message at the mark."""
    source = marked.replace("¦", "")
    place = line_and_column(source, marked.index("¦"))
    if values is not None:
        template = Template(source)
    with pytest.raises(TemplateError) as caught:
        Template(source) if values is None else template.check(values)
    error = caught.value
    assert message in error.reason
    assert (error.line, error.column) == place
    assert error.excerpt == source.split("\n")[place[0] - 1]


NAMES = [
    ("<<gen 'x'>>¦<<gen 'x'>>", "a gen is called 'x', like a gen at <template>:1:1; give it another name"),
    ("<<gen 'x'>>\n¦<<#geneach 'x' num=1>><<gen 'this'>><</geneach>>", "a geneach is called 'x', like a gen"),
    ("<<#block 'x'>><</block>>¦<<gen 'x'>>", "a gen is called 'x', like a block"),
    ("<<select 'x' options=[1] logprobs=¦'x'>>", "logprobs= is called 'x', like a select"),
    ("<<gen 'x'>><<select 'y' options=[1] logprobs=¦'x'>>", "logprobs= is called 'x', like a gen"),
    ("<<select 'x' options=[1] logprobs='y'>>¦<<gen 'y'>>", "a gen is called 'y', like logprobs="),
    ("<<select 'x' options=[1] logprobs=¦y>>", "expected a name in quotes"),
    ("<<select 'x' options=[1] logprobs=¦''>>", "expected a text that is not empty"),
    ("<<select 'x' options=[1] logprobs=¦'this'>>", "'this', which names the item of a geneach"),
    ("<<select 'x' options=[1] logprobs=¦'and'>>", "cannot be called 'and'; choose another name"),
    ("<<#if a>><<gen 'x'>><</if>>¦<<gen 'x'>>", "a gen is called 'x'"),
    ("<<gen 'x'>><<#if a>>¦<<gen 'x'>><</if>>", "a gen is called 'x'"),
    ("<<#each a>><<gen 'x'>><</each>>¦<<gen 'x'>>", "a gen is called 'x'"),
    ("<<set x=1>>¦<<gen 'x'>>", "a gen is called 'x', like a set"),
    ("<<gen 'x'>>¦<<set x=1>>", "'x' is given by a gen at <template>:1:1, and a set cannot change it"),
    ("<<#each a as x>>¦<<gen 'x'>><</each>>", "a gen is called 'x', like the item of the loop"),
    ("<<#each a as x>>¦<<set x=1>><</each>>", "the set is called 'x', like the item of the loop"),
    (
        "<<#each a as x>>¦<<#each b as x>><</each>><</each>>",
        "the item of this loop is called 'x', like the item of the loop",
    ),
    ("<<gen 'x'>>¦<<#each a as x>><</each>>", "'x' is given by a gen at <template>:1:1; rename the item"),
    (
        "<<#each a>>¦<<gen 'this'>><</each>>",
        "like the item of the loop; only slots directly in a geneach are its items",
    ),
    ("¦<<gen 'this'>>", "names the item of a geneach, but it is not directly in one"),
    ("¦<<gen 'this.name'>>", "names the item of a geneach"),
    ("¦<<#geneach 'x' num=2>><<gen 'y'>><</geneach>>", "no slot of the geneach is called this"),
    ("<<#geneach 'x' num=2>><<gen 'this'>>¦<<gen 'this'>><</geneach>>", "a gen is called 'this', like a gen"),
    ("<<#geneach 'x' num=2>><<gen 'this.a'>>¦<<gen 'this.a'>><</geneach>>", "a gen is called 'this.a'"),
    (
        "<<#geneach 'x' num=2>><<gen 'this.a'>>¦<<gen 'this'>><</geneach>>",
        "the item of a geneach is `this`, or has fields `this.name`, not both",
    ),
    (
        "<<#geneach 'x' num=2>><<gen 'this'>>¦<<gen 'this.a'>><</geneach>>",
        "the item of a geneach is `this`, or has fields `this.name`, not both",
    ),
    ("<<#geneach 'x' num=2>><<#each a as b>>¦<<gen 'this'>><</each>><<gen 'this'>><</geneach>>", "directly in one"),
]
USES = [
    (
        "<<¦x>><<gen 'x'>>",
        "'x' is used here, but only decided later, by a gen at <template>:1:6; move that before this",
    ),
    ("<<gen 'x' max_tokens=¦y>>\n<<gen 'y'>>", "'y' is used here, but only decided later, by a gen at <template>:2:1"),
    ("<<#if a>><<¦x>><<else>><<gen 'x'>><</if>>", "'x' is used here"),
    ("<<#each a>><<¦x>><<gen 'x'>><</each>>", "'x' is used here"),
    ("<<select 'x' options=¦x>>", "'x' is used here, but only decided later, by a select at <template>:1:1"),
    (
        "<<#geneach 'x' num=2>><<¦x>><<gen 'this'>><</geneach>>",
        "'x' is used here, but only decided later, by a geneach",
    ),
    ("<<¦this>>", "this is known only in the body of a loop"),
    ("<<#if not ¦@index>><</if>>", "@index is known only in the body of a loop"),
    ("<<#each a as b>><<¦this>><</each>>", "this is unknown in this loop; it has @first, @index, @key, @last, b"),
    ("<<#geneach 'x' num=2>><<¦this>><<gen 'this'>><</geneach>>", "this is not decided before this point"),
    ("<<#geneach 'x' num=2>><<gen 'this.a'>><<¦this.b>><</geneach>>", "this.b is not decided before this point"),
    ("<<#geneach 'x' num=2>><<¦@key>><<gen 'this'>><</geneach>>", "@key is unknown in this loop"),
    ("<<#geneach 'x' stop='.'>><<¦@last>><<gen 'this'>><</geneach>>", "@last is unknown in this loop"),
    ("<<#each a>><<#geneach 'x' num=2>><<¦this>><<gen 'this'>><</geneach>><</each>>", "this is not decided before"),
    ("<<#joint>><<select 'a' options=o>><<¦a>><</joint>>", "'a' is decided in this joint"),
    ("<<#joint>><<¦b>><<select 'a' options=o>><<select 'b' options=o>><</joint>>", "'b' is decided in this joint"),
    ("<<#joint>><<select 'a' options=o>><<select 'b' options=¦a>><</joint>>", "'a' is decided in this joint"),
    (
        "<<#joint>><<select 'a' options=o>><<#select 'b'>>x<<or>><<¦a>><</select>><</joint>>",
        "'a' is decided in this joint",
    ),
]
FORMS = [
    ("¦<<select 'x'>>", "nothing defines what is allowed in the select; give options=, grammar=, regex=, or choices"),
    ("¦<<beam 'x' width=3>>", "nothing defines what is allowed in the beam"),
    ("<<select 'x' options=a regex=¦'a'>>", "options= and regex= both define what is allowed"),
    ("<<gen 'x' regex='a' grammar=¦'json'>>", "regex= and grammar= both define what is allowed"),
    ("<<#select 'x' options=¦a>>b<</select>>", "the choices of the block and options= both define what is allowed"),
    ("¦<<#geneach 'x'>><<gen 'this'>><</geneach>>", "nothing defines the number of items; give num=, or stop="),
    ("¦<<#geneach 'x' min=1 max=2>><<gen 'this'>><</geneach>>", "nothing defines the number of items"),
    (
        "<<#geneach 'x' num=2 stop=¦'.'>><<gen 'this'>><</geneach>>",
        "num= already defines the number of items; leave stop= out",
    ),
    ("<<#geneach 'x' min=¦3 max=2 stop='.'>><<gen 'this'>><</geneach>>", "min=3 is above max=2"),
    (
        "<<#joint>><<select 'x' options=a k=¦2>><</joint>>",
        "k= cannot be used within a joint: set it on the joint itself",
    ),
    ("<<#joint>><<select 'x' options=a temperature=¦1>><</joint>>", "does not sample"),
    ("<<#joint>><<select 'x' options=a logprobs=¦'y'>><</joint>>", "logprobs= cannot be used within a joint"),
    ("<<#joint>><<select 'x' options=a hidden=¦true>><</joint>>", "hidden= cannot be used within a joint"),
    ("<<#joint>><<select 'x' options=a terminator=¦'eog'>><</joint>>", "the text after the whole block ends it"),
    ("<<#joint>><<select 'x' regex=¦'a'>><</joint>>", "a joint compares listed texts; give options="),
    ("<<#joint>><<select 'x' options=a rule=¦'joint'>><</joint>>", "compares log-probabilities of the whole block"),
    ("<<#each ¦x in xs>>a<</each>>", "each loops over a list or a mapping; write <<#each xs as x>>"),
    ("<<#each ¦x in d.xs>>a<</each>>", "each loops over a list or a mapping; write <<#each items as item>>"),
    ("<<#each ¦x in xs as y>>a<</each>>", "each loops over a list or a mapping, not over true or false"),
    ("<<#each ¦a and b>>a<</each>>", "each loops over a list or a mapping, not over true or false"),
]
CONSTANTS = [
    ("<<gen 'x' max_tokens=¦-1>>", "max_tokens=-1: expected a whole number of at least 1"),
    ("<<gen 'x' max_tokens=¦2.5>>", "max_tokens=2.5: expected a whole number"),
    ("<<gen 'x' max_tokens=¦true>>", "max_tokens=true: expected a whole number"),
    ("<<gen 'x' n=¦0>>", "n=0: expected a whole number of at least 1"),
    ("<<gen 'x' temperature=¦'x'>>", "temperature='x': expected a number of at least 0"),
    ("<<gen 'x' temperature=¦-0.5>>", "temperature=-0.5: expected a number of at least 0"),
    ("<<gen 'x' top_p=¦1.5>>", "top_p=1.5: expected a number from 0 to 1"),
    ("<<gen 'x' min_p=¦'a'>>", "min_p='a': expected a number from 0 to 1"),
    ("<<gen 'x' top_k=¦-2>>", "top_k=-2: expected a whole number of at least -1"),
    ("<<gen 'x' seed=¦'a'>>", "seed='a': expected a whole number from 0"),
    ("<<gen 'x' stop=¦3>>", "stop=3: expected a text, or a list or tuple of them"),
    ("<<gen 'x' stop=¦['a', '']>>", "a text that is not empty"),
    ("<<gen 'x' hidden=¦'yes'>>", "hidden='yes': expected True or False"),
    ("<<gen 'x' regex=¦'['>>", "the regular expression '[' cannot be read"),
    ("<<gen 'x' grammar=¦'weapon'>>", "no grammar is called 'weapon'"),
    ("<<beam 'x' regex='a' width=¦0>>", "width=0: expected"),
    ("<<beam 'x' regex='a' length_penalty=¦-1>>", "length_penalty=-1: expected"),
    ("<<beam 'x' regex='a' terminator=¦'longest'>>", "terminator='longest': expected one of"),
    ("<<select 'x' options=¦[]>>", "the list of options is empty"),
    ("<<select 'x' options=¦'abc'>>", "options must be a list"),
    ("<<select 'x' options=¦[1, '1']>>", "two options have the text '1'"),
    ("<<select 'x' options=¦[1, y, 1]>>", "two options have the text '1'"),
    ("<<select 'x' options=¦['a', none]>>", "option 1: none has no text"),
    ("<<select 'x' options=a rule=¦'mean'>>", "rule='mean': expected one of 'joint', 'token_mean'"),
    ("<<select 'x' options=a rule=¦'batch'>>", "a slot has only one"),
    ("<<select 'x' options=a rule=¦'calibrated'>>", "content_free"),
    ("<<select 'x' options=a terminator=¦'end'>>", "terminator='end': expected one of 'auto'"),
    ("<<select 'x' options=a k=¦0>>", "k=0: expected"),
    ("<<select 'x' options=a prior=¦'a'>>", "prior='a': expected a list of weights"),
    ("<<select 'x' options=a prior=¦[1, -1]>>", "finite weights of at least 0"),
    ("<<select 'x' options=['a', 'b'] prior=¦[1]>>", "the prior has 1 weights for 2 options"),
    ("<<select 'x' options=['a', 'b'] prior=¦[0, 0]>>", "every prior is 0"),
    ("<<#select 'x'>>a<<or>>b<<or>>¦a<</select>>", "the choice 'a' occurs twice"),
    ("<<#geneach 'x' num=¦'3'>><<gen 'this'>><</geneach>>", "num='3': expected a whole number from 0 to 100000"),
    ("<<#geneach 'x' num=¦none>><<gen 'this'>><</geneach>>", "num=none: expected a whole number"),
    ("<<#geneach 'x' stop=¦''>><<gen 'this'>><</geneach>>", "stop='': expected a text that is not empty"),
    ("<<#each a join=¦[1]>><</each>>", "a list of 1 has no text"),
    ("<<#each ¦3>><</each>>", "`each` loops over a list or a mapping"),
    ("<<#block hidden=¦1>><</block>>", "hidden=1: expected True or False"),
    ("<<#joint budget=¦0>><<select 'x' options=a>><</joint>>", "budget=0: expected"),
    ("<<#if ¦1 < 'a'>><</if>>", "1 and 'a' cannot be ordered; only two numbers, or two texts, can"),
    ("<<#if a and ¦1 < 'a'>><</if>>", "1 and 'a' cannot be ordered; only two numbers, or two texts, can"),
    ("<<#if not (a and b[¦1 < 'a'])>><</if>>", "1 and 'a' cannot be ordered"),
    ("<<#if a>><<elif ¦1 in 2>><</if>>", "searches lists, mappings and texts, not 2"),
    ("<<set x=¦1 in 2>>", "searches lists, mappings and texts, not 2"),
]


@pytest.mark.parametrize(("marked", "message"), [*NAMES, *USES, *FORMS, *CONSTANTS])
def test_what_is_wrong_whatever_the_values(marked, message):
    """One error when the template is made, at the very expression, with what to do instead."""
    assert_wrong(marked, message)


def test_a_check_can_fail_to_find():
    """The comparison that the tables rest on tells a wrong place and a wrong message."""
    with pytest.raises(AssertionError):
        assert_wrong("¦<<#if 1 < 'a'>><</if>>", "1 and 'a'")
    with pytest.raises(AssertionError):
        assert_wrong("<<#if ¦1 < 'a'>><</if>>", "2 and 'a'")


@pytest.mark.parametrize(
    ("source", "slots", "needs"),
    [
        ("", (), ()),
        ("text", (), ()),
        ("<<#if a>><<gen 'x'>><<elif b>><<gen 'x'>><<else>><<gen 'x'>><</if>><<x>>", ("x",), ("a", "b")),
        ("<<#if a>><<set x=1>><<else>><<gen 'x'>><</if>><<x>>", ("x",), ("a",)),
        ("<<#if a>><<else>><<gen 'x'>><<set y=1>><</if>><<x>><<y>>", ("x",), ("a",)),
        ("<<set x=1>><<set x=x>><<x>>", (), ()),
        ("<<set x=x>><<x>>", (), ("x",)),
        ("<<#each a>><<set x=this>><</each>><<#each a>><<set x=this>><</each>><<x>>", (), ("a",)),
        ("<<#each a>><<b>><<set b=this>><</each>>", (), ("a", "b")),
        ("<<#each a as x>><</each>><<#each a as x>><<x>><</each>><<x>>", (), ("a", "x")),
        ("<<#each a as x>><</each>><<gen 'x'>>", ("x",), ("a",)),
        ("<<#each a>><<gen 'x'>><<x>><</each>><<x[0]>>", ("x",), ("a",)),
        ("<<#each a>><<#each this>><<this>><<@key>><</each>><<this>><<@last>><</each>>", (), ("a",)),
        ("<<#each a as b>><<#each b as c>><<b>><<c>><</each>><</each>>", (), ("a",)),
        ("<<#geneach 'x' num=2>><<gen 'this'>><<this>><<@index>><<@last>><</geneach>><<x[0]>>", ("x",), ()),
        ("<<#geneach 'x' num=2>><<gen 'this.a'>><<gen 'this.b'>><<this.a>><</geneach>>", ("x",), ()),
        ("<<#geneach 'x' num=2>><<#if a>><<gen 'this'>><<else>><<gen 'this'>><</if>><</geneach>>", ("x",), ("a",)),
        ("<<#geneach 'x' num=2>><<gen 'this'>><<gen 'y'>><</geneach>><<y[0]>>", ("x", "y"), ()),
        (
            "<<#geneach 'x' num=2>><<#geneach 'y' num=2>><<gen 'this'>><</geneach>><<gen 'this'>><</geneach>><<y[0][1]>>",
            ("x", "y"),
            (),
        ),
        ("<<#geneach 'x' num=0 join=3>><<gen 'this'>><</geneach>>", ("x",), ()),
        ("<<#geneach 'x' stop='.' min=200>><<gen 'this'>><</geneach>>", ("x",), ()),
        (
            "<<#joint k=2>><<select 'a' options=o>>, <<#select 'b'>>x<<or>>y<</select>><<o2>><</joint>><<a>>",
            ("a", "b"),
            ("o", "o2"),
        ),
        ("<<#block 'all' hidden=true>><<gen 'x'>><</block>><<all>>", ("x",), ()),
        ("<<select 'x' options=[a, 1, 'b'] logprobs='lp'>><<lp[x]>>", ("x",), ("a",)),
        ("<<data[key][inner.name].x>>", (), ("data", "key", "inner")),
        ("<<#select 'x'>><<a>><<or>><</select>>", ("x",), ("a",)),
        ("<<select 'x' options=['a', 'b'] prior=[1, 0] temperature=none hidden=none>>", ("x",), ()),
        ("<<#if a or 1 == 'a'>><</if>>", (), ("a",)),
    ],
)
def test_what_is_right(source, slots, needs):
    """Templates without a mistake, with the names they decide and need."""
    template = Template(source)
    assert (template.slots, template.needs) == (slots, needs)


VALUES = [
    ("<<¦armos>> <<x>>", {"armors": 1, "x": 1}, "no value is called 'armos'; did you mean 'armors'?"),
    ("<<a>><<¦b>>", {"a": 1}, "no value is called 'b'"),
    ("<<¦a>>", {"a": None}, "none has no text"),
    ("<<¦a>>", {"a": [1]}, "a list of 1 has no text"),
    ("<<¦a>>", {"a": math.nan}, "nan has no text"),
    ("<<¦a.name>>", {"a": "x"}, "'x' has no parts"),
    ("<<¦a[3]>>", {"a": [1]}, "no index 3"),
    ("<<¦a.__class__>>", {"a": {}}, "no key '__class__'"),
    ("<<select 'x' options=¦o>>", {"o": []}, "the list of options is empty"),
    ("<<select 'x' options=¦o>>", {"o": ["a", "a"]}, "two options have the text 'a'"),
    ("<<select 'x' options=¦o>>", {"o": "ab"}, "options must be a list"),
    ("<<select 'x' options=¦o>>", {"o": [object()]}, "option 0: a value of the type object has no text"),
    ("<<select 'x' options=¦[1, o]>>", {"o": "1"}, "two options have the text '1'"),
    ("<<select 'x' options=o prior=¦p>>", {"o": ["a", "b"], "p": {"a": 1}}, "the prior has no weight for 'b'"),
    (
        "<<select 'x' options=o prior=¦p>>",
        {"o": ["a"], "p": {"a": 1, "c": 1}},
        "the prior has a weight for 'c', which is not an option",
    ),
    ("<<#select 'x' prior=¦p>>a<<or>>b<</select>>", {"p": [1]}, "the prior has 1 weights for 2 options"),
    ("<<#select 'x'>>a<<or>>¦<<o>><</select>>", {"o": "a"}, "the choice 'a' occurs twice"),
    ("<<#select 'x'>>a<<or>>b<<¦o>><</select>>", {"o": None}, "none has no text"),
    ("<<gen 'x' max_tokens=¦n>>", {"n": "3"}, "max_tokens='3': expected a whole number"),
    ("<<gen 'x' grammar=¦g>>", {"g": "a.gbnf"}, "this template has no folder of others"),
    ("<<gen 'x' grammar=¦g>>", {"g": 3}, "grammar=3: expected a Grammar"),
    ("<<gen 'x' regex=¦g>>", {"g": "("}, "cannot be read"),
    (
        "<<gen 'x' grammar=¦g>>",
        {"g": Grammar.from_gbnf('root ::= root "a"')},
        "the grammar 'gbnf' cannot be used at line 1",
    ),
    ("<<#each ¦a>><</each>>", {"a": "text"}, "`each` loops over a list or a mapping"),
    ("<<#each a>><<¦this.n>><</each>>", {"a": [{"n": 1}, {"m": 1}]}, "no key 'n'; its keys: 'm'"),
    ("<<#each a>><<#if @last>><<¦b>><</if>><</each>>", {"a": [1, 2]}, "no value is called 'b'"),
    ("<<#each a>><<set n=@index>><</each>><<¦b[n]>>", {"a": [1, 2], "b": [1]}, "no index 1"),
    ("<<#geneach 'x' num=n>><<¦a[@index]>><<gen 'this'>><</geneach>>", {"n": 2, "a": [1]}, "no index 1"),
    ("<<#geneach 'x' num=2>><<#if @last>><<¦b>><</if>><<gen 'this'>><</geneach>>", {}, "no value is called 'b'"),
    ("<<set n=1>><<gen 'x'>><<#each x>><<¦a[n]>><</each>>", {"a": [1]}, "no index 1"),
    ("<<#geneach 'x' min=2 stop='.'>><<¦a[@index]>><<gen 'this'>><</geneach>>", {"a": [1]}, "no index 1"),
    ("<<#geneach 'x' min=¦n max=2 stop='.'>><<gen 'this'>><</geneach>>", {"n": 3}, "min=3 is above max=2"),
    ("<<gen 'x'>><<#if x == 'a'>><<¦b>><</if>>", {}, "no value is called 'b'"),
    ("<<gen 'x'>><<#each x>><<¦b[9]>><</each>>", {"b": [1]}, "no index 9"),
    ("<<#if a>><<gen 'x'>><</if>><<¦x>>", {"a": False}, "no value is called 'x'"),
    ("<<#if ¦a < 3>><</if>>", {"a": "1"}, "cannot be ordered; only two numbers"),
    ("<<#role 'user'>><<#block>><<¦a>><</block>><</role>>", {"a": None}, "none has no text"),
]


@pytest.mark.parametrize(("marked", "values", "message"), VALUES)
def test_what_is_wrong_with_values(marked, values, message):
    """Making the template is fine; checking it with the values is one error at the expression, without a model."""
    assert_wrong(marked, message, values)


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("<<#if a>><<b>><</if>>", {"a": 0}),
        ("<<#if a>><<b>><<else>><<c>><</if>>", {"a": 0, "c": 1}),
        ("<<#each a>><<this.n>><</each>>", {"a": []}),
        (
            "<<select 'x' options=o rule=r prior=p>>",
            {"o": Armor, "r": ScoringRule("pmi"), "p": {"plate": 1, "cloth": 2}},
        ),
        ("<<select 'x' options=o prior=p>>", {"o": Armor, "p": dict.fromkeys(Armor, 1)}),
        ("<<#select 'x' terminator=e>>plate<<or>>cloth<</select>>", {"e": Enum("End", {"TURN": "eog"}).TURN}),
        ("<<select 'x' options=o>><<#if x == 'plate'>><<a>><</if>>", {"o": Armor, "a": 1}),
        ("<<#if a>><<gen 'x'>><</if>><<x>>", {"a": 0, "x": "given"}),
        ("<<gen 'x'>><<#if x>><<set y=1>><</if>><<#if x>><<y>><</if>>", {}),
        ("<<gen 'x'>><<#if x>><<set y='a'>><<else>><<set y=[1]>><</if>><<#each y>><<this>><</each>>", {}),
        ("<<#geneach 'x' stop='.'>><<gen 'this'>><<set y=this>><</geneach>><<y>>", {}),
        ("<<#geneach 'x' stop='.'>><<a[@index]>><<gen 'this'>><</geneach>>", {"a": []}),
        ("<<#geneach 'x' num=2>><<a[@index]>><<gen 'this'>><</geneach>>", {"a": [1, 2]}),
        ("<<gen 'x' n=3>><<#each x>><<this>><<b>><</each>>", {"b": 1}),
        ("<<gen 'x' max_tokens=n temperature=t>>", {"n": None, "t": None}),
        ("<<gen 'x'>><<#each x>><<set b=1>><</each>><<b>>", {}),
        ("<<#each m>><<@key>>=<<this>><</each>>", {"m": {"a": 1}}),
        ("<<set n=0>><<gen 'x'>><<#each x>><<a[n]>><<set n=9>><</each>><<a[n]>>", {"a": [1]}),
    ],
)
def test_what_is_right_with_values(source, values):
    """Branches not taken and loops without items need nothing; what a slot decides is left to the page."""
    Template(source).check(values)


def test_a_check_ends(monkeypatch):
    """Loops in loops over many items are looked at up to a bound, and no further."""
    monkeypatch.setattr("selectrie.template.analysis.dry_run.MAX_CHECKED", 1000)
    source = "<<#each a>>" * 4 + "<<x>>" + "<</each>>" * 4 + "<<y>>"
    Template(source).check({"a": list(range(30)), "x": 1})
    with pytest.raises(TemplateError, match="no value is called 'y'"):
        Template(source).check({"a": [1], "x": 1})


def test_a_check_changes_nothing():
    """The values given are as they were."""
    values = {"a": [1, 2], "m": {"k": 1}}
    Template("<<#each a>><<set n=this>><<gen 'x'>><</each>><<set a=3>><<m.k>>").check(values)
    assert values == {"a": [1, 2], "m": {"k": 1}}


# Laws, on templates put together at random from names that are given, decided, wrong or missing.

TEXTS = ["a", "b", "xs[0]", "xs[n]", "ys[0][0]", "m.k", "m[a]", "'k'", "this", "item", "v"]
LISTS = ["xs", "ys", "ys[0]", "[a,1]", "['p','q']", "this", "item", "m"]
NUMBERS = ["n", "1", "2", "@index", "none"]
MISTAKES = ["none", "missing", "xs[9]", "ys[n]", "m.z", "xs[@index]", "[]", "true", "2.5", "@last", "s0", "s1"]


def one_of(*right):
    """An expression of these, now and then another one."""
    return st.sampled_from([*right * 3, *MISTAKES, *TEXTS[:2], *LISTS[:2], *NUMBERS[:2]])


texts, lists, numbers = one_of(*TEXTS), one_of(*LISTS), one_of(*NUMBERS)
conditions = st.one_of(
    texts,
    st.builds("not {0}".format, lists),
    st.builds("{0} {1} {2}".format, texts, st.sampled_from(["==", "!=", "<"]), texts),
    st.builds("{0} in {1} or {0}".format, texts, lists),
    st.builds("@index > {0}".format, numbers),
)
decisions = st.builds(
    "{0} == 'p' {1} {2}".format, st.sampled_from(["s0", "s1", "s2"]), st.sampled_from(["and", "or"]), texts
)
written = st.one_of(
    st.just("text"),
    st.builds("<<{0}>>".format, texts.filter(lambda one: one[0] not in "'[0123456789" and one not in ("none", "true"))),
    st.builds("<<set v={0}>>".format, texts),
)
decided = st.one_of(
    st.builds("<<select '§' options={0}>>".format, lists),
    st.builds("<<gen '§' max_tokens={0}>>".format, numbers),
    st.builds("<<#select '§'>>p<<or>>x<<m.k>><</select>>".format),
)


def pages(leaves, tests, *loops):
    """Sources of templates. loops: of the body, beside `each`."""
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("{0}{1}".format, inner, inner),
            st.builds("<<#if {0}>>{1}<<else>>{2}<</if>>".format, tests, inner, inner),
            st.builds("<<#each {0}>>{1}<</each>>".format, lists, inner),
            st.builds("<<#each {0} as item join={1}>>{2}<</each>>".format, lists, texts, inner),
            *(st.builds(loop.format, numbers, inner) for loop in loops),
        ),
        max_leaves=6,
    )


plain_pages = pages(written, conditions)
all_pages = pages(
    written | decided | decided,
    conditions | decisions,
    "<<#geneach '§' num={0}>>{1}<<gen 'this'>><</geneach>>",
    "<<#geneach '§' min={0} stop='.'>>{1}<<gen 'this'>><</geneach>>",
)
wrong_values = st.sampled_from([None, True, 0.5, math.nan, "", [], {}, Armor.PLATE, Armor, b"x"])


def mostly(right):
    """A value of the right kind, now and then of another."""
    return st.one_of(right, right, right, right, wrong_values)


words = st.sampled_from(["k", "p", "q"])
given_values = st.fixed_dictionaries(
    {
        "a": mostly(words),
        "b": mostly(words),
        "n": mostly(st.integers(0, 2)),
        "xs": mostly(st.lists(words, min_size=1, max_size=3, unique=True)),
        "ys": mostly(st.lists(st.lists(words, min_size=1, max_size=2, unique=True), min_size=1, max_size=3)),
        "m": mostly(st.just({"k": "z", "p": "y", "q": "x"})),
    },
    optional={"s0": words, "v": words},
)


def numbered(source):
    """A name for each slot, in the order they stand."""
    parts = source.split("§")
    return "".join(part if at == 0 else f"s{at - 1}{part}" for at, part in enumerate(parts))


def error_of(call):
    """The `TemplateError` that it ends in, or None."""
    try:
        call()
    except TemplateError as error:
        return error
    return None


def render(template, values, decide):
    """Every step of the page, its slots decided by chance."""
    program = Interpreter(template, values)
    for _ in range(2000):
        step = program.step()
        if step is None:
            return
        if isinstance(step, Decide):
            slot = slot_of(step.slot, step.scope, template, step.document)
            options = [option.value for option in slot.options] if isinstance(slot, SelectSlot) else ["p", "text"]
            program.name(step.slot.name, options[decide(len(options))])
        elif isinstance(step, Continue):
            program.go_on(more=decide(4) == 0)


def try_page(source, values):
    """The template, and the error that making it or its check with the values ends in."""
    made: list[Template] = []
    error = error_of(lambda: made.append(Template(numbered(source))) or made[0].check(values))
    return (made[0] if made else None), error


@given(all_pages, given_values)
@settings(max_examples=n_examples(60))
def test_a_check_raises_nothing_else(source, values):
    """Whatever the template and the values, making and checking end well or in a `TemplateError` with a place."""
    _, error = try_page(source, values)
    assert error is None or (error.line is not None and error.column is not None and error.reason)


written_by_people = [
    source.map(lambda text, dialect=dialect: (text, dialect))
    for dialect in ("selectrie", "handlebars")
    for source in (sources(dialect), mutations(sources(dialect)))
]


@given(
    made=st.one_of(*written_by_people),
    values=st.dictionaries(st.sampled_from(["a", "b", "i", "items", "name"]), words | wrong_values | st.lists(words)),
)
@settings(max_examples=n_examples(60))
def test_any_template_is_made_and_checked_or_refused(made, values):
    """Templates of any form and values of any kind: nothing but a `TemplateError`, always with a place."""
    source, dialect = made
    error = error_of(lambda: Template(source, dialect=dialect).check(values))
    assert error is None or error.line is not None


@given(all_pages, given_values, st.integers(0, 99))
@settings(max_examples=n_examples(60))
def test_what_is_checked_renders(source, values, seed):
    """A template that passes its check with values renders, whatever the slots decide, but for what depends on a slot."""
    template, error = try_page(source, values)
    if error is None:
        failed = error_of(lambda: render(template, values, Random(seed).randrange))
        assert failed is None or failed.reason.startswith(("no value is called 's", "no value is called 'v'"))


@given(plain_pages, given_values)
@settings(max_examples=n_examples(60))
def test_a_check_of_a_page_without_slots_is_its_rendering(source, values):
    """Both end well, or both in the same error."""
    template, error = try_page(source, values)
    if template is not None:
        assert str(error) == str(error_of(lambda: render(template, values, None)))


FOREIGN = [
    (
        "Hi ¦{{name}}",
        "selectrie",
        {"name": "Bo"},
        "{{name}} is text here: tags are written << >>, and the template has none",
    ),
    ("Hi ¦{{gen 'x' max_tokens=5}}", "selectrie", None, "use dialect='handlebars'"),
    ("a\n  ¦{{~#if x}}b{{/if}}", "selectrie", None, "{{~#if x}} is text here"),
    ("Hi ¦<<data.name>>", "handlebars", {"data": {}}, "<<data.name>> is text here: tags are written {{ }}"),
    ("Hi ¦<<select 'x' options=['a']>>", "handlebars", None, "use dialect='selectrie': no --handlebars"),
]


@pytest.mark.parametrize(("marked", "dialect", "values", "told"), FOREIGN)
def test_a_template_in_the_other_spelling_is_refused(marked, dialect, values, told):
    """Its tags would stand on the page as text."""
    source = marked.replace("¦", "")
    with pytest.raises(TemplateError) as caught:
        Template(source, dialect=dialect).check(values)
    assert told in caught.value.reason
    before = marked[: marked.index("¦")]
    assert (caught.value.line, caught.value.column) == (before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)


@pytest.mark.parametrize(
    ("source", "dialect"),
    [
        ("Hi {{other}}", "selectrie"),
        ("Hi <<name>>, not {{name}} nor {{gen 'x'}}", "selectrie"),
        ("<<#raw>>{{gen 'x'}} {{name}}<</raw>>", "selectrie"),
        ('{"a": {"b": {"name": 1}}}', "selectrie"),
        ("{{" * 10_000 + "{{name " * 10_000 + "{{" + "a" * 10_000, "selectrie"),
        ("cat <<EOF {{name}}", "handlebars"),
    ],
)
def test_braces_of_a_text_are_text(source, dialect):
    """Where a tag is written as it should be, and where none could be meant."""
    Template(source, dialect=dialect).check({"name": "Bo"})
