"""Short ways to read results: the only text, probabilities by text, data frames, and what a notebook shows."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Literal

import pytest

from selectrie import Choice, Predicate, SearchParams
from selectrie.errors import OptionError
from tests.support.deciding import fake

LONG = "word " * 60


@pytest.fixture(scope="module")
def llm():
    """An engine on a fake."""
    with closing(fake()) as made:
        yield made


def test_the_only_text_of_a_generation(llm):
    """Where there are several, the error says how to read one."""
    assert llm.generate("a", seed=1, max_tokens=3).text == llm.generate("a", seed=1, max_tokens=3)[0].text
    for several in (llm.generate("a", n=2, max_tokens=1), llm.generate(["a", "b"], max_tokens=1)):
        with pytest.raises(OptionError, match=r"cannot be combined with 2 sequences; read `texts`, .*`\[0\]\.text`"):
            _ = several.text


def test_probabilities_by_text(llm):
    """They are those of the choices, in the caller's order, each text once."""
    found = llm.select("a", ["b", "c", "b"])
    assert list(found.probabilities) == ["b", "c"]
    assert found.probabilities == {one.text: one.probability for one in found.choices}
    assert sum(found.probabilities.values()) == pytest.approx(1)
    assert found.proved is found.certificate.proved is True


def test_a_selection_iterates_over_its_choices(llm):
    """Best first; after `rank` with a number, over as many; the log-probabilities are in the caller's order."""
    choices = ["b", "cd", "a", "ca"]
    found, ranked, all_ranked = llm.select("x", choices), llm.rank("x", choices, k=2), llm.rank("x", iter(choices))
    assert tuple(found) == found.ranked
    assert (len(found), len(all_ranked), found.text in found, "x" in found) == (4, 4, True, False)
    assert (tuple(ranked), len(ranked)) == (ranked.top(2), 2)
    assert [one.text in ranked for one in all_ranked] == [True, True, False, False]
    assert ranked.top(1)[0] in ranked
    assert len(llm.rank("x", choices, search=SearchParams(k=9))) == 4
    assert all_ranked.logprobs == tuple(one.logp for one in all_ranked.choices)
    assert all_ranked.logprobs[all_ranked.index] == all_ranked.logp


def test_scores_and_extractions_iterate_over_their_parts(llm):
    """Tokens of a text; values of a type, best first."""
    score = llm.score("x", "bcd")
    assert tuple(score) == score.tokens
    found = llm.extract("x", Literal["b", "c", "a"], search=SearchParams(stop="all"))
    assert (tuple(found), len(found), next(iter(found)).value) == (found.top(3), 3, found.value)


def test_what_is_known_by_bounds_is_no_number(llm):
    """A search with a budget of one node leaves choices open: NaN, with both bounds in the frame."""
    found = llm.select("a", [f"{a}{b}" for a in "bcde" for b in "xyz"], search=SearchParams(budget_nodes=1))
    assert not found.proved
    open_ones = [one.text for one in found.choices if one.probability_high - one.probability_low > 1e-4]
    assert open_ones
    assert [text for text, p in found.probabilities.items() if math.isnan(p)] == open_ones


def test_results_are_data_frames(llm):
    """A line for each choice, token, sequence or question, with values as they came."""
    pytest.importorskip("pandas")
    found = llm.rank("a", [7, 8])
    frame = found.to_pandas()
    assert list(frame.value) == [7, 8]
    assert list(frame.text) == ["7", "8"]
    assert list(frame.probability) == list(found.probabilities.values())
    drawn = llm.generate("a", n=2, seed=1, max_tokens=2)
    assert list(drawn.to_pandas().text) == list(drawn.texts)
    scored = llm.score("a", "bc")
    assert scored.to_pandas().logp.sum() == pytest.approx(scored.logp)
    decision = llm.decide("s", {"x": Choice("q", [1, 2]), "y": Predicate("It is.")})
    lines = decision.to_pandas().set_index("question")
    assert list(lines.value) == [decision["x"].value, decision["y"].value]
    assert dict(lines.probability) == {name: p[decision[name].value] for name, p in decision.probabilities.items()}


def test_long_texts_do_not_overflow_a_notebook(llm):
    """Reprs are cut, and pictures have a limit of tokens, and of options for each question."""
    drawn = llm.generate("a", choices=[LONG], max_tokens=400)
    assert drawn.text == LONG
    assert max(map(len, repr(drawn).splitlines())) < 260
    assert len(drawn._repr_html_()) < 80_000
    assert "more tokens" in drawn._repr_html_()
    assert max(map(len, repr(llm.select("a", [LONG, "b"])).splitlines())) < 200
    decision = llm.decide("s", {"x": Choice("q", [str(number) for number in range(100)])})
    assert len(repr(decision)) < 300
    assert len(decision._repr_html_()) < 12_000
