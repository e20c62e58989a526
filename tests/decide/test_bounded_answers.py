"""Answers from rows that were not read in full: bounds on every number, and abstention by the lower ones."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.types import Cost
from selectrie.decide.answers import DecisionSignature, DecisionUsage, expected, expected_bounds
from selectrie.decide.asks import ask_of
from selectrie.decide.params import DecisionParams
from selectrie.decide.questions import Choice, Option, Predicate, Score
from selectrie.engine.engine import Engine
from selectrie.testing import HashModel
from tests.laws.test_engine_laws import EXACT
from tests.support.hidden_rows import HidingModel

QUESTIONS = {
    "choice": Choice("?", ["b", "bu", "cat"]),
    "predicate": Predicate("?", yes="b", no="bu"),
    "score": Score("?", {1: "b", 2: "bu", 5: "cat"}),
    "texts": Choice("?", [Option("b", texts=["b", "cat"]), Option("bu")]),
}
PROMPTS = ("a ", "bat ")


def answered(question, seed, shares, **params):
    """The answer whose prompts are `PROMPTS`, one for each order, by a model that hides these shares of its rows."""
    params = DecisionParams(**params)
    ask = ask_of(question, params)
    model = HashModel(seed) if shares is None else HidingModel(seed, shares=shares)
    with closing(Engine(model, check=EXACT)) as llm:
        selections = tuple(
            llm.select(prompt, ask.choices(order)) for prompt, order in zip(PROMPTS, ask.orders, strict=False)
        )
    signature = DecisionSignature("base", "00", "state first", "text", "joint", True, 0, selections[0].signature)
    usage = DecisionUsage(1, 1, Cost())
    return ask.answer(selections, first_token_fits=True, signature=signature, usage=usage, conditions={})


def probabilities(answer, kind):
    """The probability of each option, by value."""
    return {True: answer.probability, False: 1 - answer.probability} if kind == "predicate" else answer.probabilities


@pytest.mark.short("2-predicate", "None-*")
@pytest.mark.parametrize("kind", sorted(QUESTIONS))
@pytest.mark.parametrize("orders", [None, 2])
@given(seed=st.integers(0, 10_000), shares=st.sampled_from([(0.0, 0.5), (0.3, 1.0), (1.0,)]))
def test_bounds_contain_the_answer_of_the_whole_rows(kind, orders, seed, shares):
    """Probabilities, label mass and score of one order and of the mean of two; an exact answer has no bounds."""
    exact, found = (answered(QUESTIONS[kind], seed, one, permutations=orders) for one in (None, shares))
    assert exact.bounds is None
    if found.bounds is None:
        assert probabilities(found, kind) == probabilities(exact, kind)
        assert (found.label_mass, found.confidence, found.margin) == (exact.label_mass, exact.confidence, exact.margin)
        return
    assert list(found.bounds.probabilities) == list(probabilities(exact, kind))
    for value, p in probabilities(exact, kind).items():
        low, high = found.bounds.probabilities[value]
        assert low <= p + 1e-15
        assert p <= high + 1e-15
        assert low <= probabilities(found, kind)[value] + 1e-15
    low, high = found.bounds.label_mass
    assert found.label_mass == low <= exact.label_mass <= high
    assert found.confidence <= exact.confidence + 1e-15 or found.value != exact.value
    if kind == "score":
        low, high = found.bounds.score
        assert low - 1e-12 <= exact.score <= high + 1e-12
    if found.value == exact.value:
        assert found.margin <= exact.margin + 1e-12
    else:
        assert found.is_tie


@given(data=st.data(), n=st.integers(1, 5))
def test_expected_bounds_are_reached_and_never_passed(data, n):
    """Against many probabilities within their bounds that sum to 1, and against each end."""
    values = data.draw(st.lists(st.integers(-5, 5), min_size=n, max_size=n))
    p = np.random.default_rng(data.draw(st.integers(0, 999))).dirichlet(np.ones(n), 2)
    between = list(zip(p.min(axis=0).tolist(), p.max(axis=0).tolist(), strict=True))
    low, high = expected_bounds(values, between)
    for row in (*p, p.mean(axis=0)):
        assert low - 1e-12 <= expected(values, row.tolist()) <= high + 1e-12
    if n == 2:  # both are ends
        ends = sorted(expected(values, row.tolist()) for row in p)
        np.testing.assert_allclose([low, high], ends, atol=1e-12)


def test_expected_bounds_by_hand():
    """The mass that lower bounds leave goes to the lowest numbers that can hold it, or to the highest."""
    between = [(0.1, 0.2), (0.2, 0.5), (0.3, 0.9)]
    assert expected_bounds([0, 1, 2], between) == pytest.approx((0.5 + 2 * 0.3, 0.2 + 2 * 0.7))


def test_an_answer_abstains_if_a_lower_bound_is_too_low():
    """All of the row of the healed bytes is hidden: the label mass may be as low as its bound."""
    found = answered(QUESTIONS["choice"], 1, (1.0,), min_label_mass=0.9)
    low, high = found.bounds.label_mass
    assert low < 0.9 <= high
    assert found.abstained == f"label mass may be {low:.4g}, which is below 0.9"
    written = json.loads(json.dumps(found.to_dict()))
    assert written["bounds"]["label_mass"] == [low, high]
    assert [one["value"] for one in written["bounds"]["probabilities"]] == ["b", "bu", "cat"]
    assert "bounds" not in answered(QUESTIONS["choice"], 1, None).to_dict()
