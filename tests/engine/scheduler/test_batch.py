"""How the cost of a call is divided among the jobs that share it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from selectrie.core.model import Extension
from selectrie.engine.scheduler.batch import split_call
from selectrie.engine.scheduler.job import BatchPart, Job


class NoRows:
    """Rows of which there are none."""

    def slice(self, _start: int, _stop: int) -> NoRows:
        return self


def part(n: int) -> BatchPart:
    """A part of n rows, none of them wanted."""
    return BatchPart(cast("Job", None), [0] * n, [0] * n, [False] * n, [False] * n, lambda *_: None, [0] * n)


def costs(sizes: list[int], n_evaluated: int, n_repeated: int, n_padded: int) -> list[Any]:
    """The cost of each part of a call."""
    nodes = np.arange(sum(sizes), dtype=np.int32)
    extension = Extension(nodes, cast("Any", NoRows()), n_evaluated, n_repeated, n_padded, 1, 1.0)
    return [cost for *_, cost in split_call([part(n) for n in sizes], extension)]


@given(st.data(), st.lists(st.integers(0, 60), min_size=1, max_size=12))
@example(None, [128, 128, 128, 128])
def test_the_shares_of_a_call_add_up_to_it(data, sizes):
    """Also where parts have rows in common, so that fewer are evaluated than were asked for."""
    n = sum(sizes)
    evaluated = n if data is None else data.draw(st.integers(0, n))
    padded = 7 if data is None else data.draw(st.integers(0, 63))
    found = costs(sizes, evaluated, 0, padded)
    assert sum(cost.rows for cost in found) == evaluated
    assert sum(cost.rows_padded for cost in found) == (padded if n else 0)
    assert sum(cost.decode_s for cost in found) == pytest.approx(1.0 if n else 0.0)
    assert all(cost.rows <= size and cost.rows_repeated == 0 for cost, size in zip(found, sizes, strict=True))


def test_rows_in_common_are_divided_by_hand():
    """Four prompts of 128, 128, 128 and 112 rows, of which 130 differ: no row is counted twice."""
    assert [cost.rows for cost in costs([128, 128, 128, 112], 130, 0, 6)] == [33, 34, 33, 30]


def test_repeated_rows_are_divided_like_the_others():
    """Each part has its share, and never more than its rows."""
    found = costs([10, 10, 20], 40, 8, 0)
    assert [cost.rows_repeated for cost in found] == [2, 2, 4]
