"""`Engine.render`: what each tag does to the page, which values it leaves, and which errors it ends in."""

from __future__ import annotations

import enum
import signal
import threading

import pytest

import selectrie
from selectrie import RenderParams, Template
from selectrie.core.types import Limits, ModelKind
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.engine.rendering import renderer
from selectrie.engine.rendering.renderer import MAX_SLOTS
from selectrie.engine.scheduler.task_group import CancelScope
from selectrie.errors import (
    CancelledError,
    ClosedError,
    DeadlineError,
    DecodeError,
    OptionError,
    PromptError,
    PromptTooLongError,
    SelectrieError,
    TemplateError,
)
from selectrie.options import MAX_SEGMENTS
from selectrie.results import BeamResult, Generation, Samples, Selection, SlotEvent
from selectrie.results.page import JointSelection
from selectrie.results.selection import SampledChoice
from selectrie.template.values.arguments import MAX_TURNS
from selectrie.testing import HashModel, TableModel

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
SEED = RenderParams(seed=1)
FAIR = {"a": 0.5, "b": 0.5}


class Rank(enum.Enum):
    LOW, HIGH = "a", "b"


@pytest.fixture(scope="module")
def llm():
    """The embedded model, one thread."""
    with selectrie.load() as engine:
        yield engine


@pytest.fixture
def fake():
    """An engine on a hashed model."""
    with Engine(HashModel(3), check=EXACT) as engine:
        yield engine


def on_table(table, prompt=("<bos>",)):
    """An engine on a table of probabilities."""
    return Engine(TableModel(table, prompt=prompt), check=EXACT)


def render(engine, text, /, values=None, **options):
    """A page of a template given as text, seed 1."""
    return engine.render(Template(text, **options), values or {}, rendering=SEED)


# Decisions that can be checked by hand


def test_the_text_after_a_slot_decides_a_choice_that_is_the_beginning_of_another():
    """p("s.") = 0.4 * 0.1, p("su.") = 0.4 * 0.4 * 0.9: the literal dot makes the longer choice win, the colon the shorter."""
    table = {(): {"s": 0.4}, ("s",): {".": 0.1, "u": 0.4, ":": 0.3}, ("s", "u"): {".": 0.9, ":": 0.05}}
    with on_table(table) as engine:
        dot = render(engine, "<<select 'x' options=['s', 'su']>>.")
        colon = render(engine, "<<select 'x' options=['s', 'su']>>:")
    assert (dot.text, colon.text) == ("su.", "s:")
    assert dot.selections["x"].terminator == "text"
    assert dot.selections["x"].logp == pytest.approx(-1.9379, abs=1e-4)  # log(0.4 * 0.4 * 0.9)


def test_what_was_chosen_is_what_the_next_slot_stands_after():
    """The second slot's row is that after the first choice."""
    with on_table({(): {"a": 0.9, "b": 0.1}, ("a",): {"s": 0.2, "u": 0.7}, ("b",): {"s": 0.9}}) as engine:
        page = render(engine, "<<select 'x' options=['a', 'b']>><<select 'y' options=['s', 'u']>>")
    assert (page.text, dict(page.values)) == ("au", {"x": "a", "y": "u"})
    assert page.selections["y"].probability == pytest.approx(7 / 9)


def test_a_hidden_slot_is_decided_and_leaves_no_trace():
    """After the hidden 'a', which makes 't' likely, the page goes on from where it was."""
    table = {(): {"a": 0.6, "s": 0.3, "t": 0.1}, ("a",): {"t": 0.9}}
    with on_table(table) as engine:
        page = render(engine, "<<select 'x' options=['a', 'b'] hidden=true>><<select 'y' options=['s', 't']>>")
    assert (page.text, page["x"], page["y"]) == ("s", "a", "s")
    assert [slot.hidden for slot in page.slots] == [True, False]


def test_a_hidden_block_is_context_for_what_stands_in_it_alone():
    """Within the block 'a' is followed by 'u'; behind it nothing of it is left."""
    table = {(): {"a": 0.6, "s": 0.3, "u": 0.1}, ("a",): {"u": 0.9, "s": 0.1}}
    with on_table(table) as engine:
        page = render(
            engine,
            "<<#block hidden=true>>a<<select 'x' options=['s', 'u']>><</block>><<select 'y' options=['s', 'u']>>",
        )
    assert (page.text, page["x"], page["y"]) == ("s", "u", "s")


