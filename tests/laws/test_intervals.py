"""Bounds against decimals with 100 digits: whatever lies within what was read, what follows lies within its bounds.

The values are drawn at the ends of what was read, where only outward rounding keeps sums of float64 within bounds.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from selectrie.core.numerics import Interval
from selectrie.core.types import NO_PATH
from selectrie.decoding.scoring.rules import is_certain, posterior
from selectrie.decoding.trie.best_first import longest_chain
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.engine.requests.choice_scores import score
from selectrie.engine.requests.selection import SelectRequest, prepare_selection
from selectrie.options import ScoringRule
from selectrie.testing import HashModel
from selectrie.testing.oracles import run
from tests.laws.test_engine_laws import WIDE
from tests.support.n_examples import n_examples

DIGITS = 100
AS_READ = Decimal("1e-12")
"""Share of its size by which a number may be off that has no bounds."""


def exp(logp) -> Decimal:
    """The probability of a log-probability; 0 where none was read."""
    return Decimal(float(logp)).exp() if logp > -math.inf else Decimal(0)


def log(p: Decimal) -> Decimal:
    return p.ln() if p else Decimal("-inf")


class Truth:
    """The exact numbers of a request, for one value of everything that was read, in or out of bounds."""

    def __init__(self, prepared, evaluation, rest, observed, share):
        trie = prepared.trie
        edges = [Decimal(1), *(exp(one) for one in evaluation.edge_logp[1:])]
        ends = trie.end_path != NO_PATH
        q = [Decimal(1)] * len(edges)
        for node in reversed(range(len(edges))):
            if trie.inner[node]:
                below = [edges[m] * q[m] for m in trie.children(node).tolist() if not ends[m]]
                q[node] = min(exp(rest[node]) + sum(below), Decimal(1))
        prefix = edges.copy()
        for node in range(1, len(edges)):
            prefix[node] *= prefix[trie.parent[node]]
        last = {
            "none": lambda _: Decimal(1),
            "eog": lambda n: exp(evaluation.eog_logp[n]),
            "unless-continued": q.__getitem__,
        }
        joint = [prefix[n] * last[prepared.terminator](n) for n in trie.path_node.tolist()]
        healed = self._healed(prepared.healing, edges, observed, share)
        self.paths = [one / healed if healed else Decimal(0) for one in joint]
        # Every path spells the healed bytes, and paths that begin with one another count the same mass.
        self.is_possible = healed > 0 and sum(self.paths) <= longest_chain(trie) and max(self.paths) <= 1
        logp = [log(self.paths[path]) for path in trie.path_of.tolist()]
        lengths = prepared.lengths.for_rule(prepared.rule.name)
        self.logp, self.scores = logp, [one / Decimal(float(n)) for one, n in zip(logp, lengths, strict=True)]

    @staticmethod
    def _healed(healing, edges, observed, share):
        """The probability of the healed bytes: all that covers them, and a share of what is open."""
        if not len(healing.nodes):
            return Decimal(1)
        covered, opened = ([exp(one) for one in observed[at::2]] for at in (0, 1))
        for i in reversed(range(1, len(healing.nodes))):
            parent, edge = healing.parent_index[i], edges[healing.nodes[i]]
            covered[parent] += edge * covered[i]
            opened[parent] += edge * opened[i]
        return covered[0] + Decimal(share) * opened[0]


def between(low, value: Decimal, high, *, is_value) -> bool:
    """Whether a value lies within bounds, or is the number that has none."""
    room = AS_READ * max(abs(value), Decimal(1)) if is_value and value.is_finite() else Decimal(0)
    return Decimal(float(low)) - room <= value <= Decimal(float(high)) + room


@st.composite
def hidden(draw, values):
    """Bounds on values, of which some are known, and a value within each of them, at one of its ends."""
    n = len(values)
    widths = np.array(draw(st.lists(st.sampled_from([0.0, 0.0, 1e-9, 0.1, 2.0, np.inf]), min_size=n, max_size=n)))
    top = np.where(np.isnan(values), np.nan, 0.0)
    high = np.minimum(np.where(np.isinf(widths), top, values + np.minimum(widths, 9.0)), 0.0)
    low = np.where(np.isinf(widths) & ~np.isnan(values) & draw(st.booleans()), -np.inf, values)
    at_high = np.array(
        draw(st.one_of(st.just([False] * n), st.just([True] * n), st.lists(st.booleans(), min_size=n, max_size=n))),
        dtype=bool,
    )
    is_known = bool(np.array_equal(low, high, equal_nan=True))
    return Interval.point(values) if is_known else Interval(low, high), np.where(at_high, high, low)


@settings(max_examples=n_examples(60))
@given(
    data=st.data(),
    seed=st.integers(0, 5000),
    choices=st.lists(st.text("abct ", min_size=1, max_size=4), min_size=2, max_size=6, unique=True),
    terminator=st.sampled_from(["none", "eog", "unless-continued", "unless-continued"]),
    rule=st.sampled_from(["joint", "token_mean", "char_mean"]),
)
def test_numbers_lie_within_their_bounds(data, seed, choices, terminator, rule):
    """Joints, differences of scores, probabilities and the coverage, for any rule that a name has."""
    model = HashModel(seed, sharpness=2.0, limits=WIDE)
    request = SelectRequest(rule=ScoringRule(rule), terminator=terminator)
    prepared = prepare_selection(model, data.draw(st.sampled_from(["a", "a ", "ca", "c "])), choices, request)
    read = run(ScoreTask(prepared.encoded.context, prepared.trie, prepared.needs), model)
    rest, own_rest = data.draw(hidden(read.rest.low))
    observed, own_observed = data.draw(hidden(read.observed.low))
    scored = score(prepared, replace(read, rest=rest, observed=observed), None)
    path_of = prepared.trie.path_of
    decision = posterior(scored.compared, path_of, ranking=scored.scores.low, slack=scored.rounding)
    with localcontext() as context:
        context.prec = DIGITS
        truth = Truth(prepared, read, own_rest, own_observed, data.draw(st.sampled_from([0, 0.5, 1])))
        if truth.is_possible:
            check(scored, decision, path_of, truth)


def check(scored, decision, path_of, truth):
    """Raise unless the truth lies within all bounds."""
    is_value, logp, compared = scored.scores.is_known, scored.logp, scored.compared
    # What depends on bounds on the healed bytes has no value, though all of its own rows are known.
    has_points = is_value or scored.heal.is_known or scored.lower_by > 0
    is_point = (logp.low == logp.high) & has_points
    for i, value in enumerate(truth.logp):
        assert between(logp.low[i] - scored.lower_by, value, logp.high[i], is_value=is_value or is_point[i])
    finite = [i for i, one in enumerate(truth.scores) if one.is_finite()]
    for i, j in itertools.product(finite, finite):
        most = Decimal(float(compared.high[i])) - Decimal(float(compared.low[j]))
        is_one = has_points and (compared.low[i] == compared.high[i] or compared.low[j] == compared.high[j])
        room = 4 * AS_READ * max(1, *map(abs, truth.scores)) if is_one else 0
        assert truth.scores[i] - truth.scores[j] <= most + room
    best = {int(p): max(s for q, s in zip(path_of, truth.scores, strict=True) if q == p) for p in path_of}
    weights = {path: one.exp() if one.is_finite() else Decimal(0) for path, one in best.items()}
    if total := sum(weights.values()):
        for i, path in enumerate(path_of.tolist()):
            share = weights[path] / total
            assert between(decision.bounds.low[i], share, decision.bounds.high[i], is_value=compared.is_known)
        if is_certain(compared, path_of, scored.rounding, 1):
            assert best[int(path_of[decision.winner])] == max(best.values())
    coverage = sum(truth.paths)
    assert between(scored.coverage.low, coverage, scored.coverage.high, is_value=is_value)


def test_what_has_no_probability_keeps_none():
    """Nothing is known to cover the healed bytes, so that means may lie anywhere; a path of probability 0 is at -inf."""
    model = HashModel(3, limits=WIDE)
    prepared = prepare_selection(model, "a ", ["b", "cab", "tac"], SelectRequest(rule=ScoringRule("char_mean")))
    read = run(ScoreTask(prepared.encoded.context, prepared.trie, prepared.needs), model)
    edges = read.edge_logp.copy()
    edges[prepared.trie.path_node[prepared.trie.path_of[:2]]] = -np.inf
    observed = Interval.point(np.array([-np.inf, -1.0]))
    scored = score(prepared, replace(read, edge_logp=edges, observed=observed), None)
    assert scored.heal.width == np.inf
    assert scored.compared.high[:2].tolist() == scored.compared.low[:2].tolist() == [-np.inf, -np.inf]
    assert scored.coverage.low == 0.0


@given(low=st.floats(-800, 0), gap=st.floats(0, 800))
def test_a_gap_is_rounded_up(low, gap):
    """The width is no less than the gap, and 0 only if it is."""
    found = Interval.above(low, gap)
    assert Fraction(low) + Fraction(gap) <= Fraction(found.high)
    assert gap <= found.width <= gap + 1e-9
    assert found.is_known == (found.low is found.high) == (gap == 0)


@given(terms=st.lists(st.floats(-50, 0), min_size=1, max_size=40), other=st.floats(-50, 0))
def test_only_bounds_are_widened(terms, other):
    """By more than the rounding of a sum, and by at most 1e-9; a point stays the same object."""
    low, high = sum(terms) - 1.0, sum(terms)
    point, bounds = Interval.point(low), Interval(low, high).widened()
    assert point.widened() is point
    assert Fraction(bounds.low) <= sum(map(Fraction, terms)) - 1
    assert sum(map(Fraction, terms)) <= Fraction(bounds.high)
    assert bounds.width <= 1.0 + 1e-8
    array = Interval(np.array([-np.inf, low]), np.array([-np.inf, high])).widened()
    assert (array.low[0], array.high[0]) == (-np.inf, -np.inf)
    assert (array.low[1], array.high[1]) == (bounds.low, bounds.high)


def test_a_point_is_computed_once():
    """Whatever falls nowhere maps both ends; those of a point are one object."""
    calls = []

    def plus_one(x):
        calls.append(x)
        return x + 1

    point, bounds = Interval.point(1.0).map(plus_one), Interval(1.0, 3.0).map(plus_one)
    assert (point.low, point.is_known, bounds.low, bounds.high, bounds.is_known) == (2.0, True, 2.0, 4.0, False)
    assert point.low is point.high
    assert calls == [1.0, 1.0, 3.0]
    assert (Interval(-np.inf, -np.inf).width, Interval(-np.inf, -1.0).width) == (0.0, np.inf)
    np.testing.assert_array_equal(Interval(np.array([-np.inf, -2.0]), np.array([-np.inf, -1.0])).width, [0.0, 1.0])


def test_a_baseline_within_bounds_widens_both_ends():
    """A score is highest by the lower end of what is subtracted, and lowest by the upper one."""
    model = HashModel(3, limits=WIDE)
    prepared = prepare_selection(model, "a", ["b", "cab"], SelectRequest(rule=ScoringRule("pmi", premise="c")))
    read = run(ScoreTask(prepared.encoded.context, prepared.trie, prepared.needs), model)
    baseline = Interval(np.array([-5.0, -np.inf]), np.array([-2.0, -1.0]))
    scored = score(prepared, read, baseline)
    np.testing.assert_allclose(scored.scores.low, scored.logp.low - baseline.high)
    np.testing.assert_allclose(scored.scores.high, [scored.logp.high[0] + 5.0, np.inf])
