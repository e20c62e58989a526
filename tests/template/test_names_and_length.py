"""What values do to a page before it is made: names that are taken already, and loops that pass too much."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie import Template
from selectrie.engine.engine import Engine
from selectrie.errors import TemplateError
from selectrie.options import MAX_SEGMENTS
from selectrie.template.analysis import dry_run
from selectrie.template.interpreter import Interpreter
from selectrie.template.values.scope import Scope
from selectrie.testing import HashModel
from tests.support.n_examples import n_examples

TAKING = {
    "<<select 'name' options=l>>": 1,
    "<<gen 'name'>>": 1,
    "<<beam 'name' regex='[ab]'>>": 1,
    "a <<#block 'name'>>a<</block>>": 3,
    "<<#joint>><<select 'x' options=l>> <<select 'name' options=l>><</joint>>": 36,
    "<<#geneach 'name' num=2>><<gen 'this'>><</geneach>>": 1,
    "<<select 'y' options=l logprobs='name'>>": 1,
    "<<#each l>><<gen 'name'>><</each>>": 12,
    "<<select 'x' options=l>><<#if x == 'a'>><<gen 'name'>><</if>>": 41,
}
"""Templates that decide `name`, and the column of the tag that does."""


@pytest.mark.parametrize("source", TAKING)
def test_a_slot_cannot_take_the_name_of_a_given_value(source):
    """The check says so, and so does the rendering before it asks the model."""
    values, template = {"name": "Bo", "l": ["a", "b"]}, Template(source)
    with pytest.raises(
        TemplateError, match="'name' is decided here, but a value of that name was passed too"
    ) as caught:
        template.check(values)
    assert (caught.value.line, caught.value.column) == (1, TAKING[source])
    template.check({"l": values["l"]})
    model = HashModel(1)
    with Engine(model) as engine, pytest.raises(TemplateError, match="'name' is decided here"):
        engine.render(template, values)
    assert model.calls == 0


@pytest.mark.parametrize(
    "source",
    [
        "<<#unless l>><<gen 'name'>><</unless>>Hi <<name>>",
        "<<set name='a'>><<name>>",
        "<<#each l as name>><<name>><</each>>",
        "<<#geneach 'x' num=1>><<gen 'this.name'>><</geneach>>",
    ],
)
def test_names_that_no_slot_of_the_page_takes_are_free(source):
    """A branch not taken decides nothing; sets, items and fields are no slots."""
    Template(source).check({"name": "Bo", "l": ["a"]})


def test_handlebars_may_decide_a_given_name_anew():
    """As programs of guidance do."""
    Template("{{name}}{{gen 'name' max_tokens=1}}", dialect="handlebars").check({"name": "Bo"})


def test_a_name_taken_beyond_what_the_check_looks_at(monkeypatch):
    """The page itself refuses it where the check stopped before."""
    monkeypatch.setattr("selectrie.template.analysis.dry_run.MAX_CHECKED", 2)
    template, values = Template("<<m>><<m>><<m>><<gen 'n'>>"), {"m": 1, "n": 1}
    template.check(values)
    program = Interpreter(template, values)
    with pytest.raises(TemplateError, match="<template>:1:16: 'n' is decided here"):
        list(iter(program.step, None))


ROWS = [list(range(2000))] * 2000
TOO_LONG = {
    "<<#each a>><<#each a>>x<</each>><</each>>": {"a": range(2000)},
    "<<#each a>><<#each a>><<#each a>><</each>><</each>><</each>>": {"a": range(400)},
    "<<#each rows as row>><<#each row as cell>><<cell>><</each>><</each>>": {"rows": ROWS},
    "<<#each a>><<#if @first>><<else>><<#each a>>x<</each>><</if>><</each>>": {"a": range(2000)},
    "<<#each a>><<set b=a>><<#each b>>x<</each>><</each>>": {"a": range(2000)},
    "<<#block>><<#each rows as row>><<#each row>><<#each row>>x<</each>><</each>><</each>><</block>>": {"rows": ROWS},
}
"""Pages of more than two million segments."""


@pytest.mark.parametrize("source", TOO_LONG)
def test_loops_that_pass_too_much_are_refused_before_a_turn_is_made(source, monkeypatch):
    """Counting looks at some thousand segments and turns; no segment of the page is tried."""
    values = {name: list(value) for name, value in TOO_LONG[source].items()}
    monkeypatch.setattr(dry_run, "MAX_COUNTED", 10_000)
    monkeypatch.setattr("selectrie.template.analysis.dry_run.MAX_CHECKED", -1)
    with pytest.raises(TemplateError, match=r"<template>:1:1: the page passes more than 2000000 segments"):
        Template(source).check(values)


VALUES = {"a": [1, 2, 0], "b": [], "m": {"x": [1], "y": [[], [2, 3]]}, "n": [[1, [2, 3]], [], [0]], "t": True, "f": 0}
EXPRESSIONS = st.sampled_from(["a", "b", "m", "n", "m.y", "n[0]", "s"])
ITEMS = st.sampled_from(["a", "m.y", "n", "this", "w", "s", "n[0]"])
CONDITIONS = st.sampled_from(["t", "f", "@first", "this", "w", "a[0] == 1", "@index > 0"])


@st.composite
def pages(draw, depth=3, in_loop=False):
    """Templates of loops, conditions and sets without a slot."""
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["text", "each", "each as", "if", "set", "block"] if depth else ["text", "set"]))
        inner = draw(pages(depth=depth - 1, in_loop=in_loop or kind.startswith("each"))) if depth else ""
        if kind == "text":
            parts.append("x<<! c >>")
        elif kind == "set":
            parts.append(f"<<set s={draw(EXPRESSIONS)}>>")
        elif kind == "block":
            parts.append(f"<<#block>>{inner}<</block>>")
        elif kind == "if":
            parts.append(f"<<#if {draw(CONDITIONS)}>>{inner}<<else>>y{inner}<</if>>")
        else:
            parts.append(f"<<#each {draw(ITEMS)}{' as w' if kind == 'each as' else ''}>>{inner}<</each>>")
    return "".join(parts)


@settings(max_examples=n_examples(300))
@given(source=pages())
@example("<<#each a>><<#if f>><<set s=b>><</if>><</each>><<#each s>>x<</each>>")
@example("<<#each n as w>><<#each a>><<#each w>>x<</each>><</each>><</each>>")
@example("<<#each n as w>><<set s=w>><</each>><<#each s>>x<</each>>")
def test_what_is_counted_is_what_the_page_passes(source):
    """Where no slot has a say, the count is the page's own, however items, conditions and sets depend on one another."""
    try:
        template = Template("<<set s=a>>" + source)
        program = Interpreter(template, VALUES)
        while program.step() is not None:
            pass
    except TemplateError:  # a name or an item that is not there
        return
    count = dry_run._DryRun(template.documents, 10**6)
    counted = count.body(template.document.body, Scope(VALUES), template.document)
    assert counted == MAX_SEGMENTS - program._n_left


def test_what_a_slot_decides_counts_as_little_as_it_may():
    """The shorter of two branches is counted, and a loop over what the model writes has no turns."""
    values = {"a": list(range(2000))}
    long = "<<#each a>><<#each a>>x<</each>><</each>>"
    one_way = Template("<<select 'x' options=['p', 'q']>><<#if x == 'p'>>" + long + "<</if>>")
    dry_run.refuse_long(one_way.document, one_way.documents, values)
    each_way = Template("<<select 'x' options=['p', 'q']>><<#if x == 'p'>>" + long + "<<else>>" + long + "<</if>>")
    with pytest.raises(TemplateError, match="passes more than"):
        dry_run.refuse_long(each_way.document, each_way.documents, values)
    written = Template("<<#each a as b>><<gen 'x'>><<#each x as y>>x<</each>><</each>>")
    dry_run.refuse_long(written.document, written.documents, values)
