"""Finds the tokens that a configuration accepts, by a byte trie of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import ROOT, BoolArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.grammar.machine.machine import DEAD, UNKNOWN, Recogniser

ByteArray = NDArray[np.uint8]

BOUNDARY, BROKEN = 0, 8
"""UTF-8 phases: between characters, and after a byte that is invalid at its position.

The phases in between are inside a character.
"""
LEADS: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...] = (
    (0xC2, 0xDF, ((0x80, 0xBF),)),
    (0xE0, 0xE0, ((0xA0, 0xBF), (0x80, 0xBF))),
    (0xE1, 0xEC, ((0x80, 0xBF), (0x80, 0xBF))),
    (0xED, 0xED, ((0x80, 0x9F), (0x80, 0xBF))),
    (0xEE, 0xEF, ((0x80, 0xBF), (0x80, 0xBF))),
    (0xF0, 0xF0, ((0x90, 0xBF), (0x80, 0xBF), (0x80, 0xBF))),
    (0xF1, 0xF3, ((0x80, 0xBF), (0x80, 0xBF), (0x80, 0xBF))),
    (0xF4, 0xF4, ((0x80, 0x8F), (0x80, 0xBF), (0x80, 0xBF))),
)
"""UTF-8 sequences of more than one byte (RFC 3629, section 4).

Each entry holds the first and last lead byte and the ranges of the following bytes.
"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ByteTrie:
    """A trie of N nodes in breadth-first order over R tokens.

    Node 0 is the root, which has no bytes. The R tokens are those that have bytes,
    without the end-of-generation tokens. The children of node n are `first_child[n]` to
    `first_child[n + 1]` (exclusive), ordered by byte. Tokens are numbered ("ranked") by
    their bytes, and by id where bytes are equal. Therefore the tokens at or below a
    node form a range of ranks, and those that end at the node come first in it.

    Attributes:
        byte: uint8[N], the last byte of each node; 0 for the root.
        parent: int32[N], the parent of each node; 0 for the root.
        first_child: int32[N+1], the first child of each node.
        phase: uint8[N], where in a character the node's bytes end, counted from the
            token's start (`BOUNDARY`, `BROKEN` or inside).
        first_rank: int32[N], the first rank of the tokens with exactly these bytes.
        own_stop: int32[N], the end (exclusive) of the tokens with exactly these bytes,
            and the start of the longer tokens below the node.
        last_rank: int32[N], the end (exclusive) of the tokens below the node.
        own_rank: int32[N], the first rank with exactly these bytes, or R if there is
            none.
        token: int32[R], the id of each rank.
        rank: int32[V], the rank of each id; R for tokens not in the trie.
        repeats: int32[], ascending ranks whose bytes equal those of the rank before.
        levels: First node of each depth, and finally N.
    """

    byte: ByteArray
    parent: IntArray
    first_child: IntArray
    phase: ByteArray
    first_rank: IntArray
    own_stop: IntArray
    last_rank: IntArray
    own_rank: IntArray
    token: IntArray
    rank: IntArray
    repeats: IntArray
    levels: tuple[int, ...]

    @property
    def n_nodes(self) -> int:
        """Return the number of nodes, N."""
        return len(self.byte)

    @property
    def n_bytes(self) -> int:
        """Return the memory held by the arrays, in bytes."""
        arrays = (self.byte, self.parent, self.first_child, self.phase, self.first_rank, self.own_stop, self.last_rank)
        return sum(array.nbytes for array in (*arrays, self.own_rank, self.token, self.rank, self.repeats))

    def find(self, text: bytes) -> int:
        """Return the node of these bytes, or -1 if no token starts with them."""
        node = 0
        for byte in text:
            first, stop = int(self.first_child[node]), int(self.first_child[node + 1])
            child = first + int(np.searchsorted(self.byte[first:stop], byte))
            if child == stop or self.byte[child] != byte:
                return -1
            node = child
        return node


def byte_trie(vocabulary: Vocabulary) -> ByteTrie:
    """Return a vocabulary's trie, built on first use and kept with the vocabulary.

    Building it takes 0.2 s for 151 936 tokens.
    """
    return vocabulary.derived(_build_trie)


