"""Rows that calls occupy: multiples, and the cheapest programs of fixed sizes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selectrie.core.types import BatchSizes, CallCost
from selectrie.errors import OptionError

MEASURED = BatchSizes.fixed({512: 1.220, 64: 0.165, 8: 0.0416, 1: 0.0270})
"""Seconds of programs of a model of 32 million weights with a pool of 2048 cells."""

tables = st.dictionaries(st.integers(1, 9), st.integers(1, 6).map(lambda ms: ms / 1000), min_size=1, max_size=3)
"""Few sizes and few times, so that many sets of programs take equally long."""


def cheapest(seconds, n_rows):
    """The programs for so many rows, by writing out every set that might be the best."""
    sizes = sorted(seconds, reverse=True)
    best = None
    for counts in product(*(range(-(-n_rows // size) + 1) for size in sizes)):
        rows = sum(size * n for size, n in zip(sizes, counts, strict=True))
        if rows < n_rows:
            continue
        ms = sum(round(1000 * seconds[size]) * n for size, n in zip(sizes, counts, strict=True))
        if best is None or (ms, sum(counts), rows) < best[0]:
            best = (ms, sum(counts), rows), counts
    return best[0]


@given(seconds=tables, n_rows=st.integers(0, 24))
def test_fixed_sizes_take_the_least_time(seconds, n_rows):
    """Of all sets of programs the quickest, of those the one with the fewest programs, of those the smallest."""
    programs = BatchSizes.fixed(seconds).programs(n_rows)
    ms = sum(round(1000 * seconds[size]) for size in programs)
    assert (ms, len(programs), sum(programs)) == cheapest(seconds, n_rows)
    assert list(programs) == sorted(programs, reverse=True)
    assert BatchSizes.fixed(seconds).padded(n_rows) == sum(programs)


@given(
    sizes=st.builds(BatchSizes, st.integers(1, 9)) | tables.map(BatchSizes.fixed),
    bounds=st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted),
)
def test_a_call_is_filled_up_where_that_costs_nothing(sizes, bounds):
    """Of all numbers of rows between two bounds, the smallest of those that are padded least."""
    low, high = bounds
    expected = min(range(low, high + 1), key=lambda n: (sizes.padded(n) - n, n))
    assert sizes.least_padded(low, high) == expected


@given(multiple=st.integers(1, 70), n_rows=st.integers(0, 5000))
def test_a_multiple_is_one_program(multiple, n_rows):
    """The next multiple; nothing for no rows."""
    sizes = BatchSizes(multiple)
    assert sizes.programs(n_rows) == ((sizes.padded(n_rows),) if n_rows else ())
    assert 0 <= sizes.padded(n_rows) - n_rows < multiple
    assert sizes.padded(n_rows) % multiple == 0
    assert not sizes.is_fixed


@pytest.mark.parametrize(
    ("n_rows", "programs"),
    [
        (0, ()),
        (1, (1,)),
        (2, (8,)),  # .0416 s for eight, .0540 s for two of one row
        (9, (8, 1)),
        (477, (512,)),  # 1.220 s; greedily 7·64 + 3·8 + 5·1 would take 1.415 s
        (300, (64, 64, 64, 64, 64)),
        (1501, (512, 512, 512)),
        (5000, None),
    ],
)
def test_measured_times_decide_between_splitting_and_padding(n_rows, programs):
    """Where the rest fills more than about half of a program, that one is padded."""
    found = MEASURED.programs(n_rows)
    assert sum(found) >= n_rows
    if programs is not None:
        assert found == programs


@pytest.mark.parametrize(
    "make",
    [
        lambda: BatchSizes(0),
        lambda: BatchSizes(True),
        lambda: BatchSizes(8, ((8, 0.1),)),
        lambda: BatchSizes(buckets=((8, 0.1), (1, 0.1))),
        lambda: BatchSizes(buckets=((8, 0.1), (8, 0.2))),
        lambda: BatchSizes.fixed({}),
        lambda: BatchSizes.fixed({0: 0.1}),
        lambda: BatchSizes.fixed({8: 0.0}),
        lambda: BatchSizes.fixed({8: float("nan")}),
        lambda: BatchSizes.fixed({8: float("inf")}),
        *(lambda name=name: CallCost(**{name: 0}) for name in CallCost.__slots__),
        lambda: CallCost(prefill_rows=1.5),
    ],
)
def test_sizes_that_cannot_be_are_refused(make):
    """No rows, no time, sizes twice or out of order, both kinds at once; costs that are no counts."""
    with pytest.raises(OptionError):
        make()
