"""What a notebook shows of the texts of a grammar."""

from __future__ import annotations

import math
from xml.etree.ElementTree import fromstring

import pytest

from selectrie import BeamSearchParams, Engine, SearchParams
from selectrie.engine.precision_check import SelfCheck
from selectrie.evaluation import Item, evaluate
from selectrie.grammar import Grammar
from selectrie.results.plain import texts_html
from selectrie.testing import HashModel, TableModel, make_vocabulary

EXACT = SelfCheck(batch_multiple=1, moved=0.0, tolerance=0.0)
LETTERS = make_vocabulary([bytes([byte]) for byte in range(256)])
TEXTS = Grammar.from_choices(["cat", "bat"])


def places_of_bars(table):
    """The boxes that hold a bar each."""
    return [box for box in table.iter("div") if len(box) and box[0].tag == "div"]


def test_a_row_for_each_text():
    """Escaped, the likeliest with the longest bar, a beginning marked as one; impossible ones have no bar."""
    rows = [("<b>", -1.0, True), ("a", -1.0 - math.log(2), False), ("c", -math.inf, True)]
    table = fromstring(texts_html(rows, caption="x < y"))  # noqa: S314 - our own
    cells = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")][1:]
    assert cells == [["'<b>'", "", "-1.000"], ["'a' …", "", "-1.693"], ["'c'", "", "-inf"]]
    bars = [place[0].get("style").partition(";")[0] for place in places_of_bars(table)]
    assert bars == ["width:100.0%", "width:50.0%", "width:0.0%"]


def test_beam_results_and_draws_are_tables():
    """Every text of a small grammar is in them, and how sure they are."""
    with Engine(HashModel(1)) as engine:
        found = engine.beam_search("a ", TEXTS, beam=BeamSearchParams(n=2, max_tokens=4))
        drawn = engine.sample("a ", TEXTS, n=2, seed=1, search=SearchParams(max_tokens=4))
    for result in (found, drawn):
        table = fromstring(result._repr_html_())  # noqa: S314 - our own
        assert len([*table.iter("tr")]) == 1 + len(result)
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


@pytest.mark.parametrize("place", range(6))
def test_a_long_label_leaves_the_bars_their_width(place):
    """Each bar stands in a box of a fixed width, each label in one that cuts it and shows the whole where the mouse points."""
    result = [*results()][place]
    table = fromstring(result._repr_html_())  # noqa: S314 - our own
    assert all(box.get("style") == "width:12em" for box in places_of_bars(table))
    labels = [box for box in table.iter("div") if box.get("title") is not None]
    assert labels
    for box in labels:
        assert {"overflow:hidden", "text-overflow:ellipsis"} <= set(box.get("style").split(";"))
        assert "max-width:" in box.get("style")
        assert box.get("title") == "".join(box.itertext())
    widths = {len([*line]) for line in table.iter("tr") if "colspan" not in str(line[0].attrib)}
    assert len(widths) == 1


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
        == "TextScore('ab', logp=-2.0794, 2 tokens, as greedy decoding)\n  'a'  logp=-0.693\n  'b'  logp=-1.386"
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
