"""The record of a page: names, events, JSON, copies, and what notebooks show."""

from __future__ import annotations

import copy
import enum
import json
import pickle

import pytest

import selectrie
from selectrie import Page, RenderParams, Template
from selectrie.engine.engine import Engine
from selectrie.engine.precision_check import SelfCheck
from selectrie.errors import OptionError
from selectrie.results import SlotEvent, TextEvent
from selectrie.results.page import jsonable
from selectrie.testing import HashModel

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
TEXT = """a <b> & <<#block hidden=true>>s<<select 'h' options=['a', 'b']>><</block>><<select 'x' options=ranks logprobs='lp'>>
<<#joint>><<select 'j' options=['a', 'b']>> <<select 'k' options=['s', 't']>><</joint>>
<<#each items>><<gen 'y' max_tokens=2>> <</each>>"""


class Rank(enum.Enum):
    LOW, HIGH = "a", "b"


@pytest.fixture(scope="module")
def page():
    """A page of the embedded model with slots of several kinds."""
    values = {"ranks": list(Rank), "items": [1, 2]}
    with selectrie.load() as llm:
        return llm.render(Template(TEXT, name="page.tmpl"), values, rendering=RenderParams(seed=7))


def test_values_are_looked_up_by_name(page):
    """By index, as a mapping, and a name that is not there is an error that lists those that are."""
    assert page["x"] is page.values["x"]
    assert "x" in page
    assert "nothing" not in page
    assert list(page) == ["h", "x", "lp", "j", "k", "y"]
    assert list(page.selections) == ["h", "x", "j", "k", "y"]
    with pytest.raises(KeyError, match="'nothing'; it has h, x"):
        _ = page["nothing"]
    with pytest.raises(TypeError):
        page.values["x"] = 1


def test_events_are_the_page_in_order(page):
    """Texts between slots are one event each, and joined they are the page."""
    events = page.events()
    assert "".join(event.text for event in events) == page.text
    kinds = [event.kind if isinstance(event, SlotEvent) else "text" for event in events]
    assert kinds == ["text", "select", "select", "text", "joint", "text", "joint", "text", "gen", "text", "gen", "text"]
    assert page.slots == tuple(event for event in events if isinstance(event, SlotEvent))
    assert page.slots[0].hidden
    assert page.slots[0].text == ""


def test_the_cost_of_a_page_is_that_of_its_slots(page):
    """Each record counts once: the slots of a joint block share one."""
    records = {id(slot.record): slot.record for slot in page.slots}
    assert len(records) == len(page.slots) - 1
    assert page.cost.rows == sum(record.cost.rows for record in records.values())


def test_a_page_as_json(page):
    """Values as JSON has them, a record a slot, and the shared one of a joint block once."""
    made = json.loads(page.to_json())
    assert made == json.loads(json.dumps(page.to_dict()))
    assert (made["format"], made["kind"], made["template"], made["seed"]) == (2, "page", "page.tmpl", 7)
    assert made["text"] == page.text
    assert made["values"]["x"] in ("a", "b")
    assert [slot["kind"] for slot in made["slots"]] == ["select", "select", "joint", "joint", "gen", "gen"]
    assert [slot["record"] and slot["record"]["kind"] for slot in made["slots"]] == [
        "selection",
        "selection",
        "joint",
        None,
        "generation",
        "generation",
    ]
    assert [slot["path"] for slot in made["slots"]] == ["h", "x", "j", "k", "y[0]", "y[1]"]
    assert [slot["position"] for slot in made["slots"]][:3] == ["page.tmpl:1:32", "page.tmpl:1:75", "page.tmpl:2:11"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Rank.LOW, "a"),
        (True, True),
        (float("nan"), None),
        ((1, "a"), [1, "a"]),
        ({1: Rank.HIGH, "k": [None]}, {"1": "b", "k": [None]}),
        (b"ab", "b'ab'"),
    ],
)
def test_values_that_json_does_not_know(value, expected):
    """Enum members become their value, tuples lists, what is left its `repr`."""
    assert jsonable(value) == expected


def test_values_without_end_are_cut():
    """A list that holds itself is no endless text."""
    loop: list[object] = []
    loop.append(loop)
    assert json.dumps(jsonable(loop))


def test_pages_are_copied_and_pickled(page):
    """They are equal then, and unequal to another."""
    assert copy.copy(page) == page
    assert pickle.loads(pickle.dumps(page)).to_dict() == page.to_dict()  # noqa: S301 - made here
    assert copy.replace(page, text="") != page if hasattr(copy, "replace") else True


def test_equal_pages_are_equal():
    """On a fake, whose rows never differ; the text alone does not make it."""
    template = Template("a<<select 'x' options=['a', 'b']>><<gen 'y' max_tokens=2>>")
    pages = []
    for seed in (1, 1, 2):
        with Engine(HashModel(seed), check=EXACT) as engine:
            pages.append(engine.render(template, rendering=RenderParams(seed=1)))
    assert pages[0] == pages[1]
    assert pages[0] != pages[2]


def test_a_page_is_shown(page):
    """Names, values and probabilities in a line each; in notebooks the page with its slots marked, all of it escaped."""
    shown = repr(page)
    assert shown.splitlines()[0].startswith("Page('page.tmpl', ")
    assert "  h = " in shown
    assert "hidden" in shown
    assert "  y[1] = " in shown
    html = page._repr_html_()
    assert "a &lt;b&gt; &amp; " in html
    assert html.count("<span") == 5


def test_text_events_as_json():
    """With the slot whose text it is, where it is one's."""
    assert TextEvent("a").to_dict() == {"kind": "text", "text": "a"}
    assert TextEvent("a", "x").to_dict() == {"kind": "text", "text": "a", "slot": "x"}


def test_names_of_the_package():
    """`Template`, `Page` and `RenderParams` are promised."""
    assert selectrie.Page is Page
    assert {"Page", "RenderParams", "Template"} <= set(selectrie.__all__)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -2},
        {"max_tokens": 0},
        {"parse_special": 1},
        {"template_args": [1]},
        {"priority": 1.5},
        {"deadline_s": 0},
    ],
)
def test_renderings_are_checked(options):
    """Each field when the record is made."""
    with pytest.raises(OptionError, match=next(iter(options))):
        RenderParams(**options)


def test_renderings_are_values():
    """Equal, hashed, copied and pickled by their fields."""
    one = RenderParams(seed=3, template_args={"a": [1]})
    assert one == RenderParams(seed=3, template_args={"a": [1]})
    assert hash(one) == hash(RenderParams(seed=3, template_args={"a": [1]}))
    assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)  # noqa: S301 - made here
