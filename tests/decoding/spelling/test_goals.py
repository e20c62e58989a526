"""When a search of spellings has read enough, and what it reads next: by hand."""

from __future__ import annotations

import math

import numpy as np

from selectrie.core.numerics import Interval
from selectrie.decoding.spelling import Bounds, CloseBounds, OneWinner, share, total_gap


def bounds_of(low, high, moves=0.0):
    low, high = np.array(low), np.array(high)
    return Bounds(Interval(low, high), Interval(low - moves, high + moves))


def test_close_bounds_weigh_each_event_by_its_upper_bound():
    """Until the quotients of all events multiply to at most 1.01; an event of probability 0 wants nothing."""
    goal = CloseBounds(1.01)
    assert goal.weights(bounds_of([-2.0, -np.inf], [-1.0, -np.inf])).tolist() == [1.0, -np.inf]
    assert goal.weights(bounds_of([-1.009, -3.0], [-1.0, -3.0])) is None
    assert goal.weights(bounds_of([-1.009, -3.009], [-1.0, -3.0])).tolist() == [1.0, 3.0]
    assert goal.enough == 1 - 1 / 1.01


def test_one_winner_reads_the_winner_and_its_rivals_alone():
    """Priors count: 0 with -2 + 1 leads; 1 may reach it, 2 cannot, and 3 has the winner's text."""
    goal = OneWinner((0, 1, 2, 0), (1.0, 0.0, 0.0, 1.0), None, 1.01)
    bounds = bounds_of([-2.0, -5.0, -9.0], [-1.5, -0.5, -3.0])
    winner, rivals = goal.find_rivals(bounds)
    assert (winner, rivals.tolist()) == (0, [False, True, False, False])
    assert goal.weights(bounds).tolist() == [1.0, 0.0, -np.inf]
    assert goal.weights(bounds_of([-2.0, -5.0, -9.0], [-1.5, -1.5, -3.0])) is None


def test_one_winner_then_asks_for_what_all_are_conditional_on():
    """Event 1 is the healed bytes; their bounds become close once the winner is certain."""
    goal = OneWinner((0,), (0.0,), 1, 1.01)
    assert goal.weights(bounds_of([-2.0, -1.0], [-1.0, -0.5])).tolist() == [-np.inf, 0.0]
    assert goal.weights(bounds_of([-2.0, -0.505], [-1.0, -0.5])) is None


def test_one_winner_stops_where_rows_move_further_than_choices_are_apart():
    """0.2 nats apart at best: half a nat of tolerance each can never tell them apart, a hundredth can."""
    goal = OneWinner((0, 1), (0.0, 0.0), None, 1.01)
    low, high = [-1.2, -1.3], [-1.1, -1.15]
    assert goal.find_inseparable(bounds_of(low, high, 0.5)).tolist() == [False, True]
    assert goal.weights(bounds_of(low, high, 0.5)) is None
    assert goal.find_inseparable(bounds_of(low, high, 0.01)).tolist() == [False, False]
    assert goal.weights(bounds_of(low, high, 0.01)).tolist() == [0.0, 0.0]
    assert not goal.find_inseparable(bounds_of([-1.0, -1.0], [-1.0, -1.0])).any()  # a tie by the rows themselves


def test_gaps_and_shares():
    """What has probability 0 has no gap and no share."""
    assert total_gap(Interval(np.array([-2.0, -np.inf]), np.array([-1.5, -np.inf]))) == 0.5
    assert total_gap(Interval(np.array([-np.inf]), np.array([-1.5]))) == np.inf
    assert share(-np.inf, -np.inf) == 0.0
    assert share(-1.0, -np.inf) == 1.0
    assert share(math.log(0.2), math.log(0.8)) == 0.25
