"""The states of an answer: done, a tie, texts that the model would hardly say, streams, and what is too large to draw."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest

from selectrie.results.drawing.tokens import _LEVELS
from tests.page.tabs import DECIDE, LATER, RANK, SELECT
from tests.page.test_texts import many

GRAMMAR, TEMPLATE, GENERATE = LATER
SCORED = [
    *(pytest.param(one, id=str(one)) for one in (SELECT, RANK, DECIDE)),
    *(pytest.param(one, id=str(one), marks=pytest.mark.long) for one in (GRAMMAR, TEMPLATE)),
]
"""The tabs whose answers can be ties, or be of little mass."""


def parts(answer):
    """The parts of an answer that have a winner each, and where each says how sure that is."""
    if "answers" in answer:
        return [one["diagnostics"] for one in answer["answers"].values()]
    if "slots" in answer:
        return [one["record"] for one in answer["slots"] if "coverage" in (one.get("record") or {})]
    return [answer]


def answered(visit, double, tab, change):
    """A page that shows the answer to a tab's request after a change of it, and its state."""
    visitor = visit().choose(tab.name).fill(**tab.fields)
    assert visitor.run() in ("done", "tie", "low-mass")
    answer = deepcopy(double.answers[-1])
    change(answer)
    call = double.expect(tab.path)
    call.stream().event({**answer, "type": "result"}).end() if double.events else call.answer(answer)
    return visitor, visitor.run()


@pytest.mark.parametrize("tab", SCORED)
def test_a_tie_is_shown_as_a_tie(visit, double, tab):
    """A note says so, and the state is that of a tie."""

    def change(answer):
        for one in parts(answer):
            one["is_tie"], one["margin"] = True, 0.0

    visitor, state = answered(visit, double, tab, change)
    assert state == "tie"
    note = visitor.answer.locator(".note.tie").first.inner_text()
    assert note.startswith("A tie")
    assert "tolerance" not in note
    assert "★" not in "".join(visitor.answer.locator(".headline, table.choices").all_inner_texts())


def test_choices_that_share_the_first_place_have_the_mark_of_the_drawings(visit, double):
    """Both rows have it, and a choice that is listed twice has another one."""

    def change(answer):
        first, second, third = answer["choices"]
        answer["is_tie"], second["score"], third["duplicate_of"] = True, first["score"], 0
        answer["winner"] = 0

    visitor, _ = answered(visit, double, RANK, change)
    marks = visitor.answer.locator("td.marks").all_inner_texts()
    assert sum("= shares the first place" in one for one in marks) == 2
    assert sum("≡ same as choice 1" in one for one in marks) == 1


def test_little_mass_without_known_tokens_ends_with_the_mass(visit, double):
    """Where the model's tokens are not known, nothing is said of what it wanted."""

    def change(answer):
        answer["warnings"], answer["top_tokens"] = [{"code": "coverage", "text": "not these"}], []

    visitor, state = answered(visit, double, SELECT, change)
    assert state == "low-mass"
    assert "wanted" not in visitor.answer.locator(".note.low-mass").inner_text()


@pytest.mark.long
def test_pruned_choices_of_a_slot_stand_below_the_scored_ones(visit, double):
    """A slot without a drawing has a table, in which a choice without a score has its bound."""

    def change(answer):
        record = answer["slots"][-1]["record"]
        record["drawing"] = None
        record["choices"].insert(0, {**record["choices"][0], "text": "axe", "score": None, "logp": None})
        record["choices"][0] |= {"probability": None, "probability_low": 0.0, "probability_high": 0.25}

    visitor, _ = answered(visit, double, TEMPLATE, change)
    visitor.answer.locator("button.slot").last.click()
    rows = visitor.answer.locator(".slot-detail tbody tr").all_inner_texts()
    assert len(rows) == 5
    assert rows[-1].startswith("axe")
    assert "at most 25 %" in rows[-1]


