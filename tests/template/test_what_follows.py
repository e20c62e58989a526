"""What certainly follows a slot: literals and known values, through the ends of blocks and loops, up to what the model decides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie import Template
from selectrie.template.interpreter import (
    MAX_FOLLOWING,
    Continue,
    Decide,
    Following,
    Hide,
    Interpreter,
    Naming,
    Together,
    Write,
    find_branch,
    find_following,
)
from tests.support.n_examples import n_examples

X = "<<select 'x' options=['a', 'b']>>"
H = "<<select 'h' options=['a', 'b'] hidden=true>>"
VALUES = {"n": "N", "by": {"a": "of a", "b": "of b"}, "deep": {"key": [1, "in it"]}}


def following(text, most_turns=2, chosen="a"):
    """What follows each step that asks the model, in the order of the page; every slot gets the same value."""
    program = Interpreter(Template(text), VALUES)
    found, n_turns = [], 0
    while (step := program.step()) is not None:
        if isinstance(step, Decide):
            found.append(find_following(program, step.slot.name))
            program.name(step.slot.name, chosen, "record")
        elif isinstance(step, Together):
            names = [part.name for part in step.joint.body if hasattr(part, "choices")]
            found.append(find_following(program, *names))
            for name in names:
                program.name(name, chosen, "record")
        elif isinstance(step, Naming) and not step.begins:
            program.name(step.name, "its text")
        elif isinstance(step, Continue):
            n_turns += 1
            found += [find_branch(program, more=True), find_branch(program, more=False)]
            program.go_on(more=n_turns < most_turns)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X + " c", [" c"]),
        (X, [""]),
        (X + "<<!note>>.", ["."]),
        (X + "<<n>>! <<deep.key[1]>>.", ["N! in it."]),
        (X + ": <<x>>.", [": "]),
        (X + " <<by[x]>>.", [" "]),
        (X + "<<#if n>>yes<<else>>no<</if>>.", ["yes."]),
        (X + " <<#if x == 'a'>>yes<</if>>", [" "]),
        (X + " <<#if n and x == 'a'>>yes<</if>>", [" "]),
        (X + " <<#if n or x == 'a'>>yes<</if>>", [" yes"]),
        (X + "<<#unless n>>no<</unless>>.", ["."]),
        (X + "<<set y='q'>>-<<y>>-", ["-q-"]),
        (X + "<<set y=x>>-<<y>>-", ["-"]),
        ("<<#if n>>" + X + " in<</if>> out", [" in out"]),
        ("<<#block>>" + X + " in<</block>> out", [" in out"]),
        (X + "<<#block 'b'>>in<</block>> out", ["in out"]),
        (X + "<<#block 'b'>>in<</block>> <<b>>", ["in "]),
        (X + "<<#block 'm'>>in<</block>> <<m>>", ["in "]),
        ("<<#block hidden=true>>" + X + " in<</block>> out", [" in"]),
        (X + "<<#block hidden=true>>not this<</block>> out", [" out"]),
        (X + "<<#block hidden=true>>no<<gen 'g'>><</block>> <<g>>", [" ", ""]),
        (X + H + " out<<h>>", [" out", " out"]),
        (X + " and <<select 'y' options=['a', 'b']>>.", [" and ", "."]),
        (X + " <<#joint>>so <<select 'p' options=['a', 'b']>>.<</joint>>!", [" so ", "!"]),
        ("<<#each ['s', 't'] join=', '>>[<<this>>:" + X + "]<</each>> end", ["], [t:", "] end"]),
        ("<<#each ['s', 't'] join=', '>>" + X + "<<this>><</each>>", ["s, ", "t"]),
        (X + "<<#each [1, 2]>><<this>>,<</each>> end", ["1,2, end"]),
        (X + "<<#each []>>never<</each>>end", ["end"]),
        ("<<#each ['s', 't']>>" + X + "<</each>> <<x[0]>>", ["", " "]),
        ("<<#geneach 'g' num=2 join=','>> <<gen 'this'>>;<</geneach>> end <<g[0]>>", [";, ", "; end "]),
        (
            "<<#geneach 'g' num=2>><<gen 'this.a'>> <<gen 'this.b'>>: <<this.a>>.<</geneach>>",
            [" ", ": a.", " ", ": a."],
        ),
    ],
)
def test_text_that_follows(text, expected):
    """Up to the next slot, or to what depends on one that is not decided."""
    assert [one.text for one in following(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<<#assistant>>" + X + "<</assistant>> ", Following("", "assistant")),
        ("<<#assistant>>" + X + ".<</assistant>>", Following(".", "assistant")),
        ("<<#user>>" + X + "<</user>>", Following("", "user")),
        ("<<#assistant>>" + X + "<<#if x == 'a'>>.<</if>><</assistant>>", Following()),
        ("<<#assistant>>" + X + H + "<</assistant>>", Following("", "assistant")),
    ],
)
def test_the_end_of_a_turn_is_told(text, expected):
    """Where it certainly comes right behind the text."""
    assert following(text)[0] == expected


def test_a_loop_that_may_go_on_is_followed_by_what_both_ways_have():
    """What is the same of the next item and of the end; else the two are told apart."""
    loop = "<<#geneach 'g' min=1 stop='{0}' join=', '>>w<<gen 'this'>><</geneach>>{0} so"
    assert following(loop.format(", and"))[0] == Following(", ")
    assert following(loop.format("]"))[0] == Following("", either=(", w", "] so"))
    assert following(loop.format("]").replace("<<gen 'this'>>", "<<gen 'this'>>."))[0].text == "."


def test_what_comes_either_way_is_told():
    """Where a loop asks whether it goes on: the join and the beginning of an item, or what stands behind the loop."""
    found = following("<<#geneach 'g' min=1 stop=']' join=', '>>w<<gen 'this'>><</geneach>>] <<g[0]>>")
    assert [one.text for one in found[1:3]] == [", w", "] "]


def stars(literal):
    """A control token is a star here, "**" one that ends generation."""
    before, star, rest = literal.partition("*")
    return (before, rest.startswith("*")) if star else None


@pytest.mark.parametrize(
    ("behind", "found"),
    [
        (" a* b", Following(" a", ends=False)),
        ("** b", Following("", ends=True)),
        ("<<n>>**", Following("N", ends=True)),
        ("<<star>>*", Following("*", ends=False)),
        ("a<<! c >>*<<! c >>*", Following("a", ends=False)),
        ("a<<n>>b", Following("aNb")),
        ("<<#if n>>.<</if>>**" + "x" * 500, Following(".", ends=True)),
    ],
)
def test_a_control_token_of_the_template_cuts_what_follows(behind, found):
    """Literals are looked at together, values never."""
    program = Interpreter(Template(X + behind), {**VALUES, "star": "*"})
    program.step()
    assert find_following(program, "x", cut=stars) == found


def test_long_text_is_cut():
    """At a length that no terminator needs; an end of a turn behind it is not told then."""
    long = "a b " * MAX_FOLLOWING
    found = following(f"<<#assistant>>{X}{long}<</assistant>>")[0]
    assert found == Following(long[:MAX_FOLLOWING])


def test_looking_ahead_ends():
    """Whatever a loop writes; and nothing of it stays."""
    program = Interpreter(Template(X + "<<#each items>><<set y=this>><</each>>.<<y>>"), {"items": range(100_000)})
    assert isinstance(program.step(), Decide)
    assert find_following(program, "x") == Following()
    assert "y" not in program.page.values
    assert dict(program.page.scope.own()) == {}


pieces = st.lists(
    st.sampled_from(
        [
            "a",
            " ",
            "<<n>>",
            X.replace("'x'", "'{0}'"),
            "<<#if n>>c<</if>>",
            "<<#each ['s', 't'] join=','>><<this>><</each>>",
            "<<#block>>d<<set m='e'>><</block>><<m>>",
            "<<#block hidden=true>>f<</block>>",
        ]
    ),
    max_size=8,
)


@given(pieces=pieces)
@settings(max_examples=n_examples(60))
def test_what_follows_is_what_comes(pieces):
    """Between two slots of which nothing reads the value, it is the text that the program then writes."""
    text = "".join(piece.replace("{0}", f"x{at}") for at, piece in enumerate(pieces))
    program = Interpreter(Template(text), VALUES)
    promised, written, is_hidden = None, "", False
    while (step := program.step()) is not None:
        if isinstance(step, Hide):
            is_hidden = step.begins
        elif isinstance(step, Write):
            written += "" if is_hidden else step.text
        elif isinstance(step, Decide):
            assert promised in (None, written)
            promised, written = find_following(program, step.slot.name).text, ""
            program.name(step.slot.name, "a")
    assert promised in (None, written)
