"""Texts of others stay texts: scripts, invisible characters, other directions, and sizes that nobody expects."""

from __future__ import annotations

import json

import pytest

from tests.page.tabs import CASES, RANK, SELECT

ATTACKS = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    '"><svg onload=window.hit=1>',
    "javascript:window.hit=1",
    "{{constructor.constructor('window.hit = 1')()}}",
    "</textarea></title></style><script>window.hit = 1</script>",
)
EVERYTHING = " ".join(ATTACKS)
"""All of them in one text, so that one run tries each in each field."""


def text_fields(visitor):
    """The names of all fields of the chosen tab into which text is typed; what is folded away is opened."""
    visitor.panel.evaluate("panel => panel.querySelectorAll('details').forEach(one => { one.open = true; })")
    return visitor.panel.evaluate(
        """panel => {
            const all = [...panel.querySelectorAll('textarea[name], input[name]:not([type=checkbox], [type=radio])')];
            return [...new Set(all.filter(one => one.checkVisibility()).map(one => one.name))];
        }"""
    )


def scripted(value):
    """An answer with every text in it replaced by one with a script, numbers left as they are."""
    if isinstance(value, dict):
        kept = ("type", "kind", "tag", "attributes", "name", "rule", "terminator")
        return {name: one if name in kept else scripted(one) for name, one in value.items()}
    if isinstance(value, list):
        return [scripted(one) for one in value]
    return EVERYTHING if isinstance(value, str) else value


@pytest.mark.parametrize(
    "is_thorough", [False, pytest.param(True, marks=pytest.mark.long)], ids=["all_at_once", "one_by_one"]
)
@pytest.mark.parametrize("tab", CASES)
def test_a_script_in_any_field_stays_text(visit, double, tab, is_thorough):
    """Nothing that is typed becomes an element: in the form, in what is run with it, and in the error that names it."""
    visitor = visit().choose(tab.name)
    names = text_fields(visitor)
    assert names
    for name in names:
        visitor.field(name).first.fill(EVERYTHING)
        if is_thorough:
            visitor.run()
            visitor.field(name).first.fill("")
    visitor.run()
    assert visitor.page.evaluate("window.hit") is None
    assert visitor.page.locator("main script, main img, main [onload], main [onerror]").count() == 0


@pytest.mark.parametrize("tab", CASES)
def test_a_script_in_an_answer_stays_text(visit, double, tab):
    """Texts of an answer, names and messages of the server are shown as characters."""
    visitor = visit().choose(tab.name)
    visitor.run()
    events, answer = double.events, double.answers[-1]
    call = double.expect(tab.path)
    if events:
        call.stream()
        for event in events:
            call.event(scripted(event))
        call.end()
    else:
        call.answer(scripted(answer))
    visitor.run()
    double.expect(tab.path).fail(400, EVERYTHING, EVERYTHING, EVERYTHING)
    visitor.run()
    assert "<script>" in visitor.answer.inner_text()
    assert visitor.page.evaluate("window.hit") is None
    assert visitor.page.locator("main script, main img, main [onload], main [onerror]").count() == 0


def test_a_drawing_has_only_what_drawings_are_made_of(visit, double):
    """An element or an attribute that could run, load or restyle something is left out, with what is in it."""
    visitor = visit().choose(RANK.name).fill(**RANK.fields)
    visitor.run()
    answer = double.answers[-1]

    def shape(tag, attributes, *children):
        return {"tag": tag, "attributes": {"class": "planted", **attributes}, "text": EVERYTHING, "children": children}

    inner = shape("rect", {"onclick": "window.hit = 1", "style": "fill: red", "href": "javascript:window.hit=1"})
    tags = ("a", "script", "style", "image", "use", "foreignObject", "animate", "set", "SCRIPT")
    hostile = [shape(tag, {"href": "http://192.0.2.1/", "xlink:href": "data:text/html,x"}, inner) for tag in tags]
    answer["drawing"]["trie"]["shapes"] += [shape("g", {"onload": "window.hit = 1"}, inner), *hostile]
    double.expect(RANK.path).stream().event({**answer, "type": "result"}).end()
    visitor.run()
    planted = visitor.answer.locator("figure.trie .planted")
    assert planted.evaluate_all("all => all.map(one => one.localName)") == ["g", "rect"]
    assert planted.evaluate_all("all => all.flatMap(one => one.getAttributeNames())") == ["class", "class"]
    planted.last.dispatch_event("click")
    assert visitor.page.evaluate("window.hit") is None


