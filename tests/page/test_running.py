"""What a request that runs shows: how much is done, what is found so far, and a way to stop it."""

from __future__ import annotations

import json

import pytest

from tests.page.tabs import DECIDE, GENERATE, GRAMMAR, SELECT, TEMPLATE
from tests.page.test_results import answering

TOKEN = {"text": " a", "logprobs": {"tokens": [" a"], "token_logprobs": [-1.0], "top_logprobs": [{" a": -1.0}]}}


def stopped(visitor, call):
    """Press Stop, and wait until the server has lost the request."""
    visitor.panel.get_by_role("button", name="Stop", exact=True).click()
    call.wait_left()
    visitor.wait_for("stopped")
    assert "Below is what had come." in visitor.answer.inner_text()


@pytest.mark.long
def test_generate_counts_tokens_of_all_texts(visit, double):
    """At most as many as the texts may have in all; Stop ends them."""
    visitor = visit().choose(GENERATE.name).fill(n="3", max_tokens="8")
    call = double.expect(GENERATE.path).stream()
    visitor.press_run()
    call.wait()
    for index, said in enumerate(("1 of at most 24 tokens", "2 of at most 24 tokens")):
        call.event({"model": "m", "choices": [{"index": index, **TOKEN}]})
        visitor.answer.get_by_text(said).wait_for()
    stopped(visitor, call)


@pytest.mark.long
def test_a_template_counts_its_slots(visit, double):
    """Texts between them do not count."""
    visitor = visit().choose(TEMPLATE.name)
    call = double.expect(TEMPLATE.path).stream()
    visitor.press_run()
    call.wait()
    for kind, said in (("text", "0 slots"), ("select", "1 slot"), ("text", "1 slot"), ("gen", "2 slots")):
        call.event({"type": "text", "kind": kind, "text": f" {kind}", "hidden": False, "path": kind})
        visitor.answer.get_by_text(said, exact=True).wait_for()
    stopped(visitor, call)


@pytest.mark.long
def test_a_search_says_that_nothing_is_proved_before_a_text_is_found(visit, double):
    """From the first progress on; the best so far has the digits that the tolerance of the model leaves."""
    visitor = visit().choose(GRAMMAR.name)
    visitor.page.route("**/tokenizer_info*", answering('{"tolerance": 0.3}'))
    call = double.expect(GRAMMAR.path).stream()
    visitor.press_run()
    call.wait().event({"type": "progress", "done": 3, "total": None})
    visitor.answer.get_by_text("No text has come to its end yet.").wait_for()
    assert "not proved yet" in visitor.answer.inner_text()
    assert "3 nodes" in visitor.answer.inner_text()
    call.event({"type": "found", "text": " Rome", "logp": -1.2, "proved": False})
    visitor.answer.get_by_text("≈ 30 %").wait_for()
    call.event({"type": "progress", "done": 4, "total": None})
    visitor.answer.get_by_text("4 nodes").wait_for()
    assert "Rome" in visitor.answer.inner_text()
    stopped(visitor, call)


@pytest.mark.long
@pytest.mark.parametrize(
    ("template", "remedies"),
    [
        ("One:<<select 'a' options=texts>>", ["space", "chat template", "Show"]),
        ("One: <<select 'a' options=texts>>", ["chat template", "Show"]),
        ("<<#joint>>One:<<select 'a' options=texts>><</joint>>", ["space", "Show"]),
    ],
    ids=["words", "space", "inside"],
)
def test_a_slot_of_little_mass_has_the_remedies_of_select(visit, double, template, remedies):
    """A space before the slot, and turns of a chat where the slot stands in no block; each runs the changed template."""
    visitor = visit().choose(TEMPLATE.name).fill(template=template, values='{"texts": ["qqq", "zzz"]}')
    if "joint" in template:
        call = double.expect(TEMPLATE.path)
        record = {"coverage": 0.001, "logp": -9.0, "warnings": [{"code": "coverage", "text": "no"}], "choices": []}
        slot = {"name": "a", "path": "a", "text": "qqq", "record": record}
        call.stream().event({"type": "result", "text": "One:qqq", "slots": [slot]}).end()
    assert visitor.run() == "low-mass"
    buttons = visitor.answer.locator(".note.low-mass button")
    assert [word in text for word, text in zip(remedies, buttons.all_inner_texts(), strict=True)] == [True] * len(
        remedies
    )
    before = visitor.page.evaluate("n_settled")
    buttons.first.click()
    visitor.settled(before)
    sent = double.asked[-1][1]["template"]
    wanted = template.replace("One:<<", "One: <<")
    assert sent == (
        wanted if remedies[0] == "space" else "<<#user>>One:<</user>>\n<<#assistant>>" + template[5:] + "<</assistant>>"
    )


def test_a_model_without_a_chat_template_is_not_asked_in_one(visit):
    """The remedy would be an error."""
    visitor = visit().choose(SELECT.name).fill(prompt="The capital of France is", choices="Paris\nRome")
    for template, n in (('"{{ messages }}"', 2), ("null", 1)):
        visitor.page.unroute_all()
        body = f'{{"tolerance": 0.01, "chat_template": {template}}}'
        visitor.page.route("**/tokenizer_info*", answering(body))
        assert visitor.run() == "low-mass"
        assert visitor.answer.locator(".note.low-mass button").count() == n


def test_the_answers_of_decide_are_a_picture_that_can_be_saved(visit, double):
    """It is the server's, with a bar for each option; options beyond it are in a list of all."""
    visitor = visit().choose(DECIDE.name)
    visitor.field("q.options").first.fill("\n".join(f"option {n}" for n in range(12)))
    assert visitor.run() in ("done", "low-mass")
    svg = visitor.answer.locator("figure.answer-bars svg.sel")
    outline = double.answers[-1]["drawing"]["bars"]["outline"]
    labels = [one["label"] for head in outline for one in head["children"] if one["numbers"]]
    shown = svg.text_content()
    assert all(label in shown for label in labels)
    lists = visitor.answer.locator(".decided > details")
    assert lists.count() == 1
    assert lists.locator("li").count() == 12
    visitor.panel.locator("details.share").evaluate("one => { one.open = true; }")
    with visitor.page.expect_download() as download:
        visitor.panel.get_by_role("button", name="Save SVG").click()
    assert labels[0] in download.value.path().read_text(encoding="utf-8")


def test_several_labels_have_the_mass_of_the_least(visit, double):
    """Each label is asked by itself; what the model would hardly answer is said of all."""
    visitor = visit().choose(DECIDE.name)
    visitor.panel.get_by_role("button", name="Edit as JSON").click()
    question = {"type": "choice", "choices": ["price", "quality"], "multi_label": True}
    visitor.field("q.json").fill(json.dumps({"topic": question}))
    assert visitor.run() in ("done", "low-mass")
    labels = double.answers[-1]["answers"]["topic"]["diagnostics"].values()
    shown = visitor.answer.locator(".facts [data-name='label mass']").get_attribute("value")
    assert float(shown) == min(one["label_mass"] for one in labels)
    rows = visitor.answer.locator(".decided > details[open] li")
    assert [text.split()[0] for text in rows.all_inner_texts()] == ["price", "quality"]
