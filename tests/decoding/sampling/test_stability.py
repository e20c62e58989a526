"""A draw that is not called close stays, whatever a change within the tolerance does to the logits."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie.core.numerics import softmax, uniform
from selectrie.core.rows import DenseRows
from selectrie.decoding.sampling.chain import Adjustments, Pool, distribution
from selectrie.decoding.sampling.sampler import Band, Draw, Sampler, _mean_bounds, could_change
from selectrie.errors import DeadEndError, NonFiniteLogitsError
from selectrie.options import SamplingParams
from tests.decoding.sampling.test_sampler import as_row, chains, rows
from tests.support.n_examples import n_examples
from tests.support.sampler_chain import candidates

ALL = SamplingParams.UNCHANGED
ROUNDING = 2e-6
"""Nats by which a perturbed logit of at most 9 may be off in float32; taken off the tolerance."""

tolerances = st.sampled_from([0.002, 0.03, 0.4])


def perturbations(row: np.ndarray, token: int, tolerance: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Changes of at most the tolerance: at random, and those that move an edge, a rank or a mass the most."""
    n, ids = len(row), np.arange(len(row))
    ranks = np.argsort(np.argsort(-row, kind="stable"))
    shapes = [np.where(ids < token, 1, -1), np.where(ids <= token, 1, -1), np.where(ids == token, 1, -1)]
    some = range(0, n, max(1, n // 8))
    shapes += [np.where(ranks <= k, 1, -1) for k in some]
    shapes += [np.where(ids == i, 1, -1) for i in some]
    shapes += [np.where((ids == i) | (ids == token), 1, -1) for i in some]
    shapes += [rng.choice([-1, 1], size=n) for _ in range(6)] + [rng.uniform(-1, 1, size=n) for _ in range(6)]
    scale = tolerance - ROUNDING
    return [(row + sign * scale * shape).astype(np.float32) for shape in shapes for sign in (1, -1)]


def drawn_after(row, sampler, u, tolerance, rng):
    """The draw, and the tokens drawn from perturbed rows."""

    def draw(changed, tolerance=0.0):
        return sampler.draw(DenseRows(changed[None]), 0, u, allowed=None, tolerance=tolerance)

    found = draw(row, tolerance)
    return found, {draw(changed).token for changed in perturbations(row, found.token, tolerance, rng)}


def aimed(sampling: SamplingParams, row: np.ndarray, tolerance: float, rng: np.random.Generator) -> SamplingParams:
    """The chain with each share it filters by moved next to one at which this row's filter has an edge."""
    p = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    far = np.abs(np.log(p) - p @ np.log(p))

    def near(shares: np.ndarray) -> float:
        return float(np.clip(rng.choice(shares) * (1 + tolerance * rng.uniform(-1, 1)), 0.01, 0.99))

    if sampling.top_p < 1:
        sampling = replace(sampling, top_p=near(np.cumsum(np.sort(p)[::-1])))
    if sampling.min_p > 0:
        sampling = replace(sampling, min_p=near(p / p.max()))
    if sampling.typical_p < 1:
        sampling = replace(sampling, typical_p=near(np.cumsum(p[np.argsort(far)])))
    return sampling


def where_they_differ(row, changed, sampling, counts) -> list[float]:
    """Numbers that draw another token from the changed row than from the row: the middle of each such interval."""
    edges, drawn = [0.0, 1.0], []
    for logits in (row, changed):
        ids, p = candidates(logits, sampling, counts=counts)
        cumulative = np.cumsum(p) / p.sum()
        edges += cumulative.tolist()
        drawn.append((ids, cumulative))
    middles = [(low + high) / 2 for low, high in pairwise(sorted(edges)) if high - low > 1e-7 and high <= 1]
    return [u for u in middles if len({int(ids[np.searchsorted(c, u, side="right")]) for ids, c in drawn}) > 1]


@given(chains, tolerances, st.integers(0, 2**32 - 1))
@settings(max_examples=n_examples(150), deadline=None)
def test_whatever_can_change_a_draw_makes_it_close(sampling, tolerance, seed):
    """Wherever a perturbed row draws another token the draw was called close: at edges of intervals, filters and ties."""
    rng = np.random.default_rng(seed)
    row = rng.choice([0.0, 1.0, -1.0, 3.0], size=rng.integers(2, 9)) + rng.uniform(-2, 2, size=1)
    row = (row + tolerance * rng.uniform(-1.5, 1.5, size=len(row))).astype(np.float32)  # near ties
    sampling = replace(sampling, logit_bias={}, top_k=sampling.top_k % len(row))
    sampling = aimed(sampling, row, tolerance, rng)
    history = rng.integers(0, len(row), size=2).tolist()
    sampler, last_n = Sampler(sampling, history), sampling.penalty_last_n
    counts = Counter(history if last_n < 0 else history[len(history) - min(last_n, len(history)) :])
    changes = perturbations(row, int(rng.integers(len(row))), tolerance, rng)
    for changed in (changes[i] for i in rng.choice(len(changes), size=12, replace=False)):
        for u in where_they_differ(row, changed, sampling, counts):
            assert sampler.draw(DenseRows(row[None]), 0, u, tolerance=tolerance).close


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(),
        ALL,
        replace(ALL, top_p=0.9),
        replace(ALL, min_p=0.05),
        replace(ALL, top_p=0.9, min_p=0.02),
        replace(ALL, top_k=20, typical_p=0.8),
        replace(ALL, typical_p=0.8),
        SamplingParams(top_k=8, repeat_penalty=1.3, frequency_penalty=0.2),
    ],
    ids=repr,
)
def test_wide_rows_of_many_uncertain_tokens(sampling):
    """With 60 tokens, some at every filter's edge: not close is safe, close is not said of every draw, nor in vain."""
    sampler, rng = Sampler(sampling, range(0, 60, 3)), np.random.default_rng(11)
    answers = []
    for step in range(15):
        row = (rng.gumbel(size=60) * 1.5).astype(np.float32)
        found, others = drawn_after(row, sampler, uniform(5, step), 0.04, rng)
        assert found.close or others == {found.token}
        answers.append((found.close, others != {found.token}))
    assert (True, True) in answers  # the perturbations find what there is to find
    assert sum(close for close, _ in answers) < 12