def test_a_loop_ends_where_its_stop_text_is_more_probable():
    """After one item '.' has 0.6 against 0.1 for ':b'; after none, 0.1 against 0.9."""
    table = {
        (): {"b": 0.9, ".": 0.1},
        ("b",): {":": 0.1, ".": 0.6},
        ("b", ":"): {"b": 1.0},
    }
    text = "<<#geneach 'xs' stop='.' join=':'>>b<<select 'this' options=['', 'a']>><</geneach>>."
    with on_table(table) as engine:
        page = render(engine, text)
        more = render(engine, text.replace("stop", "min=2 max=2 stop"))
    assert page.text == "b."
    assert page["xs"] == [""]
    assert [(slot.kind, slot.value) for slot in page.slots] == [("geneach", False), ("select", ""), ("geneach", True)]
    assert more["xs"] == ["", ""]


def test_a_loop_without_a_fixed_beginning_ends_where_its_stop_text_is_probable():
    """Without a join an item may begin with anything, so the stop text is held against one half."""
    table = {(): {".": 0.4, "a": 0.6}, ("a",): {".": 0.6, "a": 0.4}}
    with on_table(table) as engine:
        page = render(engine, "<<#geneach 'xs' stop='.'>><<select 'this' options=['a', 'b']>><</geneach>>.")
    assert (page.text, page["xs"]) == ("a.", ["a"])


def test_an_item_of_a_loop_ends_before_the_join_or_the_stop_text():
    """Neither is certain behind an item, so either ends it: 's:' and 'u.' are what the model writes."""
    table = {
        (): {"s": 0.9},
        ("s",): {":": 0.9},
        ("s", ":"): {"u": 0.9},
        ("s", ":", "u"): {".": 0.9},
    }
    with on_table(table) as engine:
        page = render(engine, "<<#geneach 'xs' min=1 max=5 stop='.' join=':'>><<gen 'this' max_tokens=9>><</geneach>>.")
    assert (page.text, page["xs"]) == ("s:u.", ["s", "u"])
    assert [slot.record[0].stop for slot in page.slots if slot.kind == "gen"] == [":", "."]


def test_the_joint_block_is_decided_by_its_whole_text():
    """'a' is the better first letter, 'bt' the better pair: 0.4 * 0.9 against 0.6 * 0.3."""
    table = {(): {"a": 0.6, "b": 0.4}, ("a",): {"s": 0.3, "t": 0.3}, ("b",): {"t": 0.9}}
    slots = "<<select 'x' options=['a', 'b']>><<select 'y' options=['s', 't']>>"
    with on_table(table) as engine:
        alone, joint = render(engine, slots), render(engine, f"<<#joint>>{slots}<</joint>>")
    assert alone["x"] == "a"
    assert (joint.text, joint["x"], joint["y"]) == ("bt", "b", "t")
    assert isinstance(joint.selections["x"], JointSelection)
    assert joint.selections["x"] is joint.selections["y"]
    assert joint.cost.rows == joint.selections["x"].cost.rows


# Values


def test_values_keep_their_type(fake):
    """Enum members and the values of pairs are stored as they were given, and are so in conditions."""
    page = render(
        fake,
        "a <<select 'e' options=ranks>> <<select 'p' options=pairs>><<#if e in ranks and p.x == 1>>.<<else>>:<</if>>",
        {"ranks": list(Rank), "pairs": [("a", {"x": 1}), ("b", {"x": 1})]},
    )
    assert page["e"] in list(Rank)
    assert page["p"] == {"x": 1}
    assert page.text.endswith(".")


def test_numbers_and_booleans_are_options(llm):
    """They stand on the page as text, and are stored as they are."""
    page = render(
        llm, "Two and two is <<select 'n' options=[3, 4, 5]>>.\nTrue or false: <<select 'f' options=[true, false]>>\n"
    )
    assert type(page["n"]) is int
    assert page["f"] in (True, False)
    assert page.text.splitlines()[1] == f"True or false: {str(page['f']).lower()}"


