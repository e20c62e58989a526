"""What a notebook shows of the texts of a grammar."""

from __future__ import annotations

import math
from xml.etree.ElementTree import fromstring

from selectrie import Beam, Engine, Search
from selectrie.grammar import Grammar
from selectrie.results.html import texts_html
from selectrie.testing import HashModel

TEXTS = Grammar.from_choices(["cat", "bat"])


def test_a_row_for_each_text():
    """Escaped, the likeliest with the longest bar, a beginning marked as one; impossible ones have no bar."""
    rows = [("<b>", -1.0, True), ("a", -1.0 - math.log(2), False), ("c", -math.inf, True)]
    table = fromstring(texts_html(rows, caption="x < y"))  # noqa: S314 - our own
    cells = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")][1:]
    assert cells == [["'<b>'", "", "-1.000"], ["'a' …", "", "-1.693"], ["'c'", "", "-inf"]]
    bars = [bar.get("style").partition(";")[0] for bar in table.iter("div")]
    assert bars == ["width:100.0%", "width:50.0%", "width:0.0%"]


def test_beam_results_and_draws_are_tables():
    """Every text of a small grammar is in them, and how sure they are."""
    with Engine(HashModel(1)) as engine:
        found = engine.beam_search("a ", TEXTS, beam=Beam(n=2, max_tokens=4))
        drawn = engine.sample("a ", TEXTS, n=2, seed=1, search=Search(max_tokens=4))
    for result in (found, drawn):
        table = fromstring(result._repr_html_())  # noqa: S314 - our own
        assert len([*table.iter("tr")]) == 1 + len(result)
    assert "proved" in found._repr_html_()
    assert "2 exact draws" in drawn._repr_html_()
