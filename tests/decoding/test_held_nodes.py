"""The nodes that a task holds: which are given up, and at what cost."""

from __future__ import annotations

import pytest

from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT, Capacity
from selectrie.decoding.search_state import HeldNodes


class CountingList(list):
    """A list that counts how often an item is read."""

    n_reads = 0

    def __getitem__(self, index):
        self.n_reads += 1
        return super().__getitem__(index)


class Paths:
    """Paths of one length that share only the root; path i ends at node (i + 1) * length."""

    def __init__(self, n, length):
        self.token = [NO_TOKEN] + [2] * (n * length)
        self.parent = CountingList(
            [NO_NODE, *(ROOT if (node - 1) % length == 0 else node - 1 for node in range(1, n * length + 1))]
        )


@pytest.mark.parametrize("n_given_up", [1, 1999, 2000])
def test_a_long_path_is_given_up_from_its_end_in_one_pass(n_given_up):
    """Only as much goes as the next path needs, and each node's parent is read a few times."""
    length = 2000
    tree = Paths(2, length)
    held = HeldNodes(tree)
    evaluated = [False] * (2 * length + 1)
    wide = Capacity(rows=2 * length, nodes=2 * length, sequences=2)
    held.plan([length], evaluated, wide)
    tree.parent.n_reads = 0
    ask, expected = held.plan([2 * length], evaluated, Capacity(2 * length, 2 * length - n_given_up, 2))
    assert ask.release.tolist() == list(range(length, length - n_given_up, -1))
    assert expected == list(range(length + 1, 2 * length + 1))
    assert tree.parent.n_reads < 20 * length