def test_slots_of_a_loop_are_lists(fake):
    """One entry an iteration, None where a slot was not reached; within the body the name is this iteration's."""
    text = "<<#each items>><<this>><<#if @first>><<select 'x' options=['a', 'b']>> <<x>><</if>> <</each>><<#each x>>:<</each>>"
    page = render(fake, text, {"items": ["s", "t"]})
    value = page["x"][0]
    assert page.text == f"s{value} {value} t ::"
    assert page["x"] == [value, None]
    assert [type(one) for one in page.selections["x"]] == [Selection, type(None)]


def test_slots_of_nested_loops_are_lists_of_lists(fake):
    """And each slot says where its value is."""
    text = "<<#each rows as row>><<#each row>>a<<select 'x' options=['a', 'b']>><</each>> <</each>>."
    page = render(fake, text, {"rows": [["s"], [], ["s", "t"]]})
    assert [len(row) for row in page["x"]] == [1, 0, 2]
    assert [slot.path for slot in page.slots] == ["x[0][0]", "x[2][0]", "x[2][1]"]
    assert [slot.value for slot in page.slots] == [value for row in page["x"] for value in row]


def test_a_loop_over_nothing_names_empty_lists(fake):
    """So that what reads them needs no condition."""
    page = render(
        fake, "a<<#each items>><<select 'x' options=['a', 'b']>><</each>><<#each x>>b<</each>>", {"items": []}
    )
    assert (page.text, page["x"], page.selections["x"]) == ("a", [], [])


def test_each_goes_through_a_mapping(fake):
    """`this` is the value, @key the key; the join stands between two."""
    page = render(
        fake, "<<#each data join=' '>><<@key>>:<<this>><<#if @last>>.<</if>><</each>>", {"data": {"a": "b", "c": "s"}}
    )
    assert page.text == "a:b c:s."


def test_fields_of_this_make_mappings(llm):
    """`this.field` in a `geneach`; its other slots are lists beside it."""
    page = render(
        llm,
        "<<#geneach 'people' num=2>>Name: <<gen 'this.name' max_tokens=4>>\nClass: <<select 'this.kind' options=kinds>>\n"
        "Armor: <<select 'armor' options=['leather', 'plate']>>\n<</geneach>>First: <<people[0].name>>",
        {"kinds": ["mage", "thief"]},
    )
    assert [set(one) for one in page["people"]] == [{"name", "kind"}] * 2
    assert page.text.endswith(f"First: {page['people'][0]['name']}")
    assert len(page["armor"]) == 2
    assert [slot.path for slot in page.slots][:3] == ["people[0].name", "people[0].kind", "armor[0]"]
    assert isinstance(page.selections["people"][1]["kind"], Selection)


def test_a_set_in_a_loop_names_a_value_of_the_page(fake):
    """It is no slot: the last value stays."""
    page = render(fake, "<<set n='a'>><<#each ['b', 's']>><<set n=this>><</each>><<n>>")
    assert (page.text, page["n"]) == ("s", "s")


def test_a_named_block_is_its_text(fake):
    """What the model decided in it included, what is hidden in it not."""
    page = render(
        fake,
        "a<<#block 'b'>>s<<select 'x' options=['t', 'u']>><<#block hidden=true>> c<</block>><</block>> <<b>>",
    )
    assert page["b"] == f"s{page['x']}"
    assert page.text == f"as{page['x']} s{page['x']}"


def test_included_files_share_the_page(fake, tmp_path):
    """Slots and sets of an included file are the page's; an error in it names that file."""
    (tmp_path / "part.tmpl").write_text("<<select 'x' options=items>><<set y='s'>>")
    page = render(fake, "a<<include 'part.tmpl'>> <<x>><<y>>", {"items": ["b", "t"]}, search_path=tmp_path)
    assert page.text == f"a{page['x']} {page['x']}s"
    assert page.slots[0].position == "part.tmpl:1:1"
    with pytest.raises(TemplateError, match=r"part\.tmpl:1:22"):
        render(fake, "a<<include 'part.tmpl'>>", {"items": []}, search_path=tmp_path)


def test_extra_values_are_left_alone(fake):
    """A row of a table may have more columns than a template reads."""
    assert fake.render(Template("a<<b>>"), {"b": "s", "other": object()}).text == "as"


# Kinds of slots


