"""Finds tokens that leave a configuration unchanged, by the characters in them.

Inside a string, a name or a comment, most characters lead back to the same
configuration. A token of only such characters does too, so it can be accepted without a
step of the machine.

Characters are compared in groups. The group of a character is the class of its first
byte, modulo 63; a class consists of bytes that the machine does not distinguish. So a
set of characters is a uint64: one bit for each group, and bit 63 for invalid UTF-8.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import BoolArray, IntArray
from selectrie.grammar.machine.machine import DEAD
from selectrie.grammar.machine.recogniser import Recogniser
from selectrie.grammar.tokens.byte_trie import BOUNDARY, BROKEN, LEADS, ByteTrie

Groups = NDArray[np.uint64]

N_GROUPS = 63
BROKEN_BIT = np.uint64(1 << 63)
"""Marks bytes that begin no character at their position; they never lead back."""


class TrieGroups:
    """The character groups of each node of a trie.

    Memory: 21 bytes a node and 8 a token.

    Attributes:
        below: uint64[N], groups of the characters below a node; 0 for a leaf.
            `BROKEN_BIT` is set if a node below is broken UTF-8, or if the node is
            inside a character and has children.
        above: uint64[N], groups of the characters from the root to the node, including
            an incomplete one.
        of_token: uint64[R], `above` of each token by rank.
    """

    def __init__(self, trie: ByteTrie, group_of_byte: Groups) -> None:
        group = group_of_byte[trie.byte].astype(np.uint8)
        is_first = (trie.byte < 0x80) | (trie.byte >= LEADS[0][0])
        is_broken = trie.phase == BROKEN
        own = np.where(is_first, np.left_shift(np.uint64(1), group.astype(np.uint64)), np.uint64(0))
        own[is_broken] = BROKEN_BIT
        own[0] = 0
        self.below, self.above = _below(trie, own), _above(trie, own)
        ends = np.flatnonzero(trie.own_rank < len(trie.token))
        ends = ends[np.argsort(trie.own_rank[ends])]
        self.of_token = np.repeat(self.above[ends], trie.own_stop[ends] - trie.own_rank[ends])
        group[is_broken] = N_GROUPS
        group[~is_first & ~is_broken] = N_GROUPS + 1
        group[0] = N_GROUPS + 1
        self._by_group = np.argsort(group, kind="stable").astype(np.int32)
        self._group_start = np.searchsorted(group[self._by_group], np.arange(N_GROUPS + 2))

    @property
    def n_bytes(self) -> int:
        """Return the memory held, in bytes."""
        return self.below.nbytes + self.above.nbytes + self.of_token.nbytes + self._by_group.nbytes

    def beginning(self, group: int) -> IntArray:
        """Return int32[]: the nodes whose last byte begins a character of the group.

        For `N_GROUPS`, returns the nodes that are broken UTF-8.
        """
        return self._by_group[self._group_start[group] : self._group_start[group + 1]]


class Loops:
    """Computes the character groups that leave a configuration of a machine unchanged.

    A group counts only if all of its characters lead from the configuration to itself.
    Only configurations that were passed to `ask` have groups. Memory: 9 bytes a
    configuration.
    """

    def __init__(self, machine: Recogniser) -> None:
        self._machine = machine
        self.group_of_byte: Groups = (machine.class_of % N_GROUPS).astype(np.uint64)
        self._every = np.bitwise_or.reduce(np.left_shift(np.uint64(1), self.group_of_byte))
        self._groups: Groups = np.zeros(64, dtype=np.uint64)
        self._is_known: BoolArray = np.zeros(64, dtype=np.bool_)

    @property
    def n_bytes(self) -> int:
        """Return the memory held, in bytes."""
        return self._groups.nbytes + self._is_known.nbytes

    def of(self, configurations: NDArray[np.intp]) -> Groups:
        """Return uint64[n]: the known groups of each configuration."""
        self._grow()
        groups: Groups = self._groups[configurations]
        return groups

    def ask(self, configuration: int) -> int:
        """Compute and return the groups of one configuration."""
        self._grow()
        if not self._is_known[configuration]:
            groups = self._leading_back(configuration)
            self._grow()
            self._groups[configuration], self._is_known[configuration] = groups, True
        return int(self._groups[configuration])

    def _leading_back(self, configuration: int) -> np.uint64:
        machine = self._machine
        classes = np.arange(machine.n_classes, dtype=np.int32)
        machine.fill(np.full(machine.n_classes, configuration, dtype=np.int32), classes)
        after = machine.table[configuration][machine.class_of]
        leads_back = after == configuration
        leads_back[0x80:] = True  # bytes that begin no character belong to no group
        for first, last, following in LEADS:
            leads_back[first : last + 1] = False
            for reached in set(after[first : last + 1].tolist()) - {DEAD}:
                if self._all_lead_to(configuration, reached, following):
                    leads_back[first : last + 1] |= after[first : last + 1] == reached
        lost = np.left_shift(np.uint64(1), self.group_of_byte[~leads_back])
        groups: np.uint64 = self._every & ~np.bitwise_or.reduce(lost, initial=BROKEN_BIT)
        return groups

    def _all_lead_to(self, configuration: int, start: int, following: tuple[tuple[int, int], ...]) -> bool:
        """Return whether all byte sequences lead from `start` to `configuration`.

        A sequence has one byte of each range in `following`.
        """
        machine = self._machine
        reached = {start}
        for low, high in following:
            classes = np.unique(machine.class_of[low : high + 1]).tolist()
            pairs = np.array([(each, one) for each in reached for one in classes], dtype=np.int32)
            machine.fill(pairs[:, 0], pairs[:, 1])
            reached = set(machine.table[pairs[:, 0], pairs[:, 1]].tolist())
            if DEAD in reached:
                return False
        return reached == {configuration}

    def _grow(self) -> None:
        """Enlarge the arrays to the machine's current number of configurations."""
        n, capacity = self._machine.n_configurations, len(self._groups)
        if n > capacity:
            self._groups = np.concatenate([self._groups, np.zeros(2 * n - capacity, dtype=np.uint64)])
            self._is_known = np.concatenate([self._is_known, np.zeros(2 * n - capacity, dtype=np.bool_)])


def _below(trie: ByteTrie, own: Groups) -> Groups:
    below = np.zeros(trie.n_nodes, dtype=np.uint64)
    for start, stop in reversed(list(pairwise(trie.levels))):
        first = trie.first_child[start : stop + 1]
        parents = np.flatnonzero(first[:-1] < first[1:])
        if len(parents):
            children = slice(int(first[0]), int(first[-1]))
            joint = own[children] | below[children]
            below[start + parents] = np.bitwise_or.reduceat(joint, first[parents] - first[0])
    is_inside = (trie.phase != BOUNDARY) & (trie.first_child[:-1] < trie.first_child[1:])
    below[is_inside] |= BROKEN_BIT
    return below


def _above(trie: ByteTrie, own: Groups) -> Groups:
    above: Groups = own.copy()
    for start, stop in pairwise(trie.levels[1:]):
        above[start:stop] |= above[trie.parent[start:stop]]
    return above