def _build_trie(vocabulary: Vocabulary) -> ByteTrie:
    """Build the trie without a loop over tokens.

    The sorted tokens are grouped by one more byte at each level: a node is a run of
    tokens with equal prefixes.
    """
    token, flat, lengths = _sort_tokens(vocabulary)
    n_ranks = len(token)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    root = np.zeros(1, dtype=np.int32)
    columns = [[root.astype(np.uint8), root, root, root, np.array([n_ranks], dtype=np.int32), root]]
    active, node, levels, n_nodes = np.arange(n_ranks), np.zeros(n_ranks, dtype=np.int64), [0], 1
    for depth in range(int(lengths.max(initial=0))):
        goes_on = lengths[active] > depth
        active, node = active[goes_on], node[goes_on]
        byte = flat[starts[active] + depth]
        is_new = np.ones(len(active), dtype=np.bool_)
        # A new node begins where the parent or the byte differs from the token before.
        is_new[1:] = (node[1:] != node[:-1]) | (byte[1:] != byte[:-1])
        heads = np.flatnonzero(is_new)
        tails = np.append(heads[1:], len(active)) - 1
        n_own = np.add.reduceat(lengths[active] == depth + 1, heads, dtype=np.int64)
        first = active[heads]
        parent = node[heads]
        columns.append([byte[heads], parent, first, first + n_own, active[tails] + 1, n_own])
        levels.append(n_nodes)
        node = np.cumsum(is_new) - 1 + n_nodes
        n_nodes += len(heads)
    return _complete_trie(
        vocabulary, token, (*levels, n_nodes), [np.concatenate(column) for column in zip(*columns, strict=True)]
    )


def _complete_trie(
    vocabulary: Vocabulary, token: IntArray, levels: tuple[int, ...], columns: list[NDArray[np.generic]]
) -> ByteTrie:
    """Build a trie from the columns of its nodes and derive the other arrays.

    The columns are byte, parent, first_rank, own_stop, last_rank and the number of
    tokens that end at each node.
    """
    byte, parent, n_own = columns[0].astype(np.uint8), columns[1].astype(np.int64), columns[5].astype(np.int64)
    first_rank, own_stop, last_rank = (column.astype(np.int32) for column in columns[2:5])
    n_nodes, n_ranks = len(byte), len(token)
    first_child = np.ones(n_nodes + 1, dtype=np.int32)
    first_child[1:] += np.cumsum(np.bincount(parent[1:], minlength=n_nodes)).astype(np.int32)
    phase = np.full(n_nodes, BOUNDARY, dtype=np.uint8)
    table = utf8_phases()
    for start, stop in pairwise(levels[1:]):
        phase[start:stop] = table[phase[parent[start:stop]], byte[start:stop]]
    rank = np.full(vocabulary.n_tokens, n_ranks, dtype=np.int32)
    rank[token] = np.arange(n_ranks, dtype=np.int32)
    is_repeat = np.ones(n_ranks, dtype=np.bool_)
    is_repeat[first_rank[n_own > 0]] = False
    return ByteTrie(
        byte=byte,
        parent=parent.astype(np.int32),
        first_child=first_child,
        phase=phase,
        first_rank=first_rank,
        own_stop=own_stop,
        last_rank=last_rank,
        own_rank=np.where(n_own > 0, first_rank, n_ranks).astype(np.int32),
        token=token,
        rank=rank,
        repeats=np.flatnonzero(is_repeat).astype(np.int32),
        levels=levels,
    )


def _sort_tokens(vocabulary: Vocabulary) -> tuple[IntArray, ByteArray, NDArray[np.int64]]:
    """Return ids sorted by bytes, their bytes concatenated, and their lengths.

    End-of-generation tokens are left out.
    """
    texts, ids = vocabulary.by_bytes()
    kept = ~np.isin(ids, vocabulary.eog)
    if not kept.all():
        texts = [text for text, is_kept in zip(texts, kept.tolist(), strict=True) if is_kept]
    token = ids[kept].astype(np.int32)
    return token, np.frombuffer(b"".join(texts), dtype=np.uint8), vocabulary.lengths[token].astype(np.int64)


