"""The prefix tree that tracks which contexts are evaluated, held or cached."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core.model import rounds
from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT, BoolArray, IntArray, ModelKind
from selectrie.errors import CapacityError, NodeError, OptionError, ProtocolError, TokenRangeError

_DEAD = -1
"""Marks an id that is not in use, as its value in `references`."""

_MIN_UNUSED = 1024
"""A dropped id is reused only while more than this many ids are unused."""


@dataclass(frozen=True, slots=True, eq=False)
class CallPlan:
    """A call to `Model.extend` in which every distinct (parent, token) is one entry.

    There are B elements and E entries; parents come before their children.

    Attributes:
        entry: int[B], the entry of each element of the call.
        parent: int[E], a live node, or `~e` where the parent is the *new* entry e.
        token: int[E], the token of each entry.
        depth: int[E], the depth of each entry.
        node: int[E], the node of a pair that exists already, else NO_NODE (a new
            entry).
        wanted: bool[E], whether any element of the entry asks for logits.
        keep: bool[E], whether any element of the entry sets `keep`.
        n_new: Number of new entries.
        n_new_leaves: Number of new entries without children in the call.
    """

    entry: list[int]
    parent: list[int]
    token: list[int]
    depth: list[int]
    node: list[int]
    wanted: list[bool]
    keep: list[bool]
    n_new: int
    n_new_leaves: int

    def live_nodes(self) -> set[int]:
        """Return the existing nodes that the call needs: parents and repeated pairs."""
        return {p for p in self.parent if p >= 0}.union(n for n in self.node if n >= 0)

    def live_parents(self) -> set[int]:
        """Return the existing nodes that get new children in this call."""
        return {p for p, n in zip(self.parent, self.node, strict=True) if p >= 0 and n == NO_NODE}

    def nodes_of_entries(self, nodes: IntArray) -> list[int]:
        """Return the node of each entry, int[E], after the call was committed.

        `nodes` is int32[B], the node of each element, as `PrefixTree.commit` returns.
        """
        result = [NO_NODE] * len(self.node)
        for entry, node in zip(self.entry, nodes.tolist(), strict=True):
            result[entry] = node
        return result

    def entries_of_wanted(self, wanted: BoolArray) -> list[int]:
        """Return the entry of each wanted element, in the order of the call.

        `wanted` is bool[B], as in `Model.extend`. Elements may share an entry.
        """
        return [e for e, is_wanted in zip(self.entry, np.asarray(wanted).tolist(), strict=True) if is_wanted]


class PrefixTree:
    """A prefix tree, stored as flat columns indexed by node.

    The columns are plain lists, because they are read one value at a time, where numpy
    is slower.

    Attributes:
        parent: Parent of each node; NO_NODE for the root.
        token: Token of each node; NO_TOKEN for the root.
        depth: Number of tokens from the root.
        references: References held by callers; -1 for an id that is not in use.
        n_children: Number of direct children.
        used: The clock when the node was last extended, looked up or released. A
            dropped node passes its value to its parent, so using a node counts as using
            its ancestors.
        first_child: First child, or NO_NODE.
        next_sibling: Next child of the same parent, or NO_NODE.
        previous_sibling: Previous child of the same parent, or NO_NODE.
        clock: Number of rows evaluated so far.
    """

    def __init__(self, n_vocabulary: int) -> None:
        self._n_vocabulary = n_vocabulary
        self.parent, self.token, self.depth = [NO_NODE], [NO_TOKEN], [0]
        self.references, self.n_children, self.used = [0], [0], [0]
        self.first_child, self.next_sibling, self.previous_sibling = [NO_NODE], [NO_NODE], [NO_NODE]
        self.clock = self.n_nodes = self.n_leaves = self.n_held = self.n_held_leaves = 0
        self._held_children = [0]
        self._serial, self._n_added = [0], 0
        self._forgotten: set[int] = set()
        self._child: dict[int, int] = {}
        self._unused: deque[int] = deque()
        self._idle: list[tuple[int, int, int]] = []
        self._journal: tuple[CallPlan, list[int], list[int]] | None = None

    def clear(self) -> None:
        """Drop every node, with or without references.

        From then on their ids raise `NodeError`.
        """
        live = [n for n in range(1, len(self.references)) if self.references[n] != _DEAD]
        for node in live:
            self.references[node] = _DEAD
        self._unused.extend(live)
        self.references[ROOT] = self.n_children[ROOT] = 0
        self.first_child[ROOT] = NO_NODE
        self.n_nodes = self.n_leaves = self.n_held = self.n_held_leaves = 0
        self._forgotten.clear()
        self._child.clear()
        self._idle.clear()
        self._journal = None

    # Looking things up

    def _require(self, node: int) -> None:
        """Raise `NodeError` unless the node is live (the root always is)."""
        if not 0 <= node < len(self.references) or self.references[node] == _DEAD:
            raise NodeError(node, "is not in the tree: it was released and dropped, or never existed")

    def match_prefix(self, tokens: IntArray, usable: Callable[[int], bool] | None = None) -> tuple[int, int]:
        """Return the deepest node on the path of `tokens`, and its depth.

        Only nodes for which `usable(node)` is true count. If there is none, returns the
        root and 0.
        """
        node = best = ROOT
        lookup = self._child.get
        for token in np.asarray(tokens).tolist():
            node = lookup(node << 32 | token, NO_NODE)
            if node == NO_NODE:
                break
            if usable is None or usable(node):
                best = node
        return best, self.depth[best]

    def path(self, node: int) -> IntArray:
        """Return the tokens from the root to the node, int32[depth]."""
        self._require(node)
        tokens = []
        while node != ROOT:
            tokens.append(self.token[node])
            node = self.parent[node]
        return np.array(tokens[::-1], dtype=np.int32)

    # A call: plan, room, commit

    def plan(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> CallPlan:
        """Return the plan of a call of B elements. Changes nothing.

        The arguments are those of `Model.extend`.

        Raises:
            NodeError: If a parent is dead, or a `~j` does not point to an earlier
                element.
            TokenRangeError: If a token is outside the vocabulary.
            ProtocolError: If the four arrays differ in length.
        """
        p, t, w, k = (np.asarray(x).tolist() for x in (parents, tokens, wanted, keep))
        if not len(p) == len(t) == len(w) == len(k):
            raise ProtocolError(f"parents, tokens, wanted, keep have lengths {len(p)}, {len(t)}, {len(w)}, {len(k)}")
        if t and (min(t) < 0 or max(t) >= self._n_vocabulary):
            raise TokenRangeError(next(x for x in t if not 0 <= x < self._n_vocabulary), self._n_vocabulary)
        plan = CallPlan([], [], [], [], [], [], [], 0, 0)
        seen: dict[int, int] = {}
        carriers: set[int] = set()
        for i, (parent, token) in enumerate(zip(p, t, strict=True)):
            base = self._base(plan, i, parent)
            entry = seen.setdefault(base << 32 | token, len(plan.parent))
            plan.entry.append(entry)
            if entry < len(plan.parent):
                plan.wanted[entry] |= w[i]
                plan.keep[entry] |= k[i]
                continue
            plan.parent.append(base)
            plan.token.append(token)
            plan.depth.append((self.depth[base] if base >= 0 else plan.depth[~base]) + 1)
            plan.node.append(self._child.get(base << 32 | token, NO_NODE) if base >= 0 else NO_NODE)
            plan.wanted.append(w[i])
            plan.keep.append(k[i])
            carriers.add(base)
        n_new = plan.node.count(NO_NODE)
        inner = sum(1 for base in carriers if base < 0)
        return replace(plan, n_new=n_new, n_new_leaves=n_new - inner)

    def _base(self, plan: CallPlan, i: int, parent: int) -> int:
        """Return the parent of element i: a live node, or `~entry` for a new entry.

        `parent` is the argument: a node, or `~j` for element j.
        """
        if parent < 0:
            if ~parent >= i:
                raise NodeError(
                    parent, f"element {i} of the call names element {~parent}, which does not come before it"
                )
            entry = plan.entry[~parent]
            return plan.node[entry] if plan.node[entry] != NO_NODE else ~entry
        self._require(parent)
        return parent

    def make_room(self, plan: CallPlan, *, nodes: int, sequences: int, extra_sequences: int = 0) -> list[int]:
        """Return the cached nodes to drop, leaf first, so that the plan fits.

        After that the tree has at most `nodes` nodes and `sequences` leaves. Nothing is
        changed here.

        Args:
            plan: The call to make room for.
            nodes: Maximum number of nodes.
            sequences: Maximum number of leaves.
            extra_sequences: Leaves that the call occupies while it runs, besides its
                new nodes.

        Raises:
            CapacityError: If dropping every cached node that the call does not need is
                not enough.
        """
        parents = plan.live_parents()
        surplus = self.n_nodes + plan.n_new - nodes
        growth = plan.n_new_leaves - sum(1 for p in parents if p != ROOT and self.n_children[p] == 0)
        crowded = self.n_leaves + growth + extra_sequences - sequences
        if surplus <= 0 and crowded <= 0:
            return []
        dropped = []
        for node, ends_branch in self.eviction_order(plan.live_nodes()):
            dropped.append(node)
            surplus -= 1
            # A parent of the call that loses its last child becomes a leaf, and the
            # call then continues that leaf.
            crowded -= int(ends_branch or self.parent[node] in parents)
            if surplus <= 0 and crowded <= 0:
                return dropped
        if surplus > 0:
            raise CapacityError("nodes", required=plan.n_new, available=plan.n_new - surplus)
        required = plan.n_new_leaves + extra_sequences
        raise CapacityError("sequences", required=required, available=required - crowded)

    def commit(self, plan: CallPlan, rows: int) -> IntArray:
        """Add the plan's new nodes, and return int32[B], the node of each element.

        Every element adds one reference to its node. The clock advances by `rows`, the
        number of rows evaluated. If an interrupt raises an exception meanwhile, nothing
        stays added. Afterwards the caller may undo the commit with `rollback` as long
        as nothing else has changed.
        """
        made: list[int] = []
        held: list[int] = []
        self._journal = (plan, made, held)
        try:
            at = list(plan.node)
            for entry, node in enumerate(plan.node):
                if node == NO_NODE:
                    base = plan.parent[entry]
                    at[entry] = self._add(base if base >= 0 else at[~base], plan.token[entry], made)
            for entry in plan.entry:
                self._add_references(at[entry], 1)
                held.append(at[entry])
            self.clock += rows
            for node in {*at, *(p for p in plan.parent if p >= 0)}:
                self.used[node] = self.clock
            return np.array(held, dtype=np.int32)
        except BaseException:
            self.rollback(plan)
            raise

    def rollback(self, plan: CallPlan) -> None:
        """Undo the commit of a plan.

        Does nothing if the plan was not committed or if anything else has changed the
        tree since.
        """
        if self._journal is None or self._journal[0] is not plan:
            return
        _, made, held = self._journal
        self._journal = None
        for node in held:
            self._add_references(node, -1)
        for node in reversed(made):
            self._remove(node)

    # References

    def inc_ref(self, node: int) -> None:
        """Add a reference to a live node."""
        self._journal = None
        self._require(node)
        self._add_references(node, 1)
        self.used[node] = self.clock

    def release(self, nodes: IntArray, *, forget: bool = False) -> list[int]:
        """Remove one reference for each element of `nodes`.

        Returns the nodes to drop now, leaf first. The caller frees what it holds for
        them and then passes them to `drop`.

        Args:
            nodes: Nodes, repeated for every reference to remove.
            forget: Whether nodes left without references are dropped at once. A node
                with children is dropped with the last of them, unless it gets a
                reference or is found again before.

        Raises:
            NodeError: If a node is dead, or more references are released than held.
                Nothing has changed then.
        """
        self._journal = None
        released = np.asarray(nodes).tolist()
        for node, count in Counter(released).items():
            self._require(node)
            if self.references[node] < count:
                raise NodeError(node, f"{count} references released, {self.references[node]} held")
        for node in released:
            self._add_references(node, -1)
            self.used[node] = self.clock
            if not self.references[node] and not self.n_children[node]:
                self._mark_idle(node)
        if not forget:
            return []
        self._forgotten.update(n for n in released if n != ROOT and not self.references[n])
        return self._forgettable(released)

    def _forgettable(self, nodes: Iterable[int]) -> list[int]:
        """Return the forgotten nodes to drop after `nodes` were released, leaf first.

        A node with children is dropped with the last of them.
        """
        chosen = {n for n in nodes if n in self._forgotten}
        start = sorted(chosen, key=lambda n: (-self.depth[n], self._serial[n]))
        return self._cascade([n for n in start if not self.n_children[n]])

    def _cascade(self, leaves: list[int]) -> list[int]:
        """Return `leaves`, and the forgotten ancestors that then have no child left.

        They come leaf first.
        """
        gone: list[int] = []
        lost: Counter[int] = Counter()
        queue = deque(leaves)
        while queue:
            node = queue.popleft()
            gone.append(node)
            above = self.parent[node]
            lost[above] += 1
            if above in self._forgotten and lost[above] == self.n_children[above]:
                queue.append(above)
        return gone

    # Dropping

    def eviction_order(self, protected: Collection[int] = ()) -> Iterator[tuple[int, bool]]:
        """Yield cached nodes in eviction order: least recently used leaf first.

        Of several that were used last at the same time, the one that was added first
        comes first. Yields each node with whether dropping it ends a branch, that is,
        whether its parent is the root or keeps other children. Referenced and protected
        nodes and their ancestors never appear. Changes nothing; the tree must not
        change while this runs.
        """
        heap = list(self._idle)
        children_left: dict[int, int] = {}
        gone: set[int] = set()
        while heap:
            used, serial, node = heapq.heappop(heap)
            if node in gone or node in protected or self.references[node] or self._serial[node] != serial:
                continue
            exposed = children_left.get(node) == 0
            if not exposed and (self.n_children[node] or self.used[node] != used):
                continue
            gone.add(node)
            above = self.parent[node]
            left = children_left.get(above, self.n_children[above]) - 1
            children_left[above] = left
            yield node, above == ROOT or left > 0
            if left == 0 and above != ROOT:
                heapq.heappush(heap, (max(used, self.used[above]), self._serial[above], above))

    def idle(self, rows: int) -> list[int]:
        """Return the cached nodes not used during the last `rows` rows, leaf first.

        With `rows=0`, returns every cached node.
        """
        result: list[int] = []
        recent: dict[int, int] = {}
        for node, _ in self.eviction_order():
            used = max(self.used[node], recent.get(node, 0))
            if self.clock - used < rows:
                break
            above = self.parent[node]
            recent[above] = max(used, recent.get(above, 0))
            result.append(node)
        return result

    def drop(self, nodes: Iterable[int]) -> None:
        """Remove unreferenced nodes, leaf first.

        `release`, `make_room`, `eviction_order` and `idle` return nodes in a suitable
        order.
        """
        self._journal = None
        order = list(nodes)
        going = set(order)
        parent, used, references, n_children = self.parent, self.used, self.references, self.n_children
        try:
            for node in order:
                if not 0 < node < len(references) or references[node] or n_children[node]:
                    self._require(node)
                    raise NodeError(node, "cannot be dropped: it is the root, is held, or carries other nodes")
                above = parent[node]
                self._remove(node)
                going.discard(node)
                if above != ROOT:
                    used[above] = max(used[above], used[node])
                    if above not in going and not references[above] and not n_children[above]:
                        self._mark_idle(above)
        finally:
            for node in going:  # After an error, some are left.
                if 0 < node < len(references) and self._is_idle(node):
                    self._mark_idle(node)

    # Single steps

    def _add(self, parent: int, token: int, made: list[int]) -> int:
        """Add a node without references, append it to `made`, and return it."""
        if len(self._unused) <= _MIN_UNUSED:
            self._grow()
        node = self._unused.popleft()
        made.append(node)
        self.parent[node], self.token[node], self.depth[node] = parent, token, self.depth[parent] + 1
        self.references[node] = self.n_children[node] = self._held_children[node] = 0
        self._n_added += 1
        self._serial[node] = self._n_added
        self.first_child[node] = self.previous_sibling[node] = NO_NODE
        sibling = self.next_sibling[node] = self.first_child[parent]
        if sibling != NO_NODE:
            self.previous_sibling[sibling] = node
        self.first_child[parent] = node
        if parent == ROOT or self.n_children[parent]:
            self.n_leaves += 1
        self.n_children[parent] += 1
        self.n_nodes += 1
        self._child[parent << 32 | token] = node
        return node

    def _remove(self, node: int) -> None:
        """Unlink a node without children, and put its id among the unused ones."""
        parent, before, after = self.parent[node], self.previous_sibling[node], self.next_sibling[node]
        if before == NO_NODE:
            self.first_child[parent] = after
        else:
            self.next_sibling[before] = after
        if after != NO_NODE:
            self.previous_sibling[after] = before
        self.n_children[parent] -= 1
        if parent == ROOT or self.n_children[parent]:
            self.n_leaves -= 1
        self.n_nodes -= 1
        del self._child[parent << 32 | self.token[node]]
        self.references[node] = _DEAD
        self._forgotten.discard(node)
        self._unused.append(node)

    def _grow(self) -> None:
        """Lengthen all columns by their size, and at least by `_MIN_UNUSED`."""
        size = len(self.parent)
        more = max(_MIN_UNUSED, size)
        for column, value in (
            (self.parent, NO_NODE),
            (self.token, NO_TOKEN),
            (self.depth, 0),
            (self.references, _DEAD),
            (self.n_children, 0),
            (self.used, 0),
            (self.first_child, NO_NODE),
            (self.next_sibling, NO_NODE),
            (self.previous_sibling, NO_NODE),
            (self._held_children, 0),
            (self._serial, 0),
        ):
            column.extend([value] * more)
        self._unused.extend(range(size, size + more))

    def _add_references(self, node: int, change: int) -> None:
        """Add `change` to the references of `node`, and update the counts.

        `n_held` counts referenced nodes and their ancestors; `n_held_leaves` counts
        those of them below which no node has a reference.

        Args:
            change: 1 or -1.
        """
        # A count that ends here has just become 1, or 0.
        end = int(change > 0)
        self.references[node] += change
        if self.references[node] != end or node == ROOT:
            return
        if change > 0:
            self._forgotten.discard(node)
        if self._held_children[node]:
            return
        self.n_held += change
        self.n_held_leaves += change
        above = self.parent[node]
        while above != ROOT:
            self._held_children[above] += change
            if self._held_children[above] != end:
                return
            if self.references[above]:
                self.n_held_leaves -= change
                return
            self.n_held += change
            above = self.parent[above]

    def _mark_idle(self, node: int) -> None:
        """Push a cached leaf on the eviction heap.

        Outdated entries of the heap are skipped when they are read.
        """
        if node == ROOT:
            return
        heapq.heappush(self._idle, (self.used[node], self._serial[node], node))
        if len(self._idle) > 2 * self.n_nodes + 64:
            fresh = {one for one in self._idle if self._is_idle(one[2]) and self.used[one[2]] == one[0]}
            self._idle = sorted(fresh)

    def _is_idle(self, node: int) -> bool:
        return self.references[node] == 0 and self.n_children[node] == 0


class TreeStore(ABC):
    """Keeps something for every node of a tree, each of which can be a parent.

    Attributes:
        sequences: Maximum number of branches.
    """

    def __init__(self, tree: PrefixTree, sequences: int) -> None:
        self._tree, self.sequences = tree, sequences

    @property
    def free_sequences(self) -> int:
        """Return how many branches would be free if all unheld nodes were dropped."""
        return self.sequences - self._tree.n_held_leaves

    def can_extend(self, _node: int) -> bool:
        """Return True: every node of the tree can be a parent."""
        return True

    def release(self, nodes: IntArray, *, forget: bool) -> None:
        """Release references as `Model.release` does, and drop forgotten nodes."""
        self._drop(self._tree.release(nodes, forget=forget))

    def trim(self, idle_rows: int) -> int:
        """Drop nodes unused for `idle_rows` rows, and return how many."""
        nodes = self._tree.idle(idle_rows)
        self._drop(nodes)
        return len(nodes)

    @abstractmethod
    def _drop(self, nodes: list[int]) -> None:
        """Drop nodes from the tree, leaf first, with what is kept for them."""


_CONTEXT_ROWS = 64
"""Rows of one call of a new context are rounded up to a multiple of this, or more."""


def require_batch_multiple(value: int, *, max_rows: int, tree: PrefixTree) -> None:
    """Raise an error unless a batch multiple can be set (`Model.set_batch_multiple`).

    Raises:
        OptionError: If the value is not from 1 to `max_rows`.
        ProtocolError: If the tree is not empty.
    """
    if not 1 <= value <= max_rows:
        raise OptionError("batch_multiple", value, f"1 to {max_rows}")
    if tree.n_nodes:
        raise ProtocolError(f"the batch multiple is set while the tree is empty; it holds {tree.n_nodes} nodes")


def require_one_round(kind: ModelKind, parents: IntArray, keep: BoolArray) -> None:
    """Raise `ProtocolError` if a recurrent or hybrid model cannot take a call at once.

    Such a model takes only calls in which each parent within the call has one child and
    need not be kept. `core.model.rounds` splits other calls into rounds of that kind.

    Args:
        kind: The kind of the model's memory; models of other kinds take any call.
        parents: int32[B], as in `Model.extend`.
        keep: bool[B], the nodes that may become a parent in a later call.
    """
    if kind.is_recurrent and len(parents) and rounds(parents, keep).any():
        raise ProtocolError(
            "a recurrent or hybrid model takes calls of one round; cut them with selectrie.core.model.rounds"
        )


def require_rows(n_rows: int, rows_per_call: int) -> None:
    """Raise `CapacityError` if a call has more rows than the model takes."""
    if n_rows > rows_per_call:
        raise CapacityError("rows in one call", required=n_rows, available=rows_per_call)


def context_rows(nodes: int, rows: int | None, *, max_rows: int, multiple: int) -> int:
    """Return the maximum number of rows of one call of a new context.

    Args:
        nodes: Maximum number of tokens that the context holds.
        rows: Requested number of rows; None means `nodes`.
        max_rows: Maximum number of rows of the model that makes the context.
        multiple: The batch multiple, to which calls are padded.
    """
    step = max(_CONTEXT_ROWS, multiple)
    return min(max_rows, -(-min(nodes, rows or nodes) // step) * step)


def max_idle_rows(*, n_parameters: int, n_layers: int, width: int) -> int:
    """Return after how many rows an idle cell has cost as much as its evaluation.

    Evaluating a row again costs 2 flops per parameter. An idle cell costs each row 4
    flops per layer and channel, for its score and its share of the sum. As in the ski
    rental problem, a cell is dropped after the number of rows at which both costs are
    equal. The shape of a 0.5B model gives 11 486; measured: 10 000.
    """
    return max(1, n_parameters // max(1, 2 * n_layers * width))
