"""What a model does not say of its rows: every bound contains the value of the model that says all.

Every number that is no bound is that model's, to the last bit, and what is proved is true of it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from selectrie.engine.engine import Engine
from selectrie.errors import RequestError
from selectrie.options import ScoringRule, SearchParams
from selectrie.testing import HashModel
from tests.laws.test_engine_laws import CLOSE, EXACT, WIDE, Request, letters, requests
from tests.support.hidden_rows import HidingModel, served_engine
from tests.support.n_examples import n_examples

SHARES = st.sampled_from([(0.0,), (0.0, 0.5), (0.3,), (0.0, 0.9, 1.0), (1.0,)])


def answer(request, model, *, method="exhaustive", tolerance=None):
    """The answer to a request by a fresh engine with this model; it is a served one if it has a tolerance."""
    opened = Engine(model, check=EXACT) if tolerance is None else served_engine(model, tolerance)
    with closing(opened) as engine:
        return request.answer_of(engine, replace(request.search, method=method))


def exact_and_bounded(request, shares, method="exhaustive"):
    """The answers of the model that says all, scored in full, and of the one that hides tokens."""
    try:
        exact = answer(request, HashModel(request.seed, sharpness=request.sharpness, limits=WIDE))
        hiding = HidingModel(request.seed, shares=shares, sharpness=request.sharpness, limits=WIDE)
        return exact, answer(request, hiding, method=method)
    except RequestError:
        reject()


def assert_between(low, value, high):
    """A value lies between its bounds, and is both of them, bit by bit, where they are equal."""
    low, value, high = (np.asarray(one, dtype=np.float64) for one in (low, value, high))
    assert (low <= value).all()
    assert (value <= high).all()


def check_values(exact, found):
    """Log-probabilities, coverage and probabilities are values or bounds on them."""
    ours, theirs = found.choices, exact.choices
    assert_between(ours.logp, theirs.logp, ours.logp_upper)
    assert_between(ours.score, theirs.score, np.inf)
    assert_between(ours.probability_low, theirs.probability, ours.probability_high)
    high = found.coverage if found.coverage_high is None else found.coverage_high
    assert_between(found.coverage, exact.coverage, high)
    assert_between(found.log_heal, exact.log_heal, found.log_heal + found.heal_gap)
    assert exact.log_heal + exact.heal_gap <= found.log_heal + found.heal_gap + 1e-12
    known = ~np.isnan(ours.logp_local)
    np.testing.assert_array_equal(ours.logp_local[known], theirs.logp_local[known])
    assert found.greedy_index in (None, exact.greedy_index)


def check_first(exact, found, k):
    """The same first k, in the same order; those without any probability have none."""
    first, expected = (
        [choice.index for choice in one.top(k, distinct=True) if choice.score not in (None, -np.inf)]
        for one in (found, exact)
    )
    assert first == expected


def check_winner(exact, found, k):
    """Proved: the same first k in the same order. The margin of a winner is a lower bound."""
    if found.certificate.proved:
        check_first(exact, found, k)
        assert exact.is_tie == found.is_tie or k > 1
    else:
        assert found.certificate.reason
    if found.index == exact.index:
        assert found.margin <= exact.margin
    else:
        assert found.margin <= 0
        assert not found.certificate.proved
        assert found.is_tie


def check_proof(exact, found, k):
    """Proved: the same first k, but for scores that bounds within `CLOSE` of each other may exchange."""
    if found.certificate.proved:
        scores = exact.choices.score
        first, expected = (scores[[choice.index for choice in one.top(k, distinct=True)]] for one in (found, exact))
        np.testing.assert_allclose(first, expected, atol=CLOSE, rtol=0)


@settings(max_examples=n_examples(150))
@given(request=requests(), shares=SHARES)
def test_bounds_contain_what_the_whole_rows_say(request, shares):
    """Every terminator, boundary, rule and prior, scored in full."""
    exact, found = exact_and_bounded(request, shares)
    check_values(exact, found)
    check_winner(exact, found, request.search.k if request.search.stop != "all" else len(request.choices))


UNKNOWN_HEAL = Request(  # nothing covers the healed space, as far as is known, and the lengths differ
    seed=2147483647,
    prompt="a",
    choices=("a", " ", "t", "aa", "aaa"),
    search=SearchParams(width=1),
    sharpness=0.0,
    terminator="unless-continued",
    rule=ScoringRule("token_mean"),
    prior=(0.5, 0.0, 0.0, 0.0, 0.0),
)


@settings(max_examples=n_examples(150))
@example(request=UNKNOWN_HEAL, shares=(0.0, 0.9, 1.0))
@given(request=requests(), shares=SHARES)
def test_a_search_proves_nothing_that_the_whole_rows_contradict(request, shares):
    """Best first, with every budget and stop: what is open is bounded too."""
    exact, found = exact_and_bounded(request, shares, "best_first")
    ours, theirs = found.choices, exact.choices
    done = ours.finished
    assert (theirs.logp <= ours.logp_upper + CLOSE).all()
    assert (ours.logp[done] <= theirs.logp[done] + CLOSE).all()
    assert (ours.probability_low <= theirs.probability + CLOSE).all()
    assert (ours.probability_high >= theirs.probability - CLOSE).all()
    assert found.coverage <= exact.coverage * (1 + CLOSE)
    high = found.coverage + found.certificate.open_mass if found.coverage_high is None else found.coverage_high
    assert exact.coverage <= high * (1 + CLOSE) + 1e-9
    check_proof(exact, found, request.search.k)


LENGTHS_MOVE_APART = Request(  # the search ended too early if the healed bytes counted as known
    seed=493763,
    prompt="c a ",
    choices=letters("rraa/tccar/caa/abbb/rat/crr/b/rbrt"),
    search=SearchParams(width=1),
    terminator="none",
    rule=ScoringRule("char_mean"),
)
END_WITH_BOUNDS = Request(  # it ended too early if the upper bound on the end of `a` counted as its score
    seed=537991,
    prompt="a",
    choices=letters("bcrc/a/bct/rcra/t/tb/rctrr/bcrca/b/baa/ractc"),
    search=SearchParams(width=1),
    sharpness=3.0,
    terminator="unless-continued",
)


@example(request=LENGTHS_MOVE_APART, shares=(1.0,))
@example(request=END_WITH_BOUNDS, shares=(0.0, 0.9))
@settings(max_examples=n_examples(80))
@given(request=requests(), shares=SHARES)
def test_a_search_without_a_budget_proves_what_full_scoring_proves(request, shares):
    """It looks on where what is not known of healed bytes, baselines and ends may move two scores against each other."""
    request = replace(request, search=replace(request.search, budget_nodes=None, stop="best"))
    try:
        full, found = (
            answer(
                request,
                HidingModel(request.seed, shares=shares, sharpness=request.sharpness, limits=WIDE),
                method=method,
            )
            for method in ("exhaustive", "best_first")
        )
    except RequestError:
        reject()
    if full.certificate.proved:
        assert found.certificate.proved
        check_proof(full, found, request.search.k)


@pytest.mark.parametrize("method", ["exhaustive", "best_first"])
@settings(max_examples=n_examples(60))
@given(request=requests(), shares=SHARES, tolerance=st.sampled_from([0.01, 0.3, 2.0]), seed=st.integers(0, 99))
def test_a_served_model_proves_what_no_answer_within_its_tolerance_changes(method, request, shares, tolerance, seed):
    """Each row of a second model differs by up to the tolerance, as another answer to the same question may."""
    how = {"sharpness": request.sharpness, "limits": WIDE}
    try:
        served = HidingModel(request.seed, shares=shares, precision="remote", **how)
        found = answer(request, served, method=method, tolerance=tolerance)
        other = answer(request, Moved(request.seed, tolerance, seed, **how))
    except RequestError:
        reject()
    assert found.certificate.n_rescored == 0
    if found.certificate.proved:
        assert not found.is_tie
        check_first(other, found, request.search.k if request.search.stop != "all" else len(request.choices))


class Moved(HashModel):
    """A `HashModel` whose log-probabilities are moved by up to `nats`, and normalized."""

    def __init__(self, seed, nats, moved, **how):
        super().__init__(seed, **how)
        own = self._row_of

        def row_of(path):
            row = own(path)
            rng = np.random.default_rng([moved, *path])
            return (row + rng.uniform(-nats / 2, nats / 2, len(row))).astype(np.float32)

        self._row_of = row_of
