"""One drawing in the project: what the page draws is what Python writes, element by element, and says in a list."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.results.drawing.shapes import Drawing, Item, Shape, to_svg
from tests.page.tabs import RANK, SELECT

ELEMENTS = """svg => {
    const element = at => ({
        tag: at.localName,
        attributes: Object.fromEntries([...at.attributes].map(one => [one.name, one.value])),
        text: [...at.childNodes].filter(one => one.nodeType === Node.TEXT_NODE).map(one => one.data).join(''),
        children: [...at.children].map(element),
    });
    return element(svg);
}"""
"""A function of JavaScript: an element with all that is in it."""
REQUESTS = {
    "example": {"prompt": "Q: Which city in the United States comes to mind? A:", "choices": " Chicago\n New Zealand"},
    "shared": {
        "prompt": "They live in",
        "choices": "\n".join(f" New {one}" for one in ("York", "Zealand", "York City", "Jersey")),
    },
    "signs": {"prompt": "One of them:", "choices": " <b>&amp;\"'\n שלום\n 👩‍👩‍👧‍👦\n a\\nb\n ab\u202ecd"},
    "many": {"prompt": "A number:", "choices": "\n".join(f" {number}" for number in range(150))},
    "equal": {"prompt": "The capital of France is", "choices": " Paris\n Paris\n Rome"},
}


def drawing_of(sent):
    """A drawing as the server sent it, as Python's record."""

    def shape(one):
        return Shape(one["tag"], one["attributes"], one["text"], tuple(map(shape, one["children"])))

    return Drawing(sent["width"], sent["height"], sent["title"], tuple(map(shape, sent["shapes"])), (Item("x"),))


def written(drawing):
    """The elements of the SVG that Python writes, without its style sheet, in the form of `ELEMENTS`."""

    def element(at):
        return {
            "tag": at.tag.rpartition("}")[2],
            "attributes": dict(at.attrib),
            "text": (at.text or "") + "".join(one.tail or "" for one in at),
            "children": [element(one) for one in at if not one.tag.endswith("}style")],
        }

    return element(ET.fromstring(to_svg(drawing)))  # noqa: S314 - our own


@pytest.mark.short("example", "signs", "equal")
@pytest.mark.parametrize("name", list(REQUESTS))
def test_the_page_draws_the_elements_that_python_writes(visit, double, name):
    """Tag, attributes, text and children of every element are equal, for all drawings of an answer."""
    visitor = visit().choose(SELECT.name).fill(**REQUESTS[name])
    assert visitor.run() in ("done", "tie", "low-mass")
    drawings = {
        key: one for key, one in double.answers[-1]["drawing"].items() if isinstance(one, dict) and "shapes" in one
    }
    shown = {key: one for key, one in drawings.items() if visitor.answer.locator(f"figure.{key}").count()}
    assert {"strip", "trie"} <= set(shown)
    for key, sent in shown.items():
        found = visitor.answer.locator(f"figure.{key} svg.sel").first.evaluate(ELEMENTS)
        del found["attributes"]["focusable"]
        assert found == written(drawing_of(sent)), key


def test_branches_fold_by_a_click_and_by_the_list(visit, double):
    """A click on a node asks again with it folded too, the picture has fewer nodes, and the list opens each again."""
    visitor = visit().choose(RANK.name).fill(**REQUESTS["shared"])
    visitor.run()
    first = double.asked[-1][1]
    nodes = visitor.answer.locator("figure.trie svg [data-node]")
    details = visitor.answer.locator("figure.trie details")
    details.evaluate("one => { one.open = true; }")

    def numbers(found):
        return [int(one) for one in found.evaluate_all("all => all.map(one => one.dataset.node)")]

    def folded_after(act):
        """The nodes that an act asks to be folded; those that the list has folded are the ones that can be seen."""
        before = visitor.page.evaluate("n_settled")
        act()
        visitor.settled(before)
        body = double.asked[-1][1]
        assert body == {**first, "fold": body["fold"]}
        assert set(numbers(details.locator("button[aria-expanded=false]"))) == set(body["fold"]) & set(numbers(nodes))
        return body["fold"]

    outer, *others, inner = before = numbers(nodes)
    assert folded_after(nodes.last.click) == [inner]
    assert folded_after(nodes.first.click) == [inner, outer]
    assert not set(numbers(nodes)) & {*others, inner}
    assert folded_after(lambda: details.locator(f"button[data-node='{outer}']").press("Enter")) == [inner]
    assert folded_after(lambda: details.locator(f"button[data-node='{inner}']").press("Enter")) == []
    assert numbers(nodes) == before


@pytest.mark.parametrize("key", ["strip", "trie"])
def test_numbers_are_there_without_hovering(visit, key):
    """The list beside a drawing has every number, and hovering shows nothing else; a picture says nothing to screen readers."""
    visitor = visit().choose(SELECT.name)
    visitor.run()
    figure = visitor.answer.locator(f"figure.{key}")
    assert figure.locator("svg.sel").first.get_attribute("aria-hidden") == "true"
    figure.locator("details").evaluate("one => { one.open = true; }")
    assert figure.locator("details li data").count() > 1
    assert all(value for value in figure.locator("details li data").evaluate_all("all => all.map(one => one.value)"))