def test_what_is_typed_is_what_is_sent(visit, double):
    """Spaces, tabs, line ends in choices, emoji and characters without a glyph reach the server as they were typed."""
    prompt = "  two spaces, a tab \t, a line\nand 👩‍👩‍👧‍👦 é é \u202e\u200b\ufeff שלום "
    visitor = visit().choose(SELECT.name).fill(prompt=prompt, choices=" a\\nb\n\tc\n d\\\\n\n 👍🏽 \nשלום\n")
    visitor.run()
    _, body = double.asked[-1]
    assert body["prompt"] == prompt
    assert body["choices"] == [" a\nb", "\tc", " d\\n", " 👍🏽 ", "שלום"]


def test_invisible_characters_are_shown(visit):
    """Spaces at the ends, line ends, tabs and controls of direction have a sign; the text beside is not turned round."""
    visitor = visit().choose(SELECT.name).fill(prompt="One of them:", choices=" a\\n\n\tb \nab\u202ecd\nשלום abc")
    visitor.run()
    shown = visitor.answer.inner_text()
    for sign in ("␣a⏎", "⇥b␣", "ab‹U+202E›cd", "שלום abc"):
        assert sign in shown
    assert "\u202e" not in visitor.answer.inner_text()
    assert "\u202e" not in visitor.answer.evaluate('answer => answer.innerHTML.replaceAll(/title="[^"]*"/g, \'\')')
    texts = visitor.answer.locator("table.choices th[scope=row]")
    assert texts.evaluate_all("all => all.every(one => one.querySelector('bdi'))")


def test_bytes_that_are_no_character_are_shown(visit):
    """A token that ends within a character is shown as its bytes; a choice that looks like an escape stays as it is."""
    visitor = visit().choose(SELECT.name).fill(prompt="One of them:", choices=" שלום\n \\\\xe2")
    visitor.run()
    assert "‹d7›" in visitor.answer.locator("figure.trie").inner_text()
    assert "␣\\xe2" in visitor.answer.locator("table.choices").inner_text()


def test_ten_thousand_choices_show_two_hundred_and_a_filter(visit, double):
    """All are sent, 200 rows stand there, and a filter finds any other one; the page stays small."""
    n_choices = 10_000
    visitor = visit().choose(RANK.name).fill(prompt="A number:")
    visitor.paste("choices", "\n".join(f" {number}" for number in range(n_choices)))
    call = double.expect(RANK.path)
    visitor.press_run()
    body = call.wait().body
    assert len(body["choices"]) == n_choices
    call.stream().event({**many(body["choices"]), "type": "result"}).end()
    visitor.answer.get_by_label("Filter").wait_for()
    assert visitor.answer.locator("table.choices tbody tr").count() == 200
    visitor.answer.get_by_label("Filter").fill("9876")
    assert visitor.answer.locator("table.choices tbody tr").count() == 1
    assert "9876" in visitor.answer.locator("table.choices tbody").inner_text()
    assert visitor.page.evaluate("document.querySelectorAll('*').length") < 20_000


def many(choices):
    """The answer to a rank of many choices, the first of which is the best: each half as probable as the one before, down to a floor."""
    total = sum(max(2.0**-n, 1e-9) for n in range(1, len(choices) + 1))
    rows = [
        {
            "text": text, "logp": -float(n), "score": -float(n), "probability": max(2.0**-n, 1e-9) / total,
            "probability_low": max(2.0**-n, 1e-9) / total, "probability_high": max(2.0**-n, 1e-9) / total,
            "logp_upper": -float(n), "logp_local": None, "duplicate_of": None, "tokens": [],
        }
        for n, text in enumerate(choices, 1)
    ]  # fmt: skip
    return {
        "kind": "selection", "winner": 0, "text": choices[0], "logp": -1.0, "score": -1.0, "is_tie": False,
        "coverage": 0.5, "greedy": 0, "rule": "joint", "terminator": "none", "choices": rows, "top_tokens": [],
        "order": list(range(len(choices))), "certificate": {"proved": True},
        "diagnostics": {"rows": 7, "rows_one_by_one": 9, "model_calls": 1},
        "signature": {"tolerance": 0.005, "precision": "exact", "model": "m"}, "model": "m",
    }  # fmt: skip


def test_a_megabyte_is_sent_whole(visit, double):
    """A prompt of a megabyte arrives as it is; the page answers meanwhile, and what the server refuses is an error."""
    prompt = "word " * 209_716
    visitor = visit().choose(SELECT.name).paste("prompt", prompt)
    assert visitor.run() == "error"
    assert double.asked[-1][1]["prompt"] == prompt
    assert len(json.dumps(prompt)) > 1 << 20
    assert "prompt" in visitor.answer.inner_text()
    visitor.field("choices").fill(" c\n d")
    assert visitor.field("choices").input_value() == " c\n d"