def test_every_kind_of_slot_has_its_record(llm):
    """A selection, a draw of a set or of a grammar, a generation, the result of a beam."""
    page = render(
        llm,
        "Pick <<select 'a' options=['red', 'blue'] logprobs='lp'>>, <<select 'b' options=['red', 'blue'] temperature=1>>, "
        "<<select 'c' regex='(one|two)*' temperature=1>>, <<gen 'd' max_tokens=4>>, <<beam 'e' regex='[a-c]+' max_tokens=3>>.",
    )
    kinds = {name: type(record) for name, record in page.selections.items()}
    assert kinds == {"a": Selection, "b": SampledChoice, "c": Samples, "d": Generation, "e": BeamResult}
    assert set(page["lp"]) == {"red", "blue"}
    assert page["lp"]["red"] == pytest.approx(page.selections["a"].choices[0].logp)
    assert page.text == f"Pick {page['a']}, {page['b']}, {page['c']}, {page['d']}, {page['e']}."


def test_several_texts_are_a_list_of_which_the_page_has_the_first(llm):
    """`n=` of gen."""
    page = render(llm, "Pick a <<gen 'x' n=3 temperature=1 max_tokens=3>>.")
    assert len(page["x"]) == 3
    assert page.text == f"Pick a {page['x'][0]}."


def test_generated_tokens_limit_is_the_renderings(llm):
    """`max_tokens` of a gen that does not say it."""
    page = llm.render(Template("Once upon a time<<gen 'x'>>"), rendering=RenderParams(max_tokens=3))
    assert 3 <= len(page.selections["x"][0].tokens) <= 4


def test_a_chat_is_written_by_the_models_template(llm):
    """Turns as ChatML has them; the end of an assistant's turn ends a choice; white space between turns is left out."""
    page = render(
        llm,
        """<<#system>>Be kind.<</system>>
<<#user>>What is the capital of <<country>>?<</user>>

<<#assistant>><<gen 'answer' max_tokens=20>><</assistant>>
<<#user>>Sure?<</user>><<#assistant>><<select 'sure' options=["Yes", "No", "Yes, sure"]>><</assistant>>
""",
        {"country": "France"},
    )
    assert page.text == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
        f"<|im_start|>assistant\n{page['answer']}<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n"
        f"<|im_start|>assistant\n{page['sure']}<|im_end|>\n"
    )
    assert page["answer"] == "Paris"
    assert page.selections["sure"].terminator == "eog"
    asked = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What is the capital of France?"}]
    assert llm.generate(asked, sampling=selectrie.SamplingParams.GREEDY)[0].text == page["answer"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("<<#user>>a<</user>>\n cat <<#assistant>><<gen 'x'>><</assistant>>", "2:2"),
        ("a <<#user>>b<</user>>", "1:1"),
        ("<<#user>>b<</user>><<gen 'x'>>", "1:20"),
        ("<<#block>><<#user>>b<</user>><</block>>\n<<#block 'c'>>.<</block>>", "2:15"),
        ("<<#user>>b<</user>><<#joint>><<select 'x' options=['a', 'b']>><</joint>>", "1:20"),
    ],
)
def test_text_outside_of_the_turns_is_refused(text, place):
    """When the template is made, with its place."""
    with pytest.raises(TemplateError, match=rf"<template>:{place}: .*outside every role"):
        Template(text)


def test_text_outside_of_the_turns_is_refused_where_a_condition_puts_it_there(fake):
    """Then it shows on the page; the same template without its turns is a page of text."""
    text = "<<#if chat>><<#user>>a<</user>><</if>> <<n>>"
    assert render(fake, text, {"chat": False, "n": "b"}).text == " b"
    assert render(fake, text, {"chat": True, "n": " "}).text == "u:a<eos>\n"
    with pytest.raises(TemplateError, match=r"<template>:1:40: .*outside every role"):
        render(fake, text, {"chat": True, "n": "b"})


# Seeds and limits


