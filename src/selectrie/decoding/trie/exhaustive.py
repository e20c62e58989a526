"""Scores given texts: evaluates each needed row of a trie once, depth first.

`ScoreTask` is the task for this. The trie holds choices below a prompt, whole texts
whose log-likelihoods are summed, or prompts whose row values are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np

from selectrie.core.rows import Reads, Rows, TopTokens
from selectrie.core.sized_cache import SizedCache
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, Capacity, IntArray, OffsetArray
from selectrie.decoding.scoring.evaluation import ReadPlans, RowNeeds, TrieEvaluation, TrieReader
from selectrie.decoding.task import Ask, TaskBase
from selectrie.errors import ProtocolError

READ_ROWS_BYTES = 32 << 20
"""Maximum size of the cached values in bytes, about 40 000 rows of few values each."""

_ENTRY_BYTES, _VALUE_BYTES = 500, 150
"""Approximate bytes of a cache entry, and of each log-probability in it."""


@dataclass(frozen=True, slots=True, eq=False)
class RowValues:
    """Values of one row, all from the same evaluation.

    No log-probability is above 0: float32 rounding beyond probability 1 is cut off.

    Attributes:
        best: The most probable token (ties: the smaller id).
        logp: Log-probabilities by token.
        n_top: Number of most probable tokens that were read.
        top: Ids and log-probabilities of these tokens, best first (ties: the smaller id
            first). Impossible tokens are left out.
    """

    best: int
    logp: dict[int, float]
    n_top: int
    top: tuple[tuple[int, float], ...]

    def has(self, tokens: Iterable[int], n_top: int) -> bool:
        """Return whether the values include `tokens` and the `n_top` best tokens."""
        return n_top <= self.n_top and all(token in self.logp for token in tokens)

    @property
    def nbytes(self) -> int:
        """Return the approximate size of the values in bytes."""
        return _ENTRY_BYTES + _VALUE_BYTES * (len(self.logp) + len(self.top))


class ReadRows(SizedCache[bytes, RowValues]):
    """A cache of row values by the path of their node (`path_keys`).

    Only the model's thread adds values.
    """

    def __init__(self, max_bytes: int = READ_ROWS_BYTES) -> None:
        super().__init__(max_bytes)


def path_keys(trie: TokenTrie) -> list[bytes]:
    """Return the cache key of the path to each node; equal paths have equal keys.

    Each key is a digest of the parent's key and the token.
    """
    tokens, parents = trie.token.astype(np.int32).tobytes(), trie.parent.tolist()
    keys = [b""] * len(trie)
    for node in range(ROOT + 1, len(trie)):
        keys[node] = blake2b(keys[parents[node]] + tokens[4 * node : 4 * node + 4], digest_size=16).digest()
    return keys


WANTED_BYTES = 64 << 20
"""Maximum size of the logits that one ask wants, in bytes: 110 rows of 152k tokens.

A model may hold the logits of a whole call in memory; 512 rows of 152k tokens would be
311 MB.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PromptReads:
    """The values to read of each row, and the cache that may hold them.

    Attributes:
        top: Number of most probable tokens.
        named: Ids of tokens whose log-probabilities are read.
        n_vocabulary: Number of tokens of the vocabulary.
        known: The cache. Other tasks of the model may add values meanwhile.
    """

    top: int
    named: tuple[int, ...]
    n_vocabulary: int
    known: ReadRows

    def known_values(self, key: bytes, tokens: Sequence[int]) -> RowValues | None:
        """Return the cached values of a path if they include everything to read.

        Args:
            key: Key of the path.
            tokens: Tokens after it whose log-probabilities are read.
        """
        values = self.known.get(key)
        return values if values is not None and values.has((*tokens, *self.named), self.top) else None


