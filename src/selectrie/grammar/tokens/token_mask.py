"""Finds the tokens that a configuration accepts by walking the vocabulary's byte trie.

A node is live if the machine accepts its bytes. A whole level takes a few numpy calls:
the children of the live nodes, the classes of their bytes, and one gather from the
machine's table. Python code runs only for new pairs of configuration and class
(`Machine.fill`).

Two shortcuts make the first walk of a state cheap (see `characters`):

- *leaps*: if many tokens are below the nodes of a configuration, those made only of
  characters that lead back to it are accepted without a step; the walk continues at the
  nodes where another character begins.
- *whole nodes*: if all characters below a node lead back to its configuration, every
  token below it is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import ROOT, BoolArray
from selectrie.grammar.machine.machine import DEAD, UNKNOWN
from selectrie.grammar.machine.recogniser import Recogniser
from selectrie.grammar.tokens.byte_trie import BOUNDARY, ByteTrie
from selectrie.grammar.tokens.characters import N_GROUPS, Loops, TrieGroups

Indices = NDArray[np.intp]

_HEAVY = 512
"""Minimum number of tokens below a configuration's nodes for `Loops.ask` to pay off."""
_LEVELS_WITH_LOOPS = 3
_LEAP = 8192
"""Minimum number of tokens below a configuration's nodes for a leap to pay off.

A leap costs about 0.3 ms.
"""
_LEVELS_LEAPT = 1
_MANY = 16
"""A set of more than 1/16 of all ranks is returned as a row of flags."""


@dataclass(slots=True)
class _WalkResult:
    """The result of a walk.

    Attributes:
        alive: The live nodes.
        wholes: Nodes below which every token is accepted.
        leapt: bool[R+1], flags by rank of the tokens that leaps accepted, or None.
    """

    alive: list[Indices] = field(default_factory=list)
    wholes: list[Indices] = field(default_factory=list)
    leapt: BoolArray | None = None


