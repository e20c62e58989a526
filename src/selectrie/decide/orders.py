"""Orders in which the options of a question are listed."""

from __future__ import annotations

import math
from itertools import count

from selectrie.decide.params import MAX_ALL, MAX_AUTO
from selectrie.decoding.rng import uniform
from selectrie.errors import OptionError

Order = tuple[int, ...]
"""Indices of options in the order in which a prompt lists them."""

_SEED = 0
"""Seed of the shuffles. It is fixed, so that the same options get the same orders."""


def orders_of(k: int, n: int | str) -> tuple[Order, ...]:
    """Return n distinct orders of k options, all of them for "all", up to 8 for "auto".

    They are rotations of seeded shuffles: the k rotations of one shuffle put each
    option at each place once. Over all n orders, two places hold an option equally
    often, or one of them once more. Fewer orders are the first of more.

    Args:
        k: Number of options, at least 1.
        n: Number of orders, at most k!, or "all" for at most 5 options, or "auto".

    Raises:
        OptionError: If there are not so many orders.
    """
    if n == "all":
        if k > MAX_ALL:
            raise OptionError("permutations", n, f"a number of orders: 'all' takes at most {MAX_ALL} options, not {k}")
        n = math.factorial(k)
    if n == "auto":
        n = min(MAX_AUTO, math.factorial(min(k, MAX_ALL)))
    n_orders = int(n)
    # Beyond 5 options there are more orders than anyone may ask for.
    if k <= MAX_ALL and n_orders > math.factorial(k):
        raise OptionError("permutations", n, f"at most {math.factorial(k)} orders of {k} options")
    orders: list[Order] = []
    seen: set[Order] = set()
    draws = count()
    while len(orders) < n_orders:
        shuffle = _shuffled(k, draws)
        start = shuffle.index(0)
        cycle = shuffle[start:] + shuffle[:start]  # two shuffles of one cycle have the same rotations
        if cycle not in seen:
            seen.add(cycle)
            orders += [shuffle[at:] + shuffle[:at] for at in range(k)][: n_orders - len(orders)]
    return tuple(orders)


def _shuffled(k: int, draws: count[int]) -> Order:
    """Return a random order of k options (Fisher and Yates)."""
    order = list(range(k))
    for last in range(k - 1, 0, -1):
        other = int(uniform(_SEED, next(draws)) * (last + 1))
        order[last], order[other] = order[other], order[last]
    return tuple(order)
