"""Spellings drawn at random: without bias, reproducible, and apart from the bounds."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from selectrie.decoding.rng import uniform
from selectrie.decoding.spelling import draws
from selectrie.decoding.spelling.draws import MAX_BYTE_COSTS, guessed_rest
from selectrie.decoding.spelling.goals import CloseBounds
from selectrie.testing import HashModel, make_vocabulary, naive_spelled
from tests.support.bits import plain
from tests.support.spellings import PROMPT, searched, spec_of

VOCABULARY = make_vocabulary([b"a", b"b", b"ab", b"ba", b"aa", b"ab", b"bab", b""])
TEXT = b"abaabab"


def drawn(seed, *, ends, n_draws, model_seed, healed=b"", budget=1):
    model = HashModel(model_seed, vocabulary=VOCABULARY, sharpness=0.7)
    spec = spec_of(
        VOCABULARY,
        [TEXT],
        random.Random(model_seed),
        healed=healed,
        ends=ends,
        goal=CloseBounds(1.0001),
        budget_nodes=budget,
        n_draws=n_draws,
        max_gap=0.01,
        seed=seed,
    )
    return model, spec, searched(model, spec)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("healed", [b"", b"ab"])
def test_estimates_have_no_bias(ends, healed):
    """Their mean is within four standard errors of what enumeration gives, and the errors that they state have its size."""
    estimates, errors = [], []
    for batch in range(12):
        model, spec, (outcome, _) = drawn(1000 * batch, ends=ends, n_draws=40, model_seed=1, healed=healed)
        estimates.append(math.exp(outcome.sampled.logp))
        errors.append(estimates[-1] * outcome.sampled.relative_error)
        assert outcome.sampled.logp >= outcome.bounds.low[0]
    truth = naive_spelled(model, PROMPT, spec.events[0].text, ends=ends)
    deviation = np.std(estimates, ddof=1)
    assert 1e-3 * truth < deviation < truth
    assert abs(np.mean(estimates) - truth) <= 4 * deviation / math.sqrt(len(estimates))
    assert deviation / 3 < np.mean(errors) < deviation * 3


def test_a_seed_gives_the_same_draws_and_changes_no_bound():
    """Bounds are those of a search without draws."""
    _, _, (one, _) = drawn(5, ends=True, n_draws=50, model_seed=1, budget=4)
    _, _, (same, _) = drawn(5, ends=True, n_draws=50, model_seed=1, budget=4)
    _, _, (other, _) = drawn(6, ends=True, n_draws=50, model_seed=1, budget=4)
    _, _, (none, driver) = drawn(5, ends=True, n_draws=0, model_seed=1, budget=4)
    assert plain(one) == plain(same)
    assert one.sampled.logp != other.sampled.logp
    assert none.sampled is None
    assert none.n_evaluated == sum(driver.told.values())
    assert plain((one.bounds.low, one.bounds.high, one.n_evaluated)) == plain(
        (none.bounds.low, none.bounds.high, none.n_evaluated)
    )


def test_seeds_share_no_random_number(monkeypatch):
    """Neighbouring seeds would otherwise share draws, and their estimates would not be independent."""
    numbers = {5: [], 6: []}
    monkeypatch.setattr(
        draws, "uniform", lambda seed, step: numbers[seed].append(uniform(seed, step)) or numbers[seed][-1]
    )
    for seed in numbers:
        drawn(seed, ends=True, n_draws=40, model_seed=1)
    both = numbers[5] + numbers[6]
    assert len(numbers[5]) > 40
    assert len(set(both)) == len(both)


@pytest.mark.parametrize("draw_rows", [1, 60, 120, None])
def test_draws_begin_while_there_is_room_for_their_rows(draw_rows):
    """Four are made in any case, a wave of several only if draws took few enough rows before; their number is always a multiple of four."""
    model = HashModel(2, vocabulary=VOCABULARY, sharpness=0.7)
    spec = spec_of(VOCABULARY, [b"abaababbabaab"], random.Random(1), budget_nodes=1, n_draws=400, max_gap=0.01)
    sampled = searched(model, replace(spec, draw_rows=draw_rows))[0].sampled
    assert sampled.n_draws % 4 == 0
    assert (sampled.n_draws == 4) is (draw_rows == 1)
    assert (sampled.n_draws == 400) is (draw_rows is None)
    assert draw_rows is None or 4 < sampled.n_rows <= max(draw_rows, 4 * 13) + 10


def test_rows_for_draws_are_counted_apart():
    """Each row that the search has not read is read once, whatever the number of draws that pass through it."""
    _, _, (outcome, driver) = drawn(1, ends=True, n_draws=64, model_seed=2)
    assert outcome.sampled.n_rows == sum(driver.told.values()) - outcome.n_evaluated
    assert max(driver.told.values()) == 1
    assert outcome.sampled.n_draws == 64


def test_nothing_is_drawn_where_bounds_are_close():
    """Or where nothing is left open: the estimate is then what was found."""
    _, _, (outcome, _) = drawn(1, ends=True, n_draws=64, model_seed=2, budget=10_000)
    assert outcome.sampled is None


def test_guesses_spread_the_canonical_tokens_over_bytes():
    """`ab` at -6 and `c` at -1: 3 nats for each byte of `ab`, of which a guess takes at most 2, 4 and 100."""
    guesses = guessed_rest(np.array([2, 1]), np.array([-6.0, -1.0]))
    assert MAX_BYTE_COSTS == (2.0, 4.0, 100.0)
    assert guesses.tolist() == [[-5.0, -3.0, -1.0, 0.0], [-7.0, -4.0, -1.0, 0.0], [-7.0, -4.0, -1.0, 0.0]]
    assert guessed_rest(np.array([1]), np.array([-np.inf]))[:, 0].tolist() == [-2.0, -4.0, -100.0]