def test_the_seed_of_a_page_decides_it(llm):
    """The same seed gives the same page, and every slot draws with a seed of its own."""
    template = Template(
        "Colours: <<#geneach 'xs' num=6 join=', '>><<gen 'this' temperature=1.5 max_tokens=3>><</geneach>>"
    )
    one, same, other = (llm.render(template, rendering=RenderParams(seed=seed)) for seed in (5, 5, 6))
    assert (one.text, one["xs"]) == (same.text, same["xs"])
    assert one.text != other.text
    assert len({slot.record[0].seed for slot in one.slots}) == 6
    drawn = llm.render(template)
    assert llm.render(template, rendering=RenderParams(seed=drawn.seed)).text == drawn.text


def test_a_slot_may_name_its_own_seed(llm):
    """Whatever the seed of the page."""
    template = Template("A <<gen 'x' temperature=1 seed=7 max_tokens=4>>.")
    texts = {llm.render(template, rendering=RenderParams(seed=seed)).text for seed in range(4)}
    assert len(texts) == 1


def test_a_page_without_slots_asks_nothing_of_the_model():
    """Not even a context to stand in."""
    model = HashModel(1)
    with Engine(model, check=EXACT) as engine:
        page = render(engine, "<<#each items>><<this>>;<</each>>", {"items": ["no", "token", "of", "it"]})
    assert page.text == "no;token;of;it;"
    assert (model.calls, page.cost.rows) == (0, 0)


# Errors


@pytest.mark.parametrize(
    ("text", "values", "place", "reason"),
    [
        ("a <<select 'x' options=items>>", {}, "1:24", "items"),
        ("a\n  <<select 'x' options=items>>", {"items": []}, "2:24", "empty"),
        ("a <<select 'x' options=items>>", {"items": ["b", "b"]}, "1:24", "text 'b'"),
        ("<<nothing>>", {"nothin": 1}, "1:3", "did you mean 'nothin'"),
        ("<<#each items>>a<</each>>", {"items": 3}, "1:9", "each"),
        ("<<a>>", {"a": None}, "1:3", "none has no text"),
        ("a<<#geneach 'xs' num=n>><<gen 'this'>><</geneach>>", {"n": -1}, "1:22", "num"),
        ("a<<gen 'x' max_tokens=n>>", {"n": 0}, "1:23", "max_tokens"),
    ],
)
def test_mistakes_are_told_with_their_place_before_any_model_call(text, values, place, reason):
    """One `TemplateError` that names file, line and column, and shows the line."""
    model = HashModel(1)
    with Engine(model, check=EXACT) as engine, pytest.raises(TemplateError) as caught:
        render(engine, text, values, name="page.tmpl")
    message = str(caught.value)
    assert message.startswith(f"page.tmpl:{place}: ")
    assert reason in message
    assert message.endswith("^")
    assert model.calls == 0


def test_a_mistake_that_only_the_page_shows_is_told_with_its_place(fake):
    """A key that depends on what was decided."""
    with pytest.raises(TemplateError, match=r"<template>:1:\d+: the mapping has no key"):
        render(fake, "a<<select 'x' options=['b', 's']>> <<names[x]>>", {"names": {"c": 1}})


def test_a_page_that_outgrows_the_context_names_the_slot():
    """The error keeps its class, its numbers and its remedy."""
    limits = Limits(
        nodes=40,
        sequences=8,
        rows_per_call=8,
        kind=ModelKind.ATTENTION,
        max_idle_rows=4096,
        larger_context="open a larger fake",
    )
    text = "<<#each items>>a b c.\n<</each>>cat <<select 'x' options=['a', 'b']>>"
    with Engine(HashModel(1, limits=limits), check=EXACT) as engine:
        assert render(engine, text, {"items": [1]}).text.startswith("a b c.\ncat")
        with pytest.raises(PromptTooLongError, match=r"^select 'x' at <template>:2:14: needs \d+ tokens") as caught:
            render(engine, text, {"items": list(range(30))})
        assert caught.value.available_tokens == 40
        assert str(caught.value).endswith("; shorten the page before the slot, or open a larger fake")
        with pytest.raises(PromptTooLongError, match=r"slot, lower its `max_tokens`, or open a larger fake$"):
            render(engine, "a<<gen 'x' max_tokens=50>>")
        assert render(engine, text, {"items": [1]}).text.startswith("a b c.\ncat")