@given(st.lists(st.tuples(st.floats(-4, 4), st.floats(0, 2)), min_size=1, max_size=5))
def test_the_mean_logit_lies_within_its_bounds(tokens):
    """Whichever corner of their bounds the logits lie in, and whichever of the unsure tokens are there."""
    low = np.array([x for x, _ in tokens])
    high, sure = low + [width for _, width in tokens], np.array([width < 1 for _, width in tokens])
    least, most = _mean_bounds(Band(low, high, sure))
    for corner in product((False, True), repeat=len(tokens)):
        for kept in {tuple(sure), (True,) * len(tokens)} - {(False,) * len(tokens)}:
            logits = np.where(corner, high, low)[list(kept)]
            mean = softmax(logits) @ logits
            assert least <= mean <= most


@pytest.mark.parametrize(("tolerance", "most"), [(1e-4, 0.05), (1e-2, 0.35)])
def test_few_draws_are_close(tolerance, most):
    """With the default chain on a vocabulary of 5 000 the answer is worth having: most draws are certain."""
    rng = np.random.default_rng(3)
    sampler = Sampler(SamplingParams(), [])
    n_close = 0
    for step in range(100):
        row = (rng.gumbel(size=5000) * 2).astype(np.float32)
        n_close += sampler.draw(DenseRows(row[None]), 0, uniform(9, step), tolerance=tolerance).close
    assert n_close <= most * 100


# An edge at 1/2 between two tokens moves to at most 1 / (1 + exp(-2 * tolerance)) = 0.50499983 for a tolerance of 0.01.
@pytest.mark.parametrize(
    ("u", "close"), [(0.494, False), (0.4951, True), (0.5, True), (0.50499, True), (0.50501, False), (0.0, False)]
)
def test_edges_by_hand(u, close):
    """Two tokens of one half each: close means within what 0.01 nats on both move the edge by."""
    draw = Sampler(ALL, []).draw(DenseRows(np.zeros((1, 2), dtype=np.float32)), 0, u, tolerance=0.01)
    assert draw.close is close


