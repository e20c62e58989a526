"""Rows that decisions plan: as many as are then evaluated from an empty memory, and refused before the first."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selectrie import Choice, DecisionParams, Option
from selectrie.errors import OptionError, TooManyRowsError
from tests.support.deciding import QUESTIONS, STATE, fake
from tests.support.n_examples import n_examples

TEXTS = st.text(st.sampled_from("ab "), min_size=1, max_size=6).filter(str.strip)
CHOICES = st.builds(
    Choice,
    TEXTS,
    st.lists(st.builds(Option, TEXTS, description=TEXTS), min_size=3, max_size=5, unique_by=lambda one: one.value),
)
PARAMS = st.builds(
    DecisionParams,
    scoring=st.sampled_from(["text", "letters"]),
    rule=st.sampled_from(["joint", "token_mean", "pmi", "calibrated"]),
    permutations=st.sampled_from([None, 3]),
    layout=st.sampled_from(["state first", "questions first"]),
)


def planned(questions, params) -> int:
    """The number of rows that a decision plans."""
    with fake() as llm:
        with pytest.raises(TooManyRowsError) as caught:
            llm.decide(STATE, questions, params=params, max_rows=1)
        assert llm._model.calls == 0
        assert caught.value.max_rows == 1
        return caught.value.planned_rows


@settings(max_examples=n_examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(questions=st.dictionaries(TEXTS, CHOICES, min_size=1, max_size=3), params=PARAMS)
def test_what_is_planned_is_what_is_evaluated(questions, params):
    """With nothing cached, permutations, baselines of the rules and shared beginnings included."""
    n_rows = planned(questions, params)
    with fake() as llm:
        llm.decide(STATE, questions, params=params, max_rows=n_rows)
        assert llm._model.rows == n_rows
        llm.trim()
        with pytest.raises(TooManyRowsError):
            llm.decide(STATE, questions, params=params, max_rows=n_rows - 1)


def test_a_state_counts_once():
    """Four hundred questions about it plan hardly more than their own rows."""
    question = QUESTIONS["angry"]
    one, two = (planned({str(n): question for n in range(k)}, None) for k in (1, 2))
    assert two - one < 10, "the same question again plans only its options"
    many = {str(n): Choice(f"Is it number {n:03}?", ["yes", "no"]) for n in range(400)}
    first, both = planned({"0": many["0"]}, None), planned(many, None)
    assert both < first + 400 * (first - len(STATE))


def test_the_limit_is_checked():
    """It is a number of rows."""
    with fake() as llm, pytest.raises(OptionError, match="max_rows"):
        llm.decide(STATE, QUESTIONS, max_rows=0)
