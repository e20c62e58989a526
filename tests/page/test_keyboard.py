"""The page without a mouse, and the two shortcuts that it has."""

from __future__ import annotations

import pytest

from tests.page.tabs import FIRST, RANK, SELECT
from tests.page.visitor import LISTEN


def focused(page):
    """Name, role or tag of what has the focus."""
    return page.evaluate(
        """() => {
            const at = document.activeElement;
            return at.name || at.getAttribute('role') || at.textContent.trim() || at.tagName.toLowerCase();
        }"""
    )


def tab_to(page, name, most=60):
    """Press Tab until something has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if focused(page) == name:
            return
    raise AssertionError(f"{most} presses of Tab do not lead to {name}")


def test_from_start_to_answer_by_keyboard_alone(visit, double):
    """Tab leads to the fields and to Run, Enter answers, and the answer is said once."""
    visitor = visit()
    page = visitor.page
    tab_to(page, "prompt")
    page.keyboard.press("Control+A")
    page.keyboard.type("The capital of France is")
    tab_to(page, "choices")
    page.keyboard.press("Control+A")
    page.keyboard.type(" Paris\n Rome")
    tab_to(page, "Run")
    page.evaluate(LISTEN)
    before = page.evaluate("n_settled")
    page.keyboard.press("Enter")
    assert visitor.settled(before) == "done"
    assert "Paris" in visitor.answer.inner_text()
    said = page.evaluate("said.filter(one => one)")
    assert len(said) == 1
    assert "Paris" in said[0]


def test_arrows_choose_a_tab(visit):
    """One tab is in the order of Tab; arrows go round, Home and End lead to the ends."""
    page = visit().page
    names = page.get_by_role("tab").all_inner_texts()
    page.get_by_role("tab").first.wait_for()
    tab_to(page, "tab")
    chosen = page.locator("[role=tab][aria-selected=true]").inner_text
    start = names.index(chosen())
    for n, key in enumerate(["ArrowRight"] * len(names), 1):
        page.keyboard.press(key)
        assert chosen() == names[(start + n) % len(names)] == page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert chosen() == names[-1]
    page.keyboard.press("Home")
    assert chosen() == names[0]
    page.keyboard.press("End")
    assert chosen() == names[-1]
    assert page.locator("[role=tab][tabindex='0']").count() == 1
    assert page.locator("[role=tabpanel]:visible").count() == 1


@pytest.mark.parametrize("tab", FIRST, ids=str)
def test_control_enter_runs_and_escape_stops(visit, double, tab):
    """From any field; Escape ends the request on the server."""
    visitor = visit().choose(tab.name)
    visitor.panel.locator("textarea, input").first.focus()
    call = double.expect(tab.path)
    visitor.page.keyboard.press("Control+Enter")
    call.wait()
    visitor.wait_for("running")
    visitor.page.keyboard.press("Escape")
    call.wait_left()
    visitor.wait_for("stopped")


def test_no_other_key_does_anything(visit, double):
    """A letter typed outside of a field neither runs nor changes anything."""
    visitor = visit()
    visitor.page.locator("#model bdi").wait_for()
    visitor.page.locator(".read-as .chip").nth(1).wait_for()  # shown a moment after the example is filled in
    before = visitor.page.evaluate("document.activeElement.blur(), document.body.innerText")
    for key in ("r", "s", "?", "/", "j", "k", "Enter", "Escape", "g", "1"):
        visitor.page.keyboard.press(key)
    assert visitor.page.evaluate("document.body.innerText") == before
    assert double.asked == []


def test_the_outline_of_a_drawing_is_used_by_keyboard(visit):
    """The buttons of the list beside a drawing fold and unfold by Enter, and say so."""
    visitor = visit().choose(RANK.name).fill(prompt=RANK.fields["prompt"], choices=" Paris\n Parma\n Rome")
    visitor.run()
    details = visitor.answer.locator("figure.trie details")
    details.locator("summary").focus()
    visitor.page.keyboard.press("Enter")
    button = details.locator("button[aria-expanded=true]").first
    button.focus()
    before = details.locator("button").count()
    visitor.page.keyboard.press("Enter")
    details.locator("button[aria-expanded=false]").first.wait_for()
    visitor.page.keyboard.press("Enter")
    visitor.page.wait_for_function(
        "n => document.querySelectorAll('figure.trie details button[aria-expanded=true]').length >= 1", arg=1
    )
    assert details.locator("button").count() == before


def test_escape_closes_what_hovers_before_it_stops(visit, double):
    """A click on a shape shows what a mouse sees over it; the first Escape closes that, and the request goes on."""
    visitor = visit().choose(SELECT.name)
    visitor.run()
    call = double.expect(SELECT.path)
    visitor.press_run()
    call.wait()
    visitor.answer.locator("figure.strip svg :has(> title)").first.click()
    visitor.answer.locator(".tip:visible").wait_for()
    visitor.page.keyboard.press("Escape")
    assert visitor.answer.locator(".tip:visible").count() == 0
    assert visitor.state == "running"
    visitor.page.keyboard.press("Escape")
    call.wait_left()
