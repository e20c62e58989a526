"""What a notebook shows of the texts of a grammar."""

from __future__ import annotations

import math
from xml.etree.ElementTree import fromstring

import pytest

from selectrie import BeamSearchParams, Engine, SearchParams
from selectrie.engine.precision_check import SelfCheck
from selectrie.evaluation import Item, evaluate
from selectrie.grammar import Grammar
from selectrie.results.drawing.bars import draw_texts
from selectrie.results.drawing.choices import draw_choices
from selectrie.results.drawing.shapes import to_html
from selectrie.testing import HashModel, TableModel, make_vocabulary

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
SVG = "{http://www.w3.org/2000/svg}"
LETTERS = make_vocabulary([bytes([byte]) for byte in range(256)])
TEXTS = Grammar.from_choices(["cat", "bat"])


def widths_of_bars(picture):
    """The widths of the bars, without the ground that each lies on."""
    return [float(box.get("width")) for box in picture.iter(f"{SVG}rect") if "sel-bar" in box.get("class")]


def texts_in(picture):
    """The texts that are seen, in the order of drawing."""
    return [one.text or "" for one in picture.iter(f"{SVG}text")]


def test_a_bar_for_each_text():
    """Escaped, of a length relative to 1, a beginning marked as one; impossible ones have no bar."""
    rows = [("<b>", math.log(0.5), True), ("a", math.log(0.25), False), ("c", -math.inf, True)]
    picture = fromstring(to_html(draw_texts(rows, title="x < y", tolerance=0.0), before=["x < y"]))  # noqa: S314 - our own
    texts = texts_in(picture)
    assert texts[3:] == ["", "<b>", "50 %", "-0.693", "…", "a", "25 %", "-1.386", "", "c", "0 %", "-inf"]
    assert widths_of_bars(picture) == [120.0, 60.0, 0.0]
    items = [one.text for one in picture.iter("li")]
    assert items[1] == "a, probability 25 %, log-probability -1.386, a beginning"


def test_beam_results_and_draws_are_pictures():
    """Every text of a small grammar is in them, and how sure they are."""
    with Engine(HashModel(1)) as engine:
        found = engine.beam_search("a ", TEXTS, beam=BeamSearchParams(n=2, max_tokens=4))
        drawn = engine.sample("a ", TEXTS, n=2, seed=1, search=SearchParams(max_tokens=4))
    for result in (found, drawn):
        picture = fromstring(result._repr_html_())  # noqa: S314 - our own
        assert len([*picture.iter("li")]) == len(result)
    assert "proved" in found._repr_html_()
    assert "2 exact draws" in drawn._repr_html_()


LONG = " London" * 40


def results():
    """One of each record that a notebook may show, of texts that need to be escaped or cut."""
    texts = [" <b>", " b & a", LONG]
    with Engine(TableModel({}, vocabulary=LETTERS), check=EXACT) as engine:
        plan = engine.tokens(" a", texts)
        found = engine.select(" a", texts)
        yield from (found, plan, plan.trie, found.trie(), engine.score(" a", LONG + "<b>"))
        yield evaluate(engine, [Item(" a<", ("b", "c"), (0,))], metrics=["acc", "brier"])


@pytest.mark.parametrize("place", [0, 2, 3, 4])
def test_a_long_label_is_cut_and_shown_as_a_whole_elsewhere(place):
    """In the drawing it ends in "…"; the whole text is in a title, for the mouse, and in the list, for the keyboard."""
    result = [*results()][place]
    html = to_html(draw_choices(result)) if place == 0 else result._repr_html_()
    picture = fromstring(html)  # noqa: S314 - our own
    assert all(len(one) <= 120 for one in texts_in(picture))
    drawing = next(picture.iter(f"{SVG}svg"))
    assert drawing.get("aria-hidden") == "true"
    assert not any(one.get("tabindex") for one in drawing.iter())
    if place == 0:
        titles = [one.text for one in drawing.iter(f"{SVG}title")]
        whole = "␣" + LONG[1:]
        assert any(whole in one for one in titles)
        assert any(whole in "".join(one.itertext()) for one in picture.iter("li"))


@pytest.mark.parametrize("place", range(6))
def test_repr_is_a_screen_of_lines_to_read(place):
    """What it is, then a line for each of its parts; no field names of nested records, no arrays."""
    lines = repr([*results()][place]).splitlines()
    assert 1 < len(lines) <= 25
    assert all(len(line) <= 200 for line in lines[:1])
    assert not any(word in line for line in lines for word in ("Signature(", "Cost(", "TokenScore(", "array("))


def test_reprs_by_hand():
    """A text token by token, the tokens of a request, the trie as an outline: log 0.5 = -0.693, log 0.25 = -1.386."""
    table = {(): {":": 1.0}, (":",): {"a": 0.5}, (":", "a"): {"b": 0.25}}
    with Engine(TableModel(table), check=EXACT) as engine:
        score, plan = engine.score(":", "ab"), engine.tokens(":", ["ab", "cat", "cab"])
    assert (
        repr(score)
        == "TextScore('ab', logp -2.079, 2 tokens, as greedy decoding)\n  'a'  logp -0.693\n  'b'  logp -1.386"
    )
    assert repr(plan).splitlines()[1:] == [
        "  context  '<bos>' · ':'",
        "  1. 'a' · 'b'",
        "  2. 'cat'",
        "  3. 'ca' · 'b'",
    ]
    assert repr(plan.trie).splitlines() == [
        "TrieView(5 nodes, 3 choices)",
        "  'a'",
        "    'b'",
        "  'ca'",
        "    'b'",
        "  'cat'",
    ]
