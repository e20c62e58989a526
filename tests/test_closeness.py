"""A draw that is not called close stays, whatever a change within the tolerance does to the logits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from selectrie.model import Rows
from selectrie.options import Sampling
from selectrie.sampling import Sampler, uniform
from test_sampling import as_row, chains, rows

ALL = Sampling.UNCHANGED
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
        return sampler.draw(Rows(changed[None]), 0, u, allowed=None, tolerance=tolerance)

    found = draw(row, tolerance)
    return found, {draw(changed).token for changed in perturbations(row, found.token, tolerance, rng)}


@given(rows, chains, st.lists(st.integers(0, 7), max_size=4), tolerances, st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_a_draw_that_is_not_close_stays(logits, sampling, history, tolerance, seed):
    """No perturbation within the tolerance draws another token, near the edges of intervals and filters too."""
    biases = {i: b for i, b in sampling.logit_bias.items() if i < len(logits) and b > -math.inf}
    sampling = replace(sampling, logit_bias=biases if len(biases) < len(logits) else {})
    history = [token for token in history if token < len(logits)]
    sampler, rng = Sampler(sampling, history), np.random.default_rng(seed)
    for u in (0.0, *rng.random(2).tolist(), 1 - 2.0**-53):
        found, others = drawn_after(as_row(logits), sampler, u, tolerance, rng)
        assert found.close or others == {found.token}


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        ALL,
        replace(ALL, top_p=0.9),
        replace(ALL, min_p=0.05),
        replace(ALL, top_p=0.9, min_p=0.02),
        replace(ALL, top_k=20, typical_p=0.8),
        replace(ALL, typical_p=0.8),
        Sampling(top_k=8, repeat_penalty=1.3, frequency_penalty=0.2),
    ],
    ids=repr,
)
def test_wide_rows_of_many_uncertain_tokens(sampling):
    """With 60 tokens, some at every filter's edge: not close is safe, close is not said of every draw, nor in vain."""
    sampler, rng = Sampler(sampling, range(0, 60, 3)), np.random.default_rng(11)
    answers = []
    for step in range(25):
        row = (rng.gumbel(size=60) * 1.5).astype(np.float32)
        found, others = drawn_after(row, sampler, uniform(5, step), 0.04, rng)
        assert found.close or others == {found.token}
        answers.append((found.close, others != {found.token}))
    assert (True, True) in answers  # the perturbations find what there is to find
    assert sum(close for close, _ in answers) < 18


@pytest.mark.parametrize(("tolerance", "most"), [(1e-4, 0.05), (1e-2, 0.35)])
def test_few_draws_are_close(tolerance, most):
    """With the default chain on a vocabulary of 5 000 the answer is worth having: most draws are certain."""
    rng = np.random.default_rng(3)
    sampler = Sampler(Sampling(), [])
    n_close = 0
    for step in range(100):
        row = (rng.gumbel(size=5000) * 2).astype(np.float32)
        n_close += sampler.draw(Rows(row[None]), 0, uniform(9, step), tolerance=tolerance).close
    assert n_close <= most * 100


# An edge at 1/2 between two tokens moves to at most 1 / (1 + exp(-2 * tolerance)) = 0.50499983 for a tolerance of 0.01.
@pytest.mark.parametrize(
    ("u", "close"), [(0.494, False), (0.4951, True), (0.5, True), (0.50499, True), (0.50501, False), (0.0, False)]
)
def test_edges_by_hand(u, close):
    """Two tokens of one half each: close means within what 0.01 nats on both move the edge by."""
    draw = Sampler(ALL, []).draw(Rows(np.zeros((1, 2), dtype=np.float32)), 0, u, tolerance=0.01)
    assert draw.close is close


@pytest.mark.parametrize(("gap", "close"), [(0.0, True), (0.019, True), (0.021, False)])
def test_the_most_probable_token_is_close_to_the_next_within_twice_the_tolerance(gap, close):
    """One may fall while the other rises."""
    draw = Sampler(Sampling.GREEDY, []).draw(Rows(as_row([[0.0, gap, -5.0]])), 0, 0.9, tolerance=0.01)
    assert draw.close is close


@pytest.mark.parametrize(("penalty", "close"), [(1.0, False), (4.0, True), (0.25, True)])
def test_a_penalty_magnifies_the_change(penalty, close):
    """A repetition penalty of 4 makes 0.01 nats of a negative logit 0.04; one of 1/4 does so to a positive one."""
    logits = [[-1.0, -4.03, -9.0]] if penalty > 1 else [[1.0, 3.97, -9.0]]
    if penalty == 1:
        logits = [[-1.0, -1.03, -9.0]]
    sampling = replace(Sampling.GREEDY, repeat_penalty=penalty)
    draw = Sampler(sampling, [0]).draw(Rows(as_row(logits)), 0, 0.9, tolerance=0.01)
    assert draw.close is close


@given(rows, chains)
@settings(max_examples=50)
@example([0.0, 0.0], ALL)
def test_without_a_tolerance_nothing_is_close(logits, sampling):
    """Exact numbers leave no doubt; a hopeless tolerance leaves nothing else where there is a choice."""
    sampler = Sampler(replace(sampling, logit_bias={}), [])
    row = Rows(as_row([logits]))
    assert not sampler.draw(row, 0, 0.5, tolerance=0.0).close
    assert sampler.draw(row, 0, 0.5, tolerance=1e3).close