def test_an_error_of_the_model_names_the_slot():
    """And leaves an engine that goes on working."""
    model = HashModel(1)
    with Engine(model, check=EXACT) as engine:
        model.fail_next(DecodeError("out of memory"))
        with pytest.raises(DecodeError, match=r"^gen 'x' at <template>:1:2: out of memory"):
            render(engine, "a<<gen 'x' max_tokens=2>>")
        assert render(engine, "a<<gen 'x' max_tokens=2>>").text


def test_a_slot_at_the_beginning_of_a_page_needs_a_token_before_it():
    """A model without BOS predicts nothing there; the error says so and where."""
    import dataclasses

    from selectrie.testing import make_vocabulary

    bare = dataclasses.replace(make_vocabulary(), bos=None)
    with Engine(HashModel(1, vocabulary=bare), check=EXACT) as engine:
        with pytest.raises(PromptError, match=r"^gen 'x' at <template>:1:1: the page is empty"):
            render(engine, "<<gen 'x'>>")
        assert render(engine, "a<<gen 'x' max_tokens=1>>").text.startswith("a")


def test_pages_are_bounded(fake, monkeypatch):
    """Slots, items, segments and text; each bound is told where it is met."""
    from selectrie.engine.rendering import renderer

    with pytest.raises(TemplateError, match=f"more than the {MAX_TURNS}|{MAX_TURNS}"):
        render(fake, "<<#each items>>a<</each>>", {"items": range(MAX_TURNS + 1)})
    monkeypatch.setattr(renderer, "MAX_PAGE_BYTES", 100)
    with pytest.raises(TemplateError, match=r"<template>:1:16: the page grows beyond"):
        render(fake, "<<#each items>>a cat s.<</each>>", {"items": range(30)})
    few = RenderParams(max_segments=50)
    with pytest.raises(TemplateError, match="passes more than 50 segments"):
        fake.render("<<#each items>><<!n>><</each>>", {"items": range(60)}, rendering=few)
    with pytest.raises(OptionError, match=f"max_segments={MAX_SEGMENTS + 1}: expected a whole number from 1"):
        RenderParams(max_segments=MAX_SEGMENTS + 1)
    assert MAX_SLOTS == 10_000
    monkeypatch.setattr(renderer, "MAX_SLOTS", 3)
    slot = "<<select 'x' options=['a', 'b']>>"
    for one in (slot, f"<<#joint>>{slot}<</joint>>"):
        with pytest.raises(TemplateError, match=r"<template>:1:17: the page has more than 3 slots"):
            render(fake, f"<<#each items>>a{one}<</each>>", {"items": range(4)})


@pytest.mark.parametrize(
    ("arguments", "named", "error"),
    [
        ((3,), {}, "expected a Template"),
        ((Template("a"), [1]), {}, "a mapping from names"),
        ((Template("a"), {"b": 1}), {"b": 2}, "given once"),
        ((Template("a"),), {"rendering": 3}, "a RenderParams record"),
    ],
)
def test_what_is_no_template_or_no_values_is_refused(fake, arguments, named, error):
    """With the name of the argument."""
    with pytest.raises(OptionError, match=error):
        fake.render(*arguments, **named)


def test_a_deadline_ends_a_page(fake):
    """It is told at the slot that came too late."""
    with pytest.raises(DeadlineError, match=r"^gen 'x' at"):
        fake.render(Template("a<<gen 'x'>><<gen 'y'>>"), rendering=RenderParams(deadline_s=1e-9))


def test_a_closed_engine_says_so(fake):
    """Whatever the template."""
    fake.close()
    with pytest.raises(ClosedError):
        render(fake, "a<<gen 'x'>>")


def test_ctrl_c_takes_a_page_back(monkeypatch):
    """In the middle of a decode; nothing is left under way."""
    model = HashModel(1)
    held = threading.Event()

    def interrupt():
        if not held.is_set():
            held.set()
            signal.raise_signal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else (
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            )

    with Engine(model, check=EXACT) as engine:
        model.on_decode = interrupt
        with pytest.raises(KeyboardInterrupt):
            render(engine, "a<<gen 'x' max_tokens=2000>>")
        model.on_decode = None
        assert any(engine._model_thread.call(lambda: engine._model_thread.scheduler.idle) for _ in range(5))
        assert render(engine, "a<<gen 'x' max_tokens=2>>").text.startswith("a")


# Many pages