class TrieWalk:
    """Finds accepted tokens by walking a byte trie with a machine.

    Construction takes about 10 ms for 151 936 tokens.
    """

    def __init__(self, machine: Recogniser, trie: ByteTrie) -> None:
        self._machine, self._trie = machine, trie
        self._class_of_node = machine.class_of[trie.byte]
        self._loops = Loops(machine)
        self._groups = TrieGroups(trie, self._loops.group_of_byte)

    @property
    def n_bytes(self) -> int:
        """Return the memory held, in bytes."""
        return self._class_of_node.nbytes + self._loops.n_bytes + self._groups.n_bytes

    def ranks(self, configuration: int, node: int = 0) -> tuple[Indices, None] | tuple[None, BoolArray]:
        """Return the tokens below `node` that a configuration accepts.

        Only the bytes after `node` are read from the configuration on; tokens that end
        at `node` are excluded. The result is an array of distinct ranks in no order or,
        if there are many, bool[R+1] by rank whose last element is False.
        """
        self._machine.begin()
        nodes, states = np.array([node], dtype=np.intp), np.array([configuration], dtype=np.intp)
        result, below, level = _WalkResult(), self._groups.below, 0
        while len(nodes):
            landed = [(nodes[:0], states[:0])]
            if level < _LEVELS_WITH_LOOPS:
                heavy = self._ask(nodes, states)
                for each in heavy if level < _LEVELS_LEAPT else ():
                    nodes, states, *there = self._leap(nodes, states, each, result)
                    landed.append((there[0], there[1]))
            level += 1
            open_groups = below[nodes] & ~self._loops.of(states)
            is_whole = open_groups == 0
            if is_whole.any():
                result.wholes.append(nodes[is_whole])
                nodes, states = nodes[~is_whole], states[~is_whole]
            landed.append(self._children(nodes, states))
            nodes, states = (np.concatenate(parts) for parts in zip(*landed, strict=True))
            result.alive.append(nodes)
            has_more = np.flatnonzero(below[nodes])
            nodes, states = nodes[has_more], states[has_more]
        return self._gathered(result)

    def _ask(self, nodes: Indices, states: Indices) -> list[int]:
        """Compute `Loops` for the configurations with many tokens below their nodes.

        Returns those of them that some character group leads back to.
        """
        configurations, which = np.unique(states, return_inverse=True)
        weights = np.bincount(which, self._trie.last_rank[nodes] - self._trie.own_stop[nodes])
        return [each for each in configurations[weights >= _HEAVY].tolist() if self._loops.ask(each)]

    def _leap(self, nodes: Indices, states: Indices, configuration: int, result: _WalkResult) -> tuple[Indices, ...]:
        """Accept the tokens below a configuration's nodes that leave it unchanged.

        They consist of characters that lead back to the configuration. Returns the
        remaining nodes and configurations, and then the nodes, with configurations, at
        which other characters begin. Does nothing if few tokens are below.
        """
        trie, groups, nothing = self._trie, self._groups, nodes[:0]
        others = ~self._loops.of(np.array([configuration]))[0]
        is_own = (states == configuration) & (trie.phase[nodes] == BOUNDARY) & ((groups.above[nodes] & others) == 0)
        own = nodes[is_own]
        starts, stops = trie.own_stop[own], trie.last_rank[own]
        if int((stops - starts).sum()) < _LEAP:
            return nodes, states, nothing, nothing
        accepted = np.ones(len(trie.token) + 1, dtype=np.bool_)
        if own[0] != ROOT:
            accepted = _covered(len(trie.token), starts, stops)
        row = self._machine.table[configuration]
        others_alive = np.unique(np.flatnonzero(row != DEAD) % N_GROUPS)
        others_alive = others_alive[(others >> others_alive.astype(np.uint64)) & np.uint64(1) != 0]
        first = np.concatenate([groups.beginning(each) for each in (*others_alive.tolist(), N_GROUPS)])
        parents = trie.parent[first]
        first = first[((groups.above[parents] & others) == 0) & accepted[trie.first_rank[first]]].astype(np.intp)
        before = self._before(configuration, first)
        first, before = first[before != DEAD], before[before != DEAD]
        accepted[-1] = False
        accepted[:-1] &= (groups.of_token & others) == 0
        result.leapt = accepted if result.leapt is None else result.leapt | accepted
        return nodes[~is_own], states[~is_own], *self._alive(first, before)

    def _before(self, configuration: int, nodes: Indices) -> Indices:
        """Return the configuration before the last byte of each node.

        Before that byte, the nodes consist of characters that lead back to
        `configuration`; the last one may be incomplete.
        """
        trie = self._trie
        before = np.full(len(nodes), configuration, dtype=np.intp)
        for index in np.flatnonzero(trie.phase[trie.parent[nodes]] != BOUNDARY).tolist():
            node, prefix = int(trie.parent[nodes[index]]), b""
            while trie.phase[node] != BOUNDARY:
                prefix = bytes([trie.byte[node]]) + prefix
                node = int(trie.parent[node])
            before[index] = self._machine.walk(configuration, prefix)
        return before

    def _children(self, nodes: Indices, states: Indices) -> tuple[Indices, Indices]:
        """Return the live children of live nodes, and their configurations."""
        first = self._trie.first_child[nodes]
        counts = self._trie.first_child[nodes + 1] - first
        children = _ranges(first, counts)
        return self._alive(children, np.repeat(states, counts))

    def _alive(self, nodes: Indices, before: Indices) -> tuple[Indices, Indices]:
        """Return those of `nodes` that are live, and their configurations.

        `before` holds the configuration before the last byte of each node.
        """
        machine = self._machine
        cells = before * machine.n_classes + self._class_of_node[nodes]
        after = machine.table.ravel().take(cells)
        unknown = cells[after == UNKNOWN]
        if len(unknown):
            configurations, classes = np.divmod(np.unique(unknown), machine.n_classes)
            machine.fill(configurations.astype(np.int32), classes.astype(np.int32))
            after = machine.table.ravel().take(cells)
        is_alive = np.flatnonzero(after != DEAD)
        return nodes[is_alive], after[is_alive].astype(np.intp)

    def _gathered(self, result: _WalkResult) -> tuple[Indices, None] | tuple[None, BoolArray]:
        """Return the accepted tokens as ranks or, if there are many, as flags.

        They are the tokens that end at live nodes, all tokens below whole nodes, and
        the tokens that leaps accepted.
        """
        trie = self._trie
        n_ranks = len(trie.token)
        nodes = np.concatenate([np.empty(0, dtype=np.intp), *result.alive])
        nodes = nodes[trie.own_rank[nodes] < n_ranks]
        own = trie.own_rank[nodes].astype(np.intp)
        if len(trie.repeats):
            own = _ranges(own, trie.own_stop[nodes] - own)
        whole = np.concatenate([np.empty(0, dtype=np.intp), *result.wholes])
        starts, stops = trie.own_stop[whole], trie.last_rank[whole]
        if result.leapt is None and (len(own) + int((stops - starts).sum())) * _MANY <= n_ranks:
            return np.concatenate([own, _ranges(starts, stops - starts)]), None
        if result.leapt is None:
            flags = _covered(n_ranks, starts, stops)
        else:
            flags = result.leapt | _covered(n_ranks, starts, stops) if len(whole) else result.leapt
        flags[own] = True
        return None, flags


def _covered(n_ranks: int, starts: NDArray[np.int32], stops: NDArray[np.int32]) -> BoolArray:
    """Return bool[R+1]: whether a rank is in one of the ranges; the last is False.

    The ranges do not overlap, and each start and each stop occurs once.
    """
    change = np.zeros(n_ranks + 1, dtype=np.int8)
    change[starts] += 1
    change[stops] -= 1
    return np.cumsum(change, dtype=np.int8).view(np.bool_)


def _ranges(starts: NDArray[np.signedinteger], counts: NDArray[np.signedinteger]) -> Indices:
    """Return the concatenated ranges of `counts[i]` integers from `starts[i]` on."""
    stops = np.cumsum(counts)
    total = int(stops[-1]) if len(stops) else 0
    return np.repeat(starts - stops + counts, counts) + np.arange(total)
