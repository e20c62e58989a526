"""Orders of options: distinct, balanced over places, the same every time."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.decide.asks import orders_of
from selectrie.errors import OptionError


@given(k=st.integers(1, 30), wanted=st.integers(1, 64))
def test_orders_are_distinct_and_balanced(k, wanted):
    """The orders differ, each is a permutation, and every option stands at every place equally often, give or take one."""
    n = min(wanted, math.factorial(min(k, 6)))
    orders = orders_of(k, n)
    assert len(set(orders)) == len(orders) == n
    assert all(sorted(order) == list(range(k)) for order in orders)
    counts = Counter((place, option) for order in orders for place, option in enumerate(order))
    every = [counts[place, option] for place in range(k) for option in range(k)]
    assert max(every) - min(every) <= 1
    assert orders == orders_of(k, n)
    assert orders_of(k, "auto") == orders_of(k, min(8, math.factorial(min(k, 6))))
    assert orders[: n // 2 + 1] == orders_of(k, n // 2 + 1)


@pytest.mark.parametrize("k", range(1, 6))
def test_all_orders_are_all_permutations(k):
    """Up to five options, "all" gives each of the k! orders once."""
    assert len(set(orders_of(k, "all"))) == len(orders_of(k, "all")) == math.factorial(k)


def test_more_orders_than_there_are_is_an_error():
    """No order is asked twice: more than k! is refused, and so is "all" beyond five options."""
    with pytest.raises(OptionError, match="at most 2 orders of 2 options"):
        orders_of(2, 3)
    with pytest.raises(OptionError, match="'all' takes at most 5 options, not 6"):
        orders_of(6, "all")


def test_shuffles_are_not_the_order_given():
    """The first order of many options is shuffled: a model that favours the first place favours no first option."""
    assert orders_of(8, 1)[0] != tuple(range(8))
    assert len({orders_of(8, 64)[i][0] for i in range(64)}) == 8
