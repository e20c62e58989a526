"""Which tokens a configuration of a machine accepts: a walk of the vocabulary's byte trie, level by level.

A whole level is a few numpy calls: children of the nodes that are alive, the classes of their bytes, one gather from the
machine's table. Python runs only for pairs of configuration and class that were never met (`Machine.fill`).

What makes the first walk of a state cheap is what it leaves out. Most bytes are read in states that characters lead back
to (inside a string, a name, a comment). So each node knows which characters occur below it, each such state which
characters lead back to it; where the former are among the latter every token below is accepted and none is walked.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from selectrie.grammar.byte_trie import BOUNDARY, BROKEN, LEADS, ByteTrie
from selectrie.grammar.machine import DEAD, UNKNOWN, Machine
from selectrie.types import BoolArray

Groups = NDArray[np.uint64]
Places = NDArray[np.intp]

_N_GROUPS = 63
_BROKEN_BIT = np.uint64(1 << 63)
"""Of bytes that begin no character where they stand; leads back from nowhere."""
_HEAVY = 512
"""Tokens below the nodes of one configuration from which it pays to ask which characters lead back to it."""
_LEVELS_ASKED = 3
_MANY = 16
"""A set of more than one rank in so many is a row of flags."""


class TrieWalk:
    """A machine and the byte trie of a vocabulary. Memory: 9 bytes a node, 9 a configuration."""

    def __init__(self, machine: Machine, trie: ByteTrie) -> None:
        self._machine, self._trie = machine, trie
        self._class_of_node = machine.class_of[trie.byte]
        self._group_of_byte = (machine.class_of % _N_GROUPS).astype(np.uint64)
        self._below = _groups_below(trie, self._group_of_byte)
        self._loops: Groups = np.zeros(64, dtype=np.uint64)
        self._is_asked: BoolArray = np.zeros(64, dtype=np.bool_)

    @property
    def n_bytes(self) -> int:
        """Memory held."""
        arrays = (self._class_of_node, self._below, self._loops, self._is_asked)
        return sum(array.nbytes for array in arrays)

    def ranks(self, configuration: int, node: int = 0) -> tuple[Places, None] | tuple[None, BoolArray]:
        """Tokens below `node` (those that end there excluded) whose bytes from it on the configuration accepts.

        Their ranks, distinct, in no order; or, where they are many, bool[R+1] by rank whose last is False.
        """
        nodes, states = np.array([node], dtype=np.intp), np.array([configuration], dtype=np.intp)
        alive: list[Places] = []
        wholes: list[Places] = []
        level = 0
        while len(nodes):
            if level < _LEVELS_ASKED:
                self._ask(nodes, states)
            level += 1
            open_groups = self._below[nodes] & ~self._loops[states]
            is_whole = open_groups == 0
            if is_whole.any():
                wholes.append(nodes[is_whole])
                rest = np.flatnonzero(open_groups)
                nodes, states = nodes[rest], states[rest]
            nodes, states = self._children(nodes, states)
            alive.append(nodes)
            has_more = np.flatnonzero(self._below[nodes])
            nodes, states = nodes[has_more], states[has_more]
        return self._gathered(alive, wholes)

    def _children(self, nodes: Places, states: Places) -> tuple[Places, Places]:
        """The children that are alive, and their configurations."""
        machine, trie = self._machine, self._trie
        first = trie.first_child[nodes]
        counts = trie.first_child[nodes + 1] - first
        children = _ranges(first, counts)
        cells = np.repeat(states * machine.n_classes, counts) + self._class_of_node[children]
        after = machine.table.ravel().take(cells)
        unknown = cells[after == UNKNOWN]
        if len(unknown):
            configurations, classes = np.divmod(np.unique(unknown), machine.n_classes)
            machine.fill(configurations.astype(np.int32), classes.astype(np.int32))
            after = machine.table.ravel().take(cells)
            self._grow()
        is_alive = np.flatnonzero(after != DEAD)
        return children[is_alive], after[is_alive].astype(np.intp)

    def _gathered(self, alive: list[Places], wholes: list[Places]) -> tuple[Places, None] | tuple[None, BoolArray]:
        """Own tokens of nodes that are alive and all tokens below those that are whole."""
        trie = self._trie
        n_ranks = len(trie.token)
        nodes = np.concatenate(alive) if alive else np.empty(0, dtype=np.intp)
        nodes = nodes[trie.own_rank[nodes] < n_ranks]
        own = trie.own_rank[nodes].astype(np.intp)
        if len(trie.repeats):
            own = _ranges(own, trie.own_stop[nodes] - own)
        whole = np.concatenate(wholes) if wholes else np.empty(0, dtype=np.intp)
        starts, stops = trie.own_stop[whole], trie.last_rank[whole]
        if (len(own) + int((stops - starts).sum())) * _MANY <= n_ranks:
            return np.concatenate([own, _ranges(starts, stops - starts)]), None
        # Ranges of different nodes are apart, so each start and each stop occurs once, and sums are 0 or 1.
        change = np.zeros(n_ranks + 1, dtype=np.int8)
        change[starts] += 1
        change[stops] -= 1
        flags = np.cumsum(change, dtype=np.int8).view(np.bool_)
        flags[own] = True
        return None, flags

    def _ask(self, nodes: Places, states: Places) -> None:
        """Find which characters lead back to the configurations that have many tokens below their nodes."""
        if self._is_asked[states].all():
            return
        weights = self._trie.last_rank[nodes] - self._trie.own_stop[nodes]
        found, which = np.unique(states, return_inverse=True)
        heavy = found[np.bincount(which, weights) >= _HEAVY]
        for configuration in heavy[~self._is_asked[heavy]].tolist():
            groups = self._leading_back(configuration)
            self._grow()
            self._loops[configuration], self._is_asked[configuration] = groups, True

    def _leading_back(self, configuration: int) -> np.uint64:
        """Groups of first bytes all of whose characters lead from the configuration to itself."""
        machine = self._machine
        classes = np.arange(machine.n_classes, dtype=np.int32)
        machine.fill(np.full(machine.n_classes, configuration, dtype=np.int32), classes)
        after = machine.table[configuration][machine.class_of]
        leads_back = after == configuration
        leads_back[0x80:] = True  # what begins no character is no member of a group
        for first, last, following in LEADS:
            leads_back[first : last + 1] = False
            for reached in set(after[first : last + 1].tolist()) - {DEAD}:
                if self._all_lead_to(configuration, reached, following):
                    leads_back[first : last + 1] |= after[first : last + 1] == reached
        lost = np.unique(self._group_of_byte[~leads_back])
        found: np.uint64 = ~np.bitwise_or.reduce(np.left_shift(np.uint64(1), lost), initial=_BROKEN_BIT)
        return found

    def _all_lead_to(self, configuration: int, start: int, following: tuple[tuple[int, int], ...]) -> bool:
        """Does every text of one byte of each of these ranges lead from `start` to the configuration?"""
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
        """Room for the configurations that the machine has by now."""
        n, room = self._machine.n_configurations, len(self._loops)
        if n > room:
            self._loops = np.concatenate([self._loops, np.zeros(2 * n - room, dtype=np.uint64)])
            self._is_asked = np.concatenate([self._is_asked, np.zeros(2 * n - room, dtype=np.bool_)])


def _groups_below(trie: ByteTrie, group_of_byte: Groups) -> Groups:
    """uint64[N]: groups of the first bytes of characters below each node, 0 where nothing is below.

    The highest bit: something below is broken UTF-8, or the node itself stands inside a character.
    """
    own = np.left_shift(np.uint64(1), group_of_byte[trie.byte])
    own[(trie.byte >= 0x80) & (trie.byte < LEADS[0][0])] = 0  # goes on with a character, or is broken
    own[trie.phase == BROKEN] = _BROKEN_BIT
    below = np.zeros(trie.n_nodes, dtype=np.uint64)
    for start, stop in reversed(list(pairwise(trie.levels))):
        first = trie.first_child[start : stop + 1]
        parents = np.flatnonzero(first[:-1] < first[1:])
        if len(parents):
            children = slice(int(first[0]), int(first[-1]))
            joint = own[children] | below[children]
            below[start + parents] = np.bitwise_or.reduceat(joint, first[parents] - first[0])
    is_inside = (trie.phase != BOUNDARY) & (trie.first_child[:-1] < trie.first_child[1:])
    below[is_inside] |= _BROKEN_BIT
    return below


def _ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> Places:
    """starts[0], starts[0] + 1, … counts[0] of them, and so on for each."""
    stops = np.cumsum(counts)
    total = int(stops[-1]) if len(stops) else 0
    return np.repeat(starts - stops + counts, counts) + np.arange(total)