@cache
def utf8_phases() -> ByteArray:
    """Return uint8[9, 256]: the phase after one more byte.

    In phases 1 to 3, that many bytes of 80..BF are due. Phases 4 to 7 follow the lead
    bytes E0, ED, F0 and F4, which restrict the first of the bytes due.
    """
    table = np.full((BROKEN + 1, 256), BROKEN, dtype=np.uint8)
    table[BOUNDARY, :0x80] = BOUNDARY
    for due in (1, 2, 3):
        table[due, 0x80:0xC0] = due - 1
    narrow = iter(range(4, BROKEN))
    for first, last, following in LEADS:
        (low, high), due = following[0], len(following)
        phase = due if (low, high) == (0x80, 0xBF) else next(narrow)
        table[BOUNDARY, first : last + 1] = phase
        table[phase, low : high + 1] = due - 1
    table.setflags(write=False)
    return table


Groups = NDArray[np.uint64]

N_GROUPS = 63
BROKEN_BIT = np.uint64(1 << 63)
"""Marks bytes that begin no character at their position; they never lead back."""


class TrieGroups:
    """The character groups of each node of a trie.

    A group is a set of characters with certain lead bytes, and one of 63 bits.
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
        self.below, self.above = _groups_below(trie, own), _groups_above(trie, own)
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

    def nodes_of(self, group: int) -> IntArray:
        """Return int32[], the nodes whose last byte begins a character of the group.

        For `N_GROUPS`, returns the nodes that are broken UTF-8.
        """
        return self._by_group[self._group_start[group] : self._group_start[group + 1]]


class Loops:
    """Computes the character groups that leave a configuration of a machine unchanged.

    A group counts only if all of its characters lead from the configuration to itself.
    Only configurations that were passed to `compute` have groups. Memory: 9 bytes a
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
        """Return uint64[n], the known groups of each of n configurations.

        They are 0 for configurations that were not passed to `compute`.
        """
        self._grow()
        groups: Groups = self._groups[configurations]
        return groups

    def compute(self, configuration: int) -> int:
        """Return the character groups that leave a configuration unchanged.

        They are computed on first use; bit i of the result is group i.
        """
        self._grow()
        if not self._is_known[configuration]:
            groups = self._compute_groups(configuration)
            self._grow()
            self._groups[configuration], self._is_known[configuration] = groups, True
        return int(self._groups[configuration])

    def _compute_groups(self, configuration: int) -> np.uint64:
        """Return the groups whose characters all lead back to the configuration."""
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


def _groups_below(trie: ByteTrie, own: Groups) -> Groups:
    """Return `TrieGroups.below`; `own` holds the group that begins at each node."""
    below = np.zeros(trie.n_nodes, dtype=np.uint64)
    for start, stop in reversed(list(pairwise(trie.levels))):
        first = trie.first_child[start : stop + 1]
        parents = np.flatnonzero(first[:-1] < first[1:])
        if len(parents):
            children = slice(int(first[0]), int(first[-1]))
            joint = own[children] | below[children]
            below[start + parents] = np.bitwise_or.reduceat(joint, first[parents] - first[0])
    is_inside = (trie.phase != BOUNDARY) & (trie.first_child[:-1] < trie.first_child[1:])
    # Nodes inside a character; see `TrieGroups.below`.
    below[is_inside] |= BROKEN_BIT
    return below


def _groups_above(trie: ByteTrie, own: Groups) -> Groups:
    """Return `TrieGroups.above`; `own` holds the group that begins at each node."""
    above: Groups = own.copy()
    for start, stop in pairwise(trie.levels[1:]):
        above[start:stop] |= above[trie.parent[start:stop]]
    return above


Indices = NDArray[np.intp]