def test_many_pages_are_those_of_each_row_alone(llm):
    """In order, whatever shares the model calls; they take fewer calls than one after the other."""
    template = Template(
        "The capital of <<country>> is <<select 'city' options=cities>>.\nPeople there speak <<gen 'x' max_tokens=3>>.\n"
    )
    cities = ["Paris", "Rome", "Berlin", "Madrid"]
    rows = [{"country": country, "cities": cities} for country in ("France", "Italy", "Germany", "Spain")]
    pages = llm.render_many(template, rows, rendering=SEED)
    alone = [llm.render(template, row, rendering=SEED) for row in rows]
    assert [page["city"] for page in pages] == cities
    assert [page.text for page in pages] == [page.text for page in alone]
    assert [dict(page.values) for page in pages] == [dict(page.values) for page in alone]


def test_no_rows_are_no_pages(fake):
    """An empty list in, an empty list out."""
    assert fake.render_many(Template("a<<gen 'x'>>"), []) == []


def test_a_row_that_is_refused_refuses_all_before_any_model_call():
    """Its index goes into the error."""
    model = HashModel(1)
    with Engine(model, check=EXACT) as engine:
        template = Template("a <<select 'x' options=items>>")
        with pytest.raises(TemplateError, match=r"^request 2: <template>:1:24: ") as caught:
            engine.render_many(template, [{"items": ["a", "b"]}] * 2 + [{"items": []}])
    assert caught.value.request == 2
    assert model.calls == 0


def test_a_row_that_fails_cancels_the_others(monkeypatch):
    """The error names row and slot; pages in the middle of their work are taken back, and nothing is left under way.

    The order is arranged: all long pages begin once the error is in hand, it is raised once the model works for one of them,
    and the model goes on once everything is cancelled.
    """
    template = Template(
        "<<#if long>>a<<gen 'x' max_tokens=3000>><</if>>a<<select 'z' options=['a', 'b']>> <<names[z]>>"
    )
    rows = [{"long": at != 1, "names": {"c": 1}} for at in range(4)]
    in_hand, at_work, cancelled = threading.Event(), threading.Event(), threading.Event()
    all_begun = threading.Barrier(4, timeout=60)
    make, cancel = Engine._make_page, CancelScope.cancel
    model, ends = HashModel(1), []

    def hold():
        at_work.set()
        assert cancelled.wait(60)

    def making(engine, request, tell):
        try:
            if request.values["long"]:
                assert in_hand.wait(60)
                all_begun.wait()
                model.on_decode = hold
            return make(engine, request, tell)
        except TemplateError:
            in_hand.set()
            all_begun.wait()
            assert at_work.wait(60)
            raise
        except BaseException as error:
            ends.append(type(error))
            raise

    def cancelling(scope):
        cancel(scope)
        cancelled.set()

    monkeypatch.setattr(Engine, "_make_page", making)
    monkeypatch.setattr(CancelScope, "cancel", cancelling)
    with Engine(model, check=EXACT) as engine:
        with pytest.raises(TemplateError, match=r"^request 1: <template>:1:") as caught:
            engine.render_many(template, rows)
        assert caught.value.request == 1
        assert ends == [CancelledError] * 3
        assert any(engine._model_thread.call(lambda: engine._model_thread.scheduler.idle) for _ in range(5))
        assert not [thread for thread in threading.enumerate() if thread.name == "selectrie-page"]


def test_a_page_of_text_alone_can_be_cancelled(fake):
    """It has no task, so each step looks whether somebody still waits for it."""
    scope, events = CancelScope(), []

    def tell(event):
        events.append(event)
        scope.cancel()

    request = renderer.request_of("<<#each items>><<this>><</each>>", {"items": ["a"] * 1_000}, {}, RenderParams())
    with scope.open(), pytest.raises(CancelledError):
        fake._make_page(request, tell)
    assert len(events) == 1


def test_rows_must_be_mappings(fake):
    """Each, and many of them."""
    template = Template("a")
    with pytest.raises(OptionError, match="mappings from names"):
        fake.render_many(template, {"a": 1})
    with pytest.raises(OptionError, match=r"request 1: values"):
        fake.render_many(template, [{}, 3])


