"""What tokens left open that spell a part of the healed bytes: bounds on log-probabilities, coverage and label mass."""

from __future__ import annotations

import math
from contextlib import closing

import pytest

from selectrie import Grammar
from selectrie.decide.answers import mass_bounds
from selectrie.decide.asks import trust_fields
from selectrie.engine.connect import PathRuntime
from selectrie.engine.engine import Engine
from selectrie.testing import PathsOf, TableModel, make_vocabulary
from tests.laws.test_engine_laws import EXACT

VOCABULARY = make_vocabulary([b"a", b"b", b"x", b"y", b"ab", b"abx"])
TABLE = {
    (): {"abx": 0.10, "ab": 0.10, "a": 0.80},
    ("a",): {"b": 0.9, "x": 0.1},
    ("ab",): {"y": 0.4, "x": 0.6},
    ("abx",): {"y": 1.0},
}
HEALED = math.log(0.1 + 0.1 + 0.8 * 0.9)
"""The true value: after `a`, which is on no path, the text may go on with `b`."""


def engine(kind):
    model = TableModel(TABLE, vocabulary=VOCABULARY)
    return closing(
        Engine(model, check=EXACT) if kind == "local" else Engine(PathRuntime(PathsOf(model, hides_rest=True)))
    )


@pytest.mark.parametrize("kind", ["local", "served"])
def test_bounds_of_choices_and_coverage_hold_the_true_values(kind):
    """By hand: x is 0.1 and y is 0.04 of the text, both given `ab`."""
    with engine(kind) as llm:
        found, text = llm.select("ab", ["x", "y"]), llm.score("ab", "x")
        alone = llm.select_many([("ab", ["x", "y"])] * 2)[1]
    assert found.heal_gap > 1
    for choice, p in zip(found.choices, (0.1, 0.04), strict=True):
        assert choice.logp_lower <= math.log(p) - HEALED <= choice.logp_upper
        assert choice.logp_lower == choice.logp - found.heal_gap
        assert not choice.is_known
    assert text.logp_lower <= math.log(0.1) - HEALED <= text.logp_upper
    assert text.logp_lower == text.logp - text.heal_gap
    assert "healed bytes" in text.notes[-1]
    assert found.coverage <= 0.14 / math.exp(HEALED) <= found.coverage_high
    assert "healed bytes" in found.notes[-1]
    assert alone.choices == found.choices
    assert (alone.coverage, alone.coverage_high, alone.notes) == (found.coverage, found.coverage_high, found.notes)
    assert found.to_dict()["choices"][0]["logp_lower"] == found.choices[0].logp_lower
    assert " to " in repr(found)


@pytest.mark.parametrize("kind", ["local", "served"])
def test_a_search_of_a_grammar_bounds_its_coverage(kind):
    """The prompt is moved back in the same way, so what `a` may lead to is open there too."""
    with engine(kind) as llm:
        found = llm.select("ab", grammar=Grammar.from_regex("[xy]"))
    assert found.coverage <= 0.14 / math.exp(HEALED) <= found.coverage_high + 1e-6
    assert found.coverage_high == pytest.approx(found.coverage * math.exp(found.heal_gap), abs=1e-6)


def test_a_decision_abstains_by_the_lower_bound_of_its_label_mass():
    """The label mass may be 0.15 although it would be 0.7 by the lower bound on the healed bytes."""
    with engine("local") as llm:
        found = llm.select("ab", ["x", "y"])
    trust = trust_fields([found], 0.9, 0.0, 0.3)
    assert trust["label_mass"] < 0.16
    assert trust["abstained"] == "label mass may be 0.14, which is below 0.3"
    low, high = mass_bounds([found])
    assert low <= 0.14 / math.exp(HEALED) <= high


def test_nothing_is_a_bound_where_every_path_covers_the_healed_bytes():
    """No token spells a part of `x`, so all of it is known."""
    with engine("local") as llm:
        found = llm.select([0], ["ab", "abx"])
    assert (found.heal_gap, found.coverage_high, found.notes) == (0.0, None, ())
    assert all(choice.is_known and choice.logp_lower == choice.logp for choice in found.choices)