@pytest.mark.parametrize(("gap", "close"), [(0.0, True), (0.019, True), (0.021, False)])
def test_the_most_probable_token_is_close_to_the_next_within_twice_the_tolerance(gap, close):
    """One may fall while the other rises."""
    draw = Sampler(SamplingParams.GREEDY, []).draw(DenseRows(as_row([[0.0, gap, -5.0]])), 0, 0.9, tolerance=0.01)
    assert draw.close is close


@pytest.mark.parametrize("tolerance", [0.01, 3.0])
@pytest.mark.parametrize(("gap", "close"), [(1.9, True), (2.1, False)])
def test_another_token_may_enter_the_first_k_within_twice_the_tolerance(tolerance, gap, close):
    """With k = 1, however large the tolerance, the second token may become the first."""
    row = DenseRows(as_row([[0.0, -gap * tolerance, -50.0]]))
    draw = Sampler(replace(ALL, top_k=1), []).draw(row, 0, 0.5, tolerance=tolerance)
    assert draw.close is close


@pytest.mark.parametrize(("penalty", "close"), [(1.0, False), (4.0, True), (0.25, True)])
def test_a_penalty_magnifies_the_change(penalty, close):
    """A repetition penalty of 4 makes 0.01 nats of a negative logit 0.04; one of 1/4 does so to a positive one."""
    logits = [[-1.0, -4.03, -9.0]] if penalty > 1 else [[1.0, 3.97, -9.0]]
    if penalty == 1:
        logits = [[-1.0, -1.03, -9.0]]
    sampling = replace(SamplingParams.GREEDY, repeat_penalty=penalty)
    draw = Sampler(sampling, [0]).draw(DenseRows(as_row(logits)), 0, 0.9, tolerance=0.01)
    assert draw.close is close


@given(rows, chains)
@settings(max_examples=n_examples(50))
@example([0.0, 0.0], ALL)
def test_without_a_tolerance_nothing_is_close(logits, sampling):
    """Exact numbers leave no doubt; a hopeless tolerance leaves nothing else where there is a choice."""
    sampler = Sampler(replace(sampling, logit_bias={}), [])
    row = DenseRows(as_row([logits]))
    assert not sampler.draw(row, 0, 0.5, tolerance=0.0).close
    assert sampler.draw(row, 0, 0.5, tolerance=1e3).close


@given(
    st.lists(st.one_of(st.floats(-30, 30, width=32), st.sampled_from([-math.inf, 0.0, 0.5])), min_size=2, max_size=9),
    st.sampled_from([0.0, 1e-5, 0.01, 0.25, 3.0, 200.0]),
    st.data(),
)
@settings(max_examples=n_examples(400))
def test_a_greedy_draw_is_that_of_the_whole_chain(logits, tolerance, data):
    """Two tokens of a row say which one is drawn and whether it is close, as the chain over all of them does."""
    allowed = data.draw(st.one_of(st.none(), st.lists(st.booleans(), min_size=len(logits), max_size=len(logits))))
    mask = None if allowed is None else np.array(allowed)
    row = as_row([logits])
    sampling, sampler = SamplingParams.GREEDY, Sampler(SamplingParams.GREEDY, [])
    assert sampler.n_top == 2

    def whole():
        pool = Pool.of(row[0], Adjustments.of(sampling), mask)
        token = int(distribution(pool, sampling)[0][0])
        return Draw(token, tolerance > 0 and could_change(pool, token, 0.5, sampling, tolerance))

    def outcome(draw):
        try:
            return draw()
        except (DeadEndError, NonFiniteLogitsError) as error:
            return type(error), str(error)

    drawn = outcome(lambda: sampler.draw(DenseRows(row), 0, 0.5, allowed=mask, tolerance=tolerance))
    assert drawn == outcome(whole)
    if isinstance(drawn, Draw):
        assert drawn.logp == DenseRows(row).logp(0, drawn.token)