@pytest.mark.parametrize("tab", SCORED)
def test_little_mass_says_what_was_wanted(visit, double, tab):
    """A note has the mass, which is not rounded to 0, and the tokens that the model would rather say."""

    def change(answer):
        for one in parts(answer):
            one["coverage" if "coverage" in one else "label_mass"] = 0.0004
            one["warnings"] = [{"code": "coverage", "text": "the model expects something else"}]

    visitor, state = answered(visit, double, tab, change)
    assert state == "low-mass"
    note = visitor.answer.locator(".note.low-mass").last
    if tab is TEMPLATE:
        assert "weapon" in note.inner_text()
        note.get_by_role("button", name="Show the slot").click()
        assert visitor.answer.locator(".slot-detail").inner_text().startswith("Slot weapon")
    assert "0.0004" in note.locator("data").evaluate_all("all => all.map(one => one.value)")
    assert "< 0.1 %" in note.inner_text()
    assert note.locator(".wanted").count() > 1


def test_remedies_of_little_mass_are_buttons(visit, double):
    """One puts a space before each choice and runs, the other asks in the chat template."""
    visitor = visit().choose(SELECT.name).fill(prompt="The capital of France is", choices="Paris\nRome")
    assert visitor.run() == "low-mass"
    note = visitor.answer.locator(".note.low-mass")
    before = visitor.page.evaluate("n_settled")
    note.get_by_role("button", name="space").click()
    assert visitor.settled(before) == "done"
    assert double.asked[-1][1]["delimiter"] == " "
    visitor.panel.locator("[name=delimiter]").evaluate("one => { one.value = ''; }")
    visitor.fill(choices="Paris\nRome")
    assert visitor.run() == "low-mass"
    before = visitor.page.evaluate("n_settled")
    visitor.answer.locator(".note.low-mass").get_by_role("button", name="chat template").click()
    visitor.settled(before)
    assert double.asked[-1][1]["user"] == "The capital of France is"


def test_what_is_too_large_to_draw_is_a_list(visit, double):
    """Without a drawing the choices stand in the list, and a sentence says why there is no picture."""
    visitor = visit().choose(RANK.name).fill(**RANK.fields)
    answer = many([" Paris", " Rome", " Oslo"])
    answer["drawing"] = {"trie": None, "bars": None, "strip": None, "sentences": {}}
    double.expect(RANK.path).stream().event({**answer, "type": "result"}).end()
    assert visitor.run() == "too-large"
    assert "too large to draw" in visitor.answer.inner_text()
    assert visitor.answer.locator("table.choices tbody tr").count() == 3


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_server_that_loads_is_asked_again(visit, double, is_asked):
    """While the model is being loaded the page says so, and asks again by itself, once, unless it was asked meanwhile."""
    visitor = visit().choose(SELECT.name).fill(**SELECT.fields)
    visitor.freeze()
    double.expect(SELECT.path).fail(503, "loading", "the model is being loaded", headers={"retry-after": "1"})
    visitor.run()
    assert "being loaded" in visitor.answer.inner_text()
    if is_asked:
        assert visitor.run() == "done"
    before = visitor.page.evaluate("n_settled")
    visitor.page.clock.run_for(5_000)
    if not is_asked:
        assert visitor.settled(before) == "done"
        visitor.page.clock.run_for(5_000)
    assert len(double.asked) == 2


@pytest.mark.long
def test_texts_of_a_grammar_arrive_while_it_is_searched(visit, double):
    """The best so far stands there and is not proved yet; then comes the answer."""
    visitor = visit().choose(GRAMMAR.name).fill(**GRAMMAR.fields)
    assert visitor.run() in ("done", "low-mass")
    answer = double.answers[-1]
    call = double.expect(GRAMMAR.path).stream()
    before = visitor.page.evaluate("n_settled")
    visitor.press_run()
    call.wait().event({"type": "found", "text": " Boston <i>", "logp": -3.5, "proved": False})
    visitor.wait_for("streaming")
    visitor.answer.get_by_text("Boston <i>").wait_for()
    assert "not proved yet" in visitor.answer.inner_text()
    call.event({"type": "found", "text": " Chicago!", "logp": -1.25, "proved": False})
    visitor.answer.get_by_text("Chicago!").wait_for()
    call.event({**answer, "type": "result"}).end()
    assert visitor.settled(before) in ("done", "low-mass")
    assert "not proved yet" not in visitor.answer.inner_text()


