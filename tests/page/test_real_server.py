"""The page on the real server and the embedded model, from the first look to the answer."""

from __future__ import annotations

import math
import re

import pytest

from tests.page.double import LAYOUT_ERROR
from tests.page.tabs import DECIDE, RANK, SELECT

LONG_TEXTS = [
    f" {number} and then {' '.join(str(number * prime % 10007) for prime in range(3, 60))}" for number in range(1_000)
]
"""As many choices as the server takes, whose tokens keep the model busy for many calls."""
CANCELLED = """async n => {
    const text = await (await fetch('/metrics')).text();
    return Number(/^selectrie_cancelled_total{reason="disconnected"} (\\S+)$/m.exec(text)[1]) > n;
}"""
"""A function of JavaScript: whether the server has counted more requests than these that were given up."""


def n_cancelled(visitor):
    """How many requests the server says were given up by the client."""
    text = visitor.page.request.get("/metrics").text()
    return float(re.search(r'^selectrie_cancelled_total{reason="disconnected"} (\S+)$', text, re.MULTILINE)[1])


def asked_directly(visitor, path, body):
    """The answer to the same request without the page."""
    found = visitor.page.request.post(path, data={**body, "stream": False})
    assert found.status == 200
    return found.json()


def test_the_page_opens_with_an_answer(visit, double):
    """Before anything is asked, the example stands there with its answer and one sentence; a few files make the page."""
    visitor = visit()
    visitor.answer.locator("data").first.wait_for()
    assert "Chicago" in visitor.answer.inner_text()
    assert "New Zealand" in visitor.field("choices").input_value()
    assert visitor.panel.get_attribute("aria-labelledby") == visitor.page.get_by_role(
        "tab", selected=True
    ).get_attribute("id")
    visitor.page.wait_for_load_state("networkidle")
    assert double.asked == []
    assert len(set(visitor.requests)) <= 15


def test_select_on_the_real_server(visit, double):
    """The winner, its share and its probability are those that the same request without the page is answered with."""
    visitor = visit().choose(SELECT.name).fill(**SELECT.fields)
    assert visitor.run() == "done"
    path, body = double.asked[-1]
    direct = asked_directly(visitor, path, body)
    assert path == SELECT.path
    assert "Paris" in visitor.answer.locator(".winner").inner_text()
    shares = visitor.answer.locator(".big data").evaluate_all("all => all.map(one => Number(one.value))")
    expected = [direct["choices"][0]["probability"], math.exp(direct["logp"])]
    assert shares == pytest.approx(expected, abs=LAYOUT_ERROR)


def test_rank_on_the_real_server(visit, double):
    """The rows stand in the order of the answer without the page."""
    visitor = visit().choose(RANK.name).fill(**RANK.fields)
    assert visitor.run() == "done"
    direct = asked_directly(visitor, *double.asked[-1])
    rows = visitor.answer.locator("table.choices tbody th").all_inner_texts()
    best_first = sorted(direct["choices"], key=lambda one: -one["score"])
    assert [row.replace("␣", " ") for row in rows] == [one["text"] for one in best_first]


def test_decide_on_the_real_server(visit, double):
    """Every question of the example has its answer, with the probability that the server gives without the page."""
    visitor = visit().choose(DECIDE.name)
    assert visitor.run() in ("done", "low-mass")
    path, body = double.asked[-1]
    assert path == DECIDE.path
    direct = asked_directly(visitor, path, body)
    assert list(direct["answers"]) == visitor.answer.locator(".decided h2 > bdi").all_inner_texts()
    options = visitor.answer.locator("figure.answer-bars .leaf [data-name=probability]")
    expected = [
        p
        for one in direct["answers"].values()
        for p in (one["probabilities"].values() if "probabilities" in one else (one["noul"], 1 - one["noul"]))
    ]
    shown = options.evaluate_all("all => all.map(one => Number(one.value))")
    assert sorted(shown) == pytest.approx(sorted(expected), abs=LAYOUT_ERROR)


def test_a_replaced_request_is_cancelled_on_the_server(visit, double):
    """Run while a large request runs takes its place: the server counts the first as given up, and the second is shown."""
    visitor = visit().choose(RANK.name).fill(prompt="A number:")
    visitor.paste("choices", "\n".join(LONG_TEXTS))
    before = n_cancelled(visitor)
    visitor.press_run()
    visitor.answer.get_by_text(re.compile(r"\d nodes")).wait_for()
    visitor.fill(**RANK.fields)
    assert visitor.run() == "done"
    visitor.page.wait_for_function(CANCELLED, arg=before)
    assert n_cancelled(visitor) == before + 1
    assert visitor.answer.locator("table.choices tbody tr").count() == 3


@pytest.mark.long
def test_stop_ends_the_work_of_the_server(visit):
    """The server counts a stopped request as given up."""
    visitor = visit().choose(RANK.name).fill(prompt="A number:")
    visitor.paste("choices", "\n".join(LONG_TEXTS[::-1]))
    before = n_cancelled(visitor)
    visitor.press_run()
    visitor.answer.get_by_text(re.compile(r"\d nodes")).wait_for()
    visitor.panel.get_by_role("button", name="Stop", exact=True).click()
    visitor.page.wait_for_function(CANCELLED, arg=before)


def test_live_asks_once_after_the_last_key(visit, double):
    """Nothing runs while typing unless live is on; then one request follows 300 ms after the last key."""
    visitor = visit().choose(SELECT.name).fill(**SELECT.fields)
    visitor.freeze()
    visitor.field("prompt").press_sequentially("abc")
    visitor.page.clock.run_for(1_000)
    assert double.asked == []
    visitor.panel.get_by_label(re.compile("live")).check()
    visitor.field("prompt").press_sequentially("def")
    call = double.expect(SELECT.path)
    visitor.page.clock.run_for(299)
    assert visitor.state != "running"
    before = visitor.page.evaluate("n_settled")
    visitor.page.clock.run_for(1)
    assert visitor.state == "running"
    call.pass_on()
    visitor.settled(before)
    visitor.page.clock.run_for(1_000)
    assert visitor.state != "running"
    assert [body["prompt"] for _, body in double.asked] == [f"{SELECT.fields['prompt']}abcdef"]


@pytest.mark.parametrize("way", ["reload", "back"])
def test_inputs_outlive_the_page(visit, way):
    """After a reload, and after another page and back, the chosen tab has what was typed, options too."""
    visitor = visit().choose(RANK.name).fill(prompt="Typed: ü 👍", choices=" one\n two")
    visitor.panel.locator("details.options").evaluate("one => { one.open = true; }")
    visitor.field("delimiter").fill("-")
    if way == "reload":
        visitor.page.reload()
        visitor.ready()
    else:
        visitor.page.goto("/health")
        visitor.page.go_back()
        visitor.ready()
    assert visitor.page.get_by_role("tab", selected=True).inner_text() == RANK.name
    found = [visitor.field(name).input_value() for name in ("prompt", "choices", "delimiter")]
    assert found == ["Typed: ü 👍", " one\n two", "-"]