class PromptValues:
    """Collects values of the rows of a trie, from rows or from a cache.

    Only the values to read are kept, not the whole row.

    Args:
        trie: The trie of texts below a prompt.
        keys: Key of the path to each node (`path_keys`), the prompt included.
        reads: The values to read of each row, and the cache.

    Attributes:
        of_node: The values by node.
    """

    def __init__(self, trie: TokenTrie, keys: Sequence[bytes], reads: PromptReads) -> None:
        self._trie, self._keys, self._of_row = trie, keys, reads
        self._named = np.array(reads.named, dtype=np.int32)
        self.of_node: dict[int, RowValues] = {}

    def max_rows(self, _first: int) -> int:
        """Return the maximum number of rows of an ask, whatever node it begins with."""
        return max(1, WANTED_BYTES // (4 * self._of_row.n_vocabulary))

    def take_cached(self, nodes: IntArray) -> BoolArray:
        """Take values from the cache; return bool[n], whether a node's were there."""
        return np.array([self._take_cached_node(node) for node in nodes.tolist()], dtype=np.bool_)

    def _take_cached_node(self, node: int) -> bool:
        """Take the values of one node from the cache, if all are there."""
        tokens = self._trie.token[self._trie.children(node)].tolist()
        values = self._of_row.known_values(self._keys[node], tokens)
        if values is None:
            return False
        self.of_node[node] = values
        return True

    def reads(self, reads: Reads) -> Reads:
        """Return `reads`, extended by the values to read of each row."""
        n, named, top = reads.n_rows, self._named, self._of_row.top
        return replace(
            reads,
            owner=np.concatenate([reads.owner, np.repeat(np.arange(n), len(named))]),
            ids=np.concatenate([reads.ids, np.tile(named, n)]),
            tops=tuple(TopTokens(i, top) for i in range(n if top else 0)),
        )

    def read(self, nodes: IntArray, rows: Rows, reader: TrieReader) -> None:
        """Store the values of the rows of `nodes`, which `reader` has read."""
        of_named = np.minimum(rows.logp(np.arange(len(nodes))[:, None], self._named[None, :]), 0.0).tolist()
        n_top = self._of_row.top
        for index, node in enumerate(nodes.tolist()):
            children = self._trie.children(node)
            logp = dict(zip(self._of_row.named, of_named[index], strict=True))
            logp.update(zip(self._trie.token[children].tolist(), reader.edge_logp[children].tolist(), strict=True))
            top: tuple[tuple[int, float], ...] = ()
            if n_top:
                ids, best_logp = rows.top(index, n_top)
                top = tuple(zip(ids.tolist(), np.minimum(best_logp, 0.0).tolist(), strict=True))
            values = RowValues(int(reader.best_token[node]), logp, n_top, top)
            self.of_node[node] = values
            self._of_row.known.put(self._keys[node], values)


def scoring_nodes(trie: TokenTrie, n_scored: OffsetArray) -> BoolArray:
    """Return bool[N], the nodes whose rows score the last tokens of C sequences.

    `n_scored` is int64[C], the number of scored tokens at the end of each sequence. The
    loop runs once for each depth, whatever the number of sequences.
    """
    wanted = np.zeros(len(trie), dtype=np.bool_)
    node, left = trie.path_node[trie.path_of], n_scored
    while len(node):
        going = left > 0
        node, left = trie.parent[node[going]], left[going] - 1
        wanted[node] = True
    return wanted


def mark_ancestors(trie: TokenTrie, wanted: BoolArray) -> BoolArray:
    """Return bool[N], the wanted nodes and all their ancestors except the root."""
    before = np.concatenate(([0], np.cumsum(wanted)))
    numbers = np.arange(len(trie))
    marked: BoolArray = before[numbers + trie.n_nodes_below + 1] > before[numbers]
    marked[ROOT] = False
    return marked


class DepthFirstOrder:
    """The wanted nodes of a trie and their ancestors in depth-first order.

    Tasks may share it.

    Args:
        wanted: bool[N], nodes whose rows are wanted. Their ancestors only lead to them.
            The root, which is local row 0, is not asked for.

    Attributes:
        nodes: int32[n], the marked nodes in order, the root first. The arrays below
            have one entry for each, and positions are indices into them.
        up: Position of the parent.
        last: Position of the last marked descendant, or of the node itself.
        last_child: Position of the last marked child; 0 if there is none.
        token, depth, wanted: Token, depth, and whether the row is wanted.
        leaves_before: int64[n + 1], number of paths that end before each position.
        floor: The capacity for one path and one row.
    """

    def __init__(self, trie: TokenTrie, wanted: BoolArray) -> None:
        marked = mark_ancestors(trie, wanted)
        marked[ROOT] = True
        # Entry 0 is the root, so a node's position is 1 + its number in the asks.
        self.nodes: IntArray = np.flatnonzero(marked).astype(np.int32)
        position = np.cumsum(marked) - 1
        last = self.nodes + trie.n_nodes_below[self.nodes]
        self.up = position[np.maximum(trie.parent[self.nodes], 0)].astype(np.int32)
        # Last marked descendant, or the node itself.
        self.last = position[last].astype(np.int32)
        self.last_child = np.zeros(len(self.nodes), dtype=np.int32)
        np.maximum.at(self.last_child, self.up[1:], np.arange(1, len(self.nodes), dtype=np.int32))
        self.token, self.depth, self.wanted = trie.token[self.nodes], trie.depth[self.nodes], wanted[self.nodes]
        n = len(self.nodes)
        # 1 where the next node is not a child, so that a path of the asks ends.
        turns = np.ones(n, dtype=np.int64)
        turns[:-1] = self.up[1:] != np.arange(n - 1)
        self.leaves_before = np.concatenate(([0], np.cumsum(turns)))
        self.whole_window: tuple[Ask, IntArray, IntArray] | None = None
        """The window of all nodes, its positions, and its nodes whose rows it wants.

        Most tasks of a table have this window alone.
        """
        self.floor = Capacity(rows=1, nodes=int(self.depth.max()), sequences=1)


class DepthFirstWindows:
    """Cuts the nodes of a trie into asks, which are windows of a depth-first order.

    In that order, only one path must stay alive between two asks. Every other subtree
    is either finished or not begun. An ask takes a few numpy calls, whatever its size.

    Args:
        order: The nodes.
        first_local: Local row of the first node asked for.
    """

    def __init__(self, order: DepthFirstOrder, first_local: int = 1) -> None:
        self._order, self.nodes = order, order.nodes
        self._shift = first_local - 1
        self._held: IntArray = np.empty(0, dtype=np.int32)
        self.at = 1

    @property
    def floor(self) -> Capacity:
        """Return the minimum capacity: the longest path, one branch and one row."""
        return self._order.floor

    @property
    def next_local(self) -> int:
        """Return the local row after the last one asked for."""
        return self.at + self._shift

    @property
    def held(self) -> IntArray:
        """Return the local rows asked for and not released, int32[]."""
        return np.asarray(self._held + self._shift, dtype=np.int32)

    @property
    def spent(self) -> IntArray:
        """Return the local rows of `held` that are no parent of a later node, int32[].

        A recurrent-state model does not need to keep their states.
        """
        return np.asarray(self._held[self._order.last_child[self._held] < self.at] + self._shift, dtype=np.int32)

    def next_window(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        """Return the next ask and the trie nodes whose rows it wants, int32[].

        None means that all nodes were asked for.
        """
        order, start = self._order, self.at
        if start == len(self.nodes):
            return None
        # All ancestors of the first node are alive, and nothing else is kept.
        carried = int(order.depth[start]) - 1
        stop = min(start + min(capacity.rows, capacity.nodes - carried), len(self.nodes))
        leaves = order.leaves_before[start] + capacity.sequences - 1
        stop = min(stop, int(np.searchsorted(order.leaves_before[: len(self.nodes)], leaves, side="right")))
        if start > 1 or stop < len(self.nodes) or self._shift:
            ask, self._held = self._window(start, stop)
            nodes = self.nodes[start:stop][ask.wanted]
        else:
            if order.whole_window is None:
                ask, held = self._window(start, stop)
                order.whole_window = ask, held, self.nodes[start:stop][ask.wanted]
            ask, self._held, nodes = order.whole_window
        self.at = stop
        return ask, nodes

    def _window(self, start: int, stop: int) -> tuple[Ask, IntArray]:
        """Return the ask for a range of positions, and the positions held after it."""
        order = self._order
        window = np.arange(start, stop, dtype=np.int32)
        up = order.up[start:stop]
        stays = order.last[self._held] >= start
        ask = Ask(
            # A parent is in this ask (~j), the root (0), or a local row of an earlier
            # ask.
            parents=np.where(up >= start, ~(up - start), np.where(up == 0, 0, up + self._shift)).astype(np.int32),
            tokens=order.token[start:stop],
            wanted=order.wanted[start:stop],
            # A node whose kept child is in the same ask needs no state.
            keep=order.last_child[start:stop] >= stop,
            release=self._held[~stays] + np.int32(self._shift),
        )
        return ask, np.concatenate([self._held[stays], window])


class ScorePlan:
    """Data for scoring a trie after any prompt, computed on first use and shared.

    Args:
        trie: The trie.
        needs: The rows to evaluate.
    """

    def __init__(self, trie: TokenTrie, needs: RowNeeds) -> None:
        self._trie, self._needs = trie, needs

    @cached_property
    def n_rows(self) -> int:
        """Return the number of rows to evaluate, including the root's."""
        return self._needs.n_rows

    @cached_property
    def depth(self) -> int:
        """Return the number of tokens of the longest path."""
        return int(self._trie.depth.max())

    @cached_property
    def n_branches(self) -> int:
        """Return the maximum number of nodes with several children on one path."""
        return int(self._trie.accumulate((np.diff(self._trie.child_start) > 1).astype(np.float64)).max())

    @cached_property
    def order(self) -> DepthFirstOrder:
        """Return the nodes to evaluate in depth-first order."""
        return DepthFirstOrder(self._trie, self._needs.row)

    @cached_property
    def read_plans(self) -> ReadPlans:
        """Return the plans for reading the rows."""
        return ReadPlans(self._trie, self._needs)


class ScoreTask(TaskBase[IntArray, TrieEvaluation]):
    """Evaluates the needed rows of a trie below a prompt.

    The result holds the numbers read from the rows. With any capacity of at least
    `floor`, each needed row below the prompt is evaluated once, and so is each node
    that only leads to one.

    Args:
        prompt: int32[T], the prompt. It may be empty if the row of the root, the empty
            context, is not needed: no model gives that row.
        trie: The trie.
        needs: The rows to evaluate.
        plan: Data that tasks for this trie with these needs share; None to compute it.
        max_rows: For tries of long texts: returns the maximum number of rows of the ask
            that begins with a node, given by its number in `DepthFirstOrder.nodes`. In
            a recurrent-state model, such texts are asked for as runs.
        values: Collects further values of the rows, some of which may be cached. A row
            with all its values cached is not evaluated.
    """

    asks_runs = True
    """Whether asks are long runs of rows, which take one state each (with `states`)."""

    def __init__(
        self,
        prompt: IntArray,
        trie: TokenTrie,
        needs: RowNeeds,
        plan: ScorePlan | None = None,
        *,
        max_rows: Callable[[int], int] | None = None,
        values: PromptValues | None = None,
    ) -> None:
        if needs.row[ROOT] and not len(prompt):
            raise ProtocolError("the row of the empty context is needed, and no model tells it")
        plan = ScorePlan(trie, needs) if plan is None else plan
        self._max_rows, self._values = max_rows, values
        self._reader = TrieReader(trie, needs, plan.read_plans)
        self._windows = DepthFirstWindows(plan.order)
        self.states = None if max_rows is None else plan.n_branches + 2
        """The maximum number of states that the task needs at once; None for one a row.

        On one path there is a state for each node with several children and one for the
        end. Another belongs to the run that is evaluated.
        """
        super().__init__(prompt, self._windows.floor, np.array([ROOT], dtype=np.int32) if len(prompt) else None)

    def _next_ask(self, capacity: Capacity) -> tuple[Ask, IntArray] | None:
        """Return the next ask and the nodes whose rows it wants, or None at the end."""
        if self._max_rows is None:
            return self._windows.next_window(capacity)
        # Long texts are asked for as runs; rows whose values are cached are not wanted.
        step = self._windows.next_window(replace(capacity, rows=min(capacity.rows, self._max_rows(self._windows.at))))
        if step is None:
            return None
        ask, nodes = step
        wanted = ask.wanted
        if self._values is not None:
            is_known = self._values.take_cached(nodes)
            wanted = wanted.copy()
            wanted[wanted] = ~is_known
            nodes = nodes[~is_known]
        return replace(ask, wanted=wanted, spent=self._windows.spent), nodes

    def _is_ignored(self, nodes: IntArray) -> bool:
        """Return whether the rows of `nodes` are ignored.

        That happens to the prompt's row, which the task gets even if it does not need
        it.
        """
        return not len(nodes) or not self._reader.needs.row[nodes[0]]

    def _reads(self, nodes: IntArray) -> Reads:
        """Return which values of the nodes' rows are read: none if ignored."""
        if self._is_ignored(nodes):
            return Reads(len(nodes))
        reads = self._reader.reads(nodes)
        return reads if self._values is None else self._values.reads(reads)

    def _read(self, nodes: IntArray, rows: Rows) -> None:
        """Read the rows of `nodes`, and further values of them if wanted."""
        if self._is_ignored(nodes):
            return
        self._reader.read(nodes, rows)
        if self._values is not None:
            self._values.read(nodes, rows, self._reader)

    def _result(self) -> TrieEvaluation:
        """Return the numbers read."""
        return self._reader.evaluation()