_HEAVY = 512
"""Minimum number of tokens below a configuration's nodes to compute its `Loops`."""
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
            landed.append(self._live_children(nodes, states))
            nodes, states = (np.concatenate(parts) for parts in zip(*landed, strict=True))
            result.alive.append(nodes)
            has_more = np.flatnonzero(below[nodes])
            nodes, states = nodes[has_more], states[has_more]
        return self._gather_tokens(result)

    def _ask(self, nodes: Indices, states: Indices) -> list[int]:
        """Compute the loops of configurations with many tokens below their nodes.

        A loop is a group of characters that leads back to the configuration. Returns
        the configurations that have one.
        """
        configurations, which = np.unique(states, return_inverse=True)
        weights = np.bincount(which, self._trie.last_rank[nodes] - self._trie.own_stop[nodes])
        return [each for each in configurations[weights >= _HEAVY].tolist() if self._loops.compute(each)]

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
            accepted = _flag_ranges(len(trie.token), starts, stops)
        row = self._machine.table[configuration]
        # Groups of characters that are allowed and lead to other configurations.
        others_alive = np.unique(np.flatnonzero(row != DEAD) % N_GROUPS)
        others_alive = others_alive[(others >> others_alive.astype(np.uint64)) & np.uint64(1) != 0]
        first = np.concatenate([groups.nodes_of(each) for each in (*others_alive.tolist(), N_GROUPS)])
        parents = trie.parent[first]
        first = first[((groups.above[parents] & others) == 0) & accepted[trie.first_rank[first]]].astype(np.intp)
        before = self._states_before(configuration, first)
        first, before = first[before != DEAD], before[before != DEAD]
        accepted[-1] = False
        accepted[:-1] &= (groups.of_token & others) == 0
        result.leapt = accepted if result.leapt is None else result.leapt | accepted
        return nodes[~is_own], states[~is_own], *self._filter_alive(first, before)

    def _states_before(self, configuration: int, nodes: Indices) -> Indices:
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

    def _live_children(self, nodes: Indices, states: Indices) -> tuple[Indices, Indices]:
        """Return the live children of live nodes, and their configurations."""
        first = self._trie.first_child[nodes]
        counts = self._trie.first_child[nodes + 1] - first
        children = _concatenate_ranges(first, counts)
        return self._filter_alive(children, np.repeat(states, counts))

    def _filter_alive(self, nodes: Indices, before: Indices) -> tuple[Indices, Indices]:
        """Return the nodes that are live, and their configurations.

        `before` holds the configuration before the last byte of each node. A
        node is live if its configuration is not `DEAD`.
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

    def _gather_tokens(self, result: _WalkResult) -> tuple[Indices, None] | tuple[None, BoolArray]:
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
            own = _concatenate_ranges(own, trie.own_stop[nodes] - own)
        whole = np.concatenate([np.empty(0, dtype=np.intp), *result.wholes])
        starts, stops = trie.own_stop[whole], trie.last_rank[whole]
        if result.leapt is None and (len(own) + int((stops - starts).sum())) * _MANY <= n_ranks:
            return np.concatenate([own, _concatenate_ranges(starts, stops - starts)]), None
        if result.leapt is None:
            flags = _flag_ranges(n_ranks, starts, stops)
        else:
            flags = result.leapt | _flag_ranges(n_ranks, starts, stops) if len(whole) else result.leapt
        flags[own] = True
        return None, flags


def _flag_ranges(n_ranks: int, starts: NDArray[np.int32], stops: NDArray[np.int32]) -> BoolArray:
    """Return bool[R+1]: whether a rank is in one of the ranges; the last is False.

    The ranges do not overlap, and each start and each stop occurs once.
    """
    change = np.zeros(n_ranks + 1, dtype=np.int8)
    change[starts] += 1
    change[stops] -= 1
    return np.cumsum(change, dtype=np.int8).view(np.bool_)


def _concatenate_ranges(starts: NDArray[np.signedinteger], counts: NDArray[np.signedinteger]) -> Indices:
    """Return the concatenated ranges of `counts[i]` integers from `starts[i]` on."""
    stops = np.cumsum(counts)
    total = int(stops[-1]) if len(stops) else 0
    return np.repeat(starts - stops + counts, counts) + np.arange(total)
