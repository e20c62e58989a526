"""Near ties that are scored again in another layout, and ties that only rounding parts."""

from __future__ import annotations

import json
from contextlib import closing
from contextvars import copy_context
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from selectrie.core.numerics import ROUNDED_SUM, Interval
from selectrie.core.types import Cost, SelfCheck
from selectrie.decoding.scoring.paths import posteriors
from selectrie.decoding.scoring.rules import Lengths, posterior, rounding_of, score_choices
from selectrie.engine.engine import Engine
from selectrie.engine.scheduler.job import charge_to
from selectrie.errors import RequestError
from selectrie.options import PromptParams, ScoringRule
from selectrie.testing import HashModel, numbered_vocabulary
from tests.laws.test_engine_laws import EXACT, WIDE, requests
from tests.support.n_examples import n_examples

SOME_ARE_CLOSE = SelfCheck(batch_multiple=1, moved=0.01, tolerance=0.04, n_rows=100)


class OtherLayout(HashModel):
    """A `HashModel` whose rows are moved, by up to 0.02 nats, in every new context."""

    def new_context(self, *args, **how):
        context = super().new_context(*args, **how)
        own = context._row_of

        def row_of(path):
            row = own(path)
            moves = np.random.default_rng([7, *path]).uniform(-0.01, 0.01, len(row))
            return (row + moves).astype(np.float32)

        context._row_of = row_of
        return context


@settings(max_examples=n_examples(60))
@given(requests())
def test_the_coverage_is_that_of_the_choices_as_they_are_shown(request):
    """Where some choices were scored again, the sum has their new values."""
    if request.boundary == "harness":
        request = replace(request, boundary="heal")
    try:
        with closing(Engine(OtherLayout(request.seed, sharpness=0.3, limits=WIDE), check=SOME_ARE_CLOSE)) as engine:
            result = request.answer_of(engine, replace(request.search, method="exhaustive", budget_nodes=None))
    except RequestError:
        reject()
    table = result.choices
    total = np.exp(table.logp[table.distinct]).sum()  # given the least probability that the healed bytes may have
    assert result.coverage == pytest.approx(total * np.exp(-result.heal_gap), rel=1e-12)
    assert (result.coverage_high is None) == (result.heal_gap == 0)
    if result.coverage_high is not None:
        assert result.coverage_high == pytest.approx(total + result.certificate.open_mass, rel=1e-12)


class Paid:
    """An account that adds up costs and reused tokens."""

    def __init__(self) -> None:
        self.cost, self.n_reused = Cost(), 0

    def note_admission(self) -> None:
        """Do nothing."""

    def add_cost(self, cost: Cost) -> None:
        """Add a cost."""
        self.cost += cost

    def add_reused(self, n_tokens: int) -> None:
        """Add tokens."""
        self.n_reused += n_tokens


def test_an_account_pays_for_the_second_scoring():
    """It has the cost of the result, with what was scored again; a context evaluated for that is no cache hit."""
    account, everything = Paid(), replace(SOME_ARE_CLOSE, tolerance=100.0)
    with Engine(OtherLayout(3, limits=WIDE), check=everything) as engine:
        context = copy_context()
        context.run(charge_to, account)
        found = context.run(engine.select, "a c" * 20, ["cat", "bat", "at", "rat"])
    assert found.certificate.n_rescored == 4
    assert account.cost == found.cost.with_rows_naive(0)
    assert account.n_reused == 0


def test_the_coverage_counts_tokens_before_the_cut():
    """With the harness's boundary it is that of whole paths, which are scored again with the rest."""
    how = {"prompting": PromptParams(boundary="harness"), "terminator": "none"}
    choices = ["cat", "bat", "at", "rat"]
    everything = replace(SOME_ARE_CLOSE, tolerance=100.0)
    with Engine(OtherLayout(3, limits=WIDE), check=everything) as engine:
        found = engine.select("a c", choices, **how)
    with Engine(OtherLayout(3, limits=WIDE).new_context(4096), check=EXACT) as engine:
        expected = engine.select("a c", choices, **how)
    assert found.certificate.n_rescored == len(choices)
    np.testing.assert_allclose(found.choices.logp, expected.choices.logp, atol=1e-6)
    assert found.coverage == pytest.approx(expected.coverage, rel=1e-6)