def test_closing_the_engine_ends_many_pages(monkeypatch):
    """In the middle of a decode: every page ends with `ClosedError`, without an index, for all fail together."""
    model = HashModel(1)
    engine = Engine(model, check=EXACT)
    begun, closing = threading.Event(), threading.Event()
    interrupt = model.interrupt

    def hold():
        begun.set()
        assert closing.wait(60)

    monkeypatch.setattr(model, "interrupt", lambda: (closing.set(), interrupt()))
    model.on_decode = hold
    threading.Thread(target=lambda: (begun.wait(60), engine.close()), daemon=True).start()
    with pytest.raises(ClosedError) as caught:
        engine.render_many(Template("a<<gen 'x' max_tokens=3000>>"), [{}] * 3)
    assert caught.value.request is None


def test_slot_events_say_where_the_slot_is(fake):
    """File, line and column of its tag."""
    page = render(fake, "a\nb <<select 'x' options=['a', 'b']>>", name="x.tmpl")
    assert [slot.position for slot in page.slots if isinstance(slot, SlotEvent)] == ["x.tmpl:2:3"]


def test_errors_of_slots_are_copied_with_their_place():
    """`SelectrieError.slot` survives pickling, as `request` does."""
    import pickle

    error = DecodeError("full")
    error.slot, error.request = "gen 'x' at a.tmpl:1:2", 3
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert str(again) == "request 3: gen 'x' at a.tmpl:1:2: full"
    assert isinstance(again, SelectrieError)
    assert CancelledError().slot is None


TURN = "<|im_start|>user\nYou are the best shop in town!<|im_end|>\n<|im_start|>assistant\n"
LABELS = "<<select 'x' options=['praise', 'praise!', 'refund']>>"


def test_control_tokens_of_the_template_end_slots_as_those_of_roles_do(llm):
    """Behind a slot they are no text that follows it; without `parse_special` they are."""
    special = RenderParams(seed=1, parse_special=True)
    own = llm.render(Template(f"{TURN}{LABELS}<|im_end|>\n"), rendering=special).selections["x"]
    chat = f"<<#user>>You are the best shop in town!<</user>><<#assistant>>{LABELS}<</assistant>>"
    turn = llm.render(Template(chat), rendering=SEED).selections["x"]
    assert (own.terminator, own.signature.following_bytes) == (turn.terminator, 0) == ("eog", 0)
    assert own.logp == pytest.approx(turn.logp, abs=16 * llm.tolerance)
    plain = llm.render(Template(f"{TURN}{LABELS}<|im_end|>\n"), rendering=SEED).selections["x"]
    assert plain.terminator == "text"
    dot = llm.render(Template(f"{TURN}{LABELS}.<|im_end|>\n"), rendering=special).selections["x"]
    assert (dot.terminator, dot.signature.following_bytes) == ("text", 1)


def test_a_gen_ends_at_a_control_token_of_the_template(llm):
    """By the model's own end-of-generation token, which is no part of its text."""
    text = "<|im_start|>user\nWhere is it?<|im_end|>\n<|im_start|>assistant\n<<gen 'y' max_tokens=20>><|im_end|>\n"
    page = llm.render(Template(text), rendering=RenderParams(seed=1, parse_special=True))
    assert page.selections["y"].completions[0].finish == "eog"
    assert page["y"]
    assert "<|im" not in page["y"]


def test_a_joint_refuses_control_tokens(llm):
    """It compares texts; without `parse_special` this is one."""
    text = "x <<#joint>><<select 'x' options=['a', 'b']>><|im_end|><<select 'y' options=['a', 'b']>><</joint>>"
    with pytest.raises(TemplateError, match=r"1:46: this text holds a control token"):
        llm.render(Template(text), rendering=RenderParams(seed=1, parse_special=True))
    assert "<|im_end|>" in llm.render(Template(text), rendering=SEED).text


@pytest.mark.parametrize("end", ["\r\n", " \r\n", "\n"])
def test_a_gen_ends_at_a_line_end_of_either_kind(llm, end):
    """A model ends its lines with LF, also on a page whose lines end with CRLF."""
    page = llm.render(Template(f"Name: <<gen 'name' max_tokens=20>>{end}Age: 4"), rendering=SEED)
    assert page.selections["name"].completions[0].finish == "stop"
    assert "\n" not in page["name"]
    assert page.text == f"Name: {page['name']}{end}Age: 4"