@pytest.mark.long
def test_an_error_of_a_grammar_stands_under_its_place(visit):
    """The message of the server, with line and caret, keeps its columns, and the grammar has the focus."""
    visitor = visit().choose(GRAMMAR.name)
    visitor.field("source").fill('root ::= "a" | missing')
    assert visitor.run() == "error"
    shown = visitor.answer.inner_text()
    assert "missing" in shown
    lines = shown.split("\n")
    at = next(number for number, line in enumerate(lines) if set(line.strip()) == {"^"})
    assert lines[at].index("^") == lines[at - 1].index("missing")
    assert visitor.page.evaluate("document.activeElement.name") == "source"


@pytest.mark.long
def test_a_page_fills_while_it_is_decided(visit, double):
    """Texts of a template stand there as they come; a click on a slot then opens what it was decided among."""
    visitor = visit().choose(TEMPLATE.name)
    assert visitor.run() in ("done", "low-mass")
    events = double.events
    call = double.expect(TEMPLATE.path).stream()
    before = visitor.page.evaluate("n_settled")
    visitor.press_run()
    call.wait()
    *first, last = events
    for event in first:
        call.event(event)
    visitor.wait_for("streaming")
    texts = [event["text"] for event in first if event["type"] == "text"]
    visitor.answer.get_by_text(texts[0].split("\n")[0].strip()).first.wait_for()
    call.event(last).end()
    assert visitor.settled(before) in ("done", "low-mass")
    slot = visitor.answer.locator("button", has_text=last["slots"][-1]["text"]).first
    slot.click()
    visitor.answer.locator("svg.sel").first.wait_for()
    assert slot.get_attribute("aria-expanded") == "true"


def answering(body):
    """A route of Playwright that has one answer."""
    return lambda route: route.fulfill(body=body)


@pytest.mark.long
def test_tokens_have_the_digits_that_the_tolerance_leaves(visit):
    """The model's tolerance is asked for; where it is not known, no probability reads as exactly 1."""
    visitor = visit().choose(GENERATE.name)
    for known in ("0.3", "null"):
        visitor.page.unroute_all()
        visitor.page.route("**/tokenizer_info*", answering(f'{{"tolerance": {known}}}'))
        assert visitor.run() == "done"
        labels = visitor.answer.locator(".tokens button").evaluate_all("all => all.map(one => one.ariaLabel)")
        assert any(", ≈ " in one for one in labels) is (known == "0.3")
        assert not any(one.endswith(", 100 %") for one in labels)


def test_tokens_are_tinted_as_in_a_notebook(visit):
    """The page and Python have the same levels."""
    levels = visit("/health").page.evaluate("import('/page/generate.js').then(one => one.TINTS)")
    assert levels == list(_LEVELS)


@pytest.mark.long
def test_alternatives_of_a_token_open_by_a_click(visit, double):
    """Generate shows its columns of tokens; a token opens what else could have stood there, by keyboard too."""
    visitor = visit().choose(GENERATE.name)
    assert visitor.run() == "done"
    tokens = visitor.answer.locator(".tokens button")
    assert visitor.answer.locator(".tokens").count() == double.asked[-1][1]["n"]
    tokens.first.focus()
    visitor.page.keyboard.press("ArrowRight")
    visitor.page.keyboard.press("Enter")
    assert tokens.nth(1).get_attribute("aria-pressed") == "true"
    parts = [one for event in double.events for one in event["choices"] if one["index"] == 0 and one.get("logprobs")]
    others = [one for part in parts for one in part["logprobs"]["top_logprobs"]]
    shown = visitor.answer.locator("[data-name=alternative]").evaluate_all("all => all.map(one => Number(one.value))")
    assert sorted(shown) == pytest.approx(sorted(map(math.exp, others[1].values())), rel=1e-15)