def test_near_ties_that_cost_too_much_are_not_scored_again():
    """They are 64 behind many shared tokens. The certificate says so, and it is JSON."""
    choices = ["cat cat cat " + "".join(end) for end in product("abct", repeat=3)]
    with Engine(OtherLayout(3, limits=WIDE), check=replace(SOME_ARE_CLOSE, tolerance=100.0)) as engine:
        found = engine.select("a c", choices)
    assert '"rescored": false, "n_rescored": 0' in json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("rule", [ScoringRule("pmi"), ScoringRule("calibrated", content_free=("a",))])
@given(st.floats(-400, -0.1), st.lists(st.floats(-30, -0.01), min_size=2, max_size=6), st.permutations(range(3)))
def test_a_difference_that_is_equal_but_for_rounding_is_a_tie(rule, shift, baselines, order):
    """Joints that lie equally far above their baselines: sums in another order differ in their last bits."""
    parts = np.array([shift, *np.random.default_rng(len(baselines)).uniform(-9, 0, 2)])
    baseline = np.array(baselines)
    logp = np.array([base + sum(parts[list(order)] if i % 2 else parts) for i, base in enumerate(baselines)])
    ones = np.ones(len(baselines), dtype=np.int32)
    lengths, path_of = Lengths(ones, ones, ones), np.arange(len(baselines), dtype=np.int32)
    scores = score_choices(rule, logp, lengths, baseline=baseline)
    rounding = rounding_of(rule, logp, lengths, baseline=baseline)
    assert posterior(Interval.point(scores), path_of, slack=rounding).is_tie
    assert posteriors(scores[None], path_of, rounding[None]).is_tie.all()
    apart = scores + 1e-6 * np.arange(len(scores))
    assert not posterior(Interval.point(apart), path_of, slack=rounding).is_tie
    assert not posteriors(apart[None], path_of, rounding[None]).is_tie.any()


def test_the_rounding_of_a_score_follows_its_rule():
    """A mean is divided, a difference has two sides, and a prior is added; what is not finite has none."""
    logp, baseline = np.array([-100.0, -0.5, -np.inf, np.nan]), np.array([-50.0, -3.0, -1.0, -1.0])
    n = np.full(4, 4, dtype=np.int32)
    lengths = Lengths(n, n, n)

    def size(name, **how):
        return (rounding_of(ScoringRule(name), logp, lengths, **how) / ROUNDED_SUM).tolist()

    assert size("joint") == [100.0, 1.0, 0.0, 0.0]
    assert size("token_mean") == [25.0, 0.25, 0.0, 0.0]
    assert size("pmi", baseline=baseline) == [150.0, 4.0, 0.0, 0.0]
    assert size("joint", log_prior=np.array([-2.0, -1.0, 0.0, 0.0])) == [102.0, 2.0, 0.0, 0.0]


def test_a_tie_under_pmi_is_flagged():
    """Prompt and premise weigh the four choices alike, but for a common factor: what is left is rounding."""
    vocabulary = numbered_vocabulary(20)
    found = []
    for seed in range(8):
        logits = np.random.default_rng(seed).normal(size=len(vocabulary.pieces)).astype(np.float32)
        other = logits.copy()
        other[3:15] -= 1.0
        planted = {(vocabulary.bos, 3): logits, (vocabulary.bos,): other}
        with Engine(HashModel(1, vocabulary=vocabulary, planted=planted), check=EXACT) as engine:
            found.append(engine.select("<3>", ["<15>", "<16>"], rule="pmi", terminator="none"))
    assert 0 < max(one.margin for one in found) < 1e-14
    assert all(one.is_tie for one in found)
