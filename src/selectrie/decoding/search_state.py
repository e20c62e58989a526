"""What searches hold: a tree of token paths, evaluated nodes, a queue by bound."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from heapq import heapify, heappop, heappush

import numpy as np

from selectrie.core import numerics
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT, BoolArray, Capacity, FloatArray, IntArray
from selectrie.core.vocabulary import Vocabulary
from selectrie.decoding.task import Ask
from selectrie.errors import OptionError, ProtocolError
from selectrie.options import one_of
from selectrie.options.selection import GRAMMAR_TERMINATORS
from selectrie.tokenization.healing import NOTHING_HEALED, Healed

NO_STATE = -1
"""State of a node that the automaton does not lead to; only its row is of interest."""


class PathTree:
    """A tree of token paths in flat columns, with parents before children.

    A node stands for the path that ends with its token. Node 0 is the end of the
    prompt, in the automaton's first state.

    Attributes:
        parent, token: As in `TokenTrie`.
        depth: Number of tokens of the path.
        n_healed: Number of healed bytes that the path has not spelt yet.
        n_text: Number of tokens that spell more than healed bytes.
        edge: Log-probability of the token after its parent.
        logp: Sum of the edges from the root.
        state: State of the automaton after the path.
        rank: Position among the paths of its step in the order of their tokens. Paths
            are compared token by token through (rank of the parent, token).
        evaluated: Whether the node's row was read. The search sets this and the next
            two.
        can_end: Whether the automaton accepts the path.
        goes_on: Whether the automaton allows another token.
    """

    def __init__(self, state: int, healed: Healed = NOTHING_HEALED) -> None:
        self.parent, self.token, self.depth = [NO_NODE], [NO_TOKEN], [0]
        self._healed, self.n_healed, self.n_text = healed, [healed.n_bytes], [0]
        self.edge, self.logp, self.state, self.rank = [0.0], [0.0], [state], [0]
        self.evaluated, self.can_end, self.goes_on = [False], [False], [False]
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.parent)

    def find(self, parent: int, token: int) -> int:
        """Return the node of a token after a node, or NO_NODE."""
        return self._children.get((parent, token), NO_NODE)

    def add(self, parent: int, token: int, logp: float, state: int) -> int:
        """Add a node and return its number.

        Args:
            logp: Log-probability of the token after the parent.
        """
        node = self._children[parent, token] = self.add_beside(parent, token, logp, state)
        return node

    def add_beside(self, parent: int, token: int, logp: float, state: int = NO_STATE) -> int:
        """Add a node that `find` does not return, and return its number.

        The arguments are those of `add`.
        """
        self.parent.append(parent)
        self.token.append(token)
        self.depth.append(self.depth[parent] + 1)
        left, counts = self._healed.after(self.n_healed[parent], token)
        self.n_healed.append(left)
        self.n_text.append(self.n_text[parent] + counts)
        self.edge.append(logp)
        self.logp.append(self.logp[parent] + logp)
        self.state.append(state)
        for column in (self.evaluated, self.can_end, self.goes_on):
            column.append(False)
        self.rank.append(0)
        return len(self) - 1

    def order(self, nodes: Iterable[int]) -> list[int]:
        """Return distinct nodes of one step ordered by tokens, and set their ranks."""
        ordered = sorted(set(nodes), key=lambda node: (self.rank[self.parent[node]], self.token[node]))
        for rank, node in enumerate(ordered):
            self.rank[node] = rank
        return ordered

    def path(self, node: int) -> list[int]:
        """Return the nodes of the path to `node`, from the first token on."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = self.parent[node]
        return nodes[::-1]

    def tokens(self, node: int) -> tuple[int, ...]:
        """Return the tokens of the path to `node`."""
        return tuple(self.token[step] for step in self.path(node))


@dataclass(frozen=True, slots=True, eq=False)
class PathSpec:
    """The specification of a search of token paths, checked on construction.

    Attributes:
        terminator: "eog" (the end of generation is part of the event), "none", or
            "unless-continued" (no token that the automaton allows comes next).
        healed: Bytes of the prompt that every path spells first. Every score is
            conditional on them.
        canonical: Returns whether a finished path is canonical: the tokenizer's own
            encoding of its text. None means that every path counts.
        may_be_adjacent: Returns whether these two tokens may be neighbours in a
            canonical path.
        tolerance: Nats by which the layout of calls may move what is compared.
    """

    vocabulary: Vocabulary = field(repr=False)
    _: KW_ONLY
    terminator: str = "eog"
    healed: bytes = b""
    canonical: Callable[[Sequence[int]], bool] | None = None
    may_be_adjacent: Callable[[int, int], bool] | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        one_of("terminator", self.terminator, GRAMMAR_TERMINATORS)
        if self.terminator == "eog" and not len(self.vocabulary.eog):
            raise OptionError("terminator", "eog", "'none': this model has no end-of-generation token")
        if not 0 <= self.tolerance < np.inf:
            raise OptionError("tolerance", self.tolerance, "a finite number of nats, at least 0")

    @property
    def healing(self) -> Healed:
        """Return the record that tells which tokens spell only healed bytes."""
        return Healed(len(self.healed), self.vocabulary.lengths)

    def floor(self, prompt: IntArray, max_tokens: int) -> Capacity:
        """Return the least capacity for one path after a prompt.

        Raises `ProtocolError` for an empty prompt, and `TokenRangeError` for an unknown
        token in it.
        """
        if len(prompt) == 0:
            raise ProtocolError("a search needs a prompt of at least one token")
        self.vocabulary.check_tokens(prompt)
        return Capacity(rows=1, nodes=max_tokens + len(self.healed), sequences=1)


FILL_ROWS = 8
"""Searches fill their asks up to a multiple of this many rows, unless told otherwise.

Where calls are padded to a multiple of 8 rows, a call of 8k + 1 rows costs as much as
one of 8k + 8.
"""
_ANY = 1 << 62
"""A capacity large enough for everything."""


@dataclass(slots=True)
class _Fit:
    """An ask under construction.

    Attributes:
        nodes: Nodes to evaluate, parents first, as the keys.
        n_children: Number of children that an ask adds to a node.
        n_leaves: Number of leaves held after the ask.
        n_served: Number of targets among `nodes`.
    """

    n_leaves: int
    nodes: dict[int, None] = field(default_factory=dict)
    n_children: Counter[int] = field(default_factory=Counter)
    n_served: int = 0


class HeldNodes:
    """The nodes of a tree that a task holds evaluated, with their local rows.

    If the nodes to evaluate do not fit, held nodes are given up: first those that take
    the fewest rows to be evaluated again, and of these the ones of the least worth. If
    the ancestors of a node were given up, they are evaluated again with it.

    Args:
        may_carry: Returns whether a node may be a parent in a later ask.
        worth: Returns the worth of holding a node; by default that of the youngest node
            is the largest.

    Attributes:
        next_local: The local row of the next node.
        n_repeated: How many nodes have been asked for again so far.
    """

    def __init__(
        self,
        tree: PathTree | TokenTrie,
        may_carry: Callable[[int], bool] = lambda _: True,
        worth: Callable[[int], float] = float,
    ) -> None:
        self._tree, self._may_carry, self._worth = tree, may_carry, worth
        self._local: dict[int, int] = {ROOT: 0}
        self._n_children: Counter[int] = Counter()
        self._spent: set[int] = set()
        self._has_given_up = False
        self.next_local = 1
        self.n_repeated = 0

    def __contains__(self, node: int) -> bool:
        return node in self._local

    def drop_all(self) -> IntArray:
        """Forget every node but the root and return the local rows to release."""
        return _ids(self._give_up_all_but({ROOT}))

    def plan(
        self,
        targets: list[int],
        evaluated: Sequence[bool] | BoolArray,
        capacity: Capacity,
        resting: list[int] | None = None,
    ) -> tuple[Ask, list[int]]:
        """Return an ask for the targets that fit, and the nodes whose rows it wants.

        Targets are taken in order. Ancestors that were never evaluated are wanted too;
        ancestors that were evaluated are asked for again without their rows. If the
        path to the first target needs more rows than there are, its upper part is asked
        for.

        Args:
            targets: The nodes to evaluate.
            evaluated: Whether the row of each node was read.
            capacity: The capacity of the ask.
            resting: Nodes evaluated before that may be parents later. All others except
                the targets and their ancestors are given up, and held nodes that no
                later ask extends are marked as spent. None means that any node may be a
                parent; nodes are then given up as soon as less than half of the targets
                fit.
        """
        released: list[int] = []
        if resting is not None:
            released += self._give_up_all_but(self._with_all_above([*map(self._up, targets), *resting]))
        n_unused = len(released)
        fit = self._fit(targets, capacity)
        # Each step below gives up more than the one before, until a target fits.
        if not fit.nodes or (resting is None and 2 * fit.n_served < len(targets)):
            released += self._give_up_cheapest(targets, capacity)
            fit = self._fit(targets, capacity)
        if not fit.nodes:  # only the path to the first target stays
            released += self._give_up_all_but(self._with_all_above([self._up(targets[0])]))
            fit = self._fit(targets, capacity)
        if not fit.nodes:  # all targets are below spent nodes
            released += self._give_up_all_but({ROOT})
            fit = self._fit(targets, capacity)
        self._has_given_up |= len(released) > n_unused
        nodes, spent = list(fit.nodes), []
        if resting is not None and not self._has_given_up:
            waiting = [node for node in targets if node not in fit.nodes]
            extended = {ROOT, *(self._missing(node)[0] for node in [*resting, *waiting])}
            spent = [node for node in self._local if node not in self._spent and node not in extended]
        again = np.array([evaluated[node] for node in nodes], dtype=np.bool_)
        return self._ask(nodes, again, released, spent), [node for node in nodes if not evaluated[node]]

    def _up(self, node: int) -> int:
        """Return the parent of a node."""
        return int(self._tree.parent[node])

    def _missing(self, node: int, planned: Container[int] = ()) -> tuple[int, list[int]]:
        """Return the nearest held or planned ancestor, and the path below it to `node`.

        The path is empty if `node` itself is held or `planned`.
        """
        path: list[int] = []
        while node not in self._local and node not in planned:
            path.append(node)
            node = self._up(node)
        return node, path[::-1]

    def _with_all_above(self, nodes: Iterable[int]) -> set[int]:
        """Return these nodes and all their ancestors."""
        result = {ROOT}
        for node in nodes:
            above = node
            while above not in result:
                result.add(above)
                above = self._up(above)
        return result

    def _fit(self, targets: list[int], capacity: Capacity) -> _Fit:
        """Return the nodes to ask for so that targets fit, in order.

        This changes nothing.
        """
        fit = _Fit(sum(not self._n_children[node] for node in self._local if node != ROOT))
        for target in targets:
            base, path = self._missing(target, fit.nodes)
            n_leaves = fit.n_leaves + bool(path and (base == ROOT or self._n_children[base] + fit.n_children[base]))
            n_held = len(self._local) - 1 + len(fit.nodes) + len(path)
            # The state of `base` was dropped, or the target does not fit.
            if base in self._spent or n_held > capacity.nodes or n_leaves > capacity.sequences:
                continue
            if len(fit.nodes) + len(path) > capacity.rows:
                if fit.nodes:
                    break
                # A first target that is too far away is approached in several asks.
                path = path[: capacity.rows]
            fit.n_leaves = n_leaves
            for node in path:
                fit.nodes[node] = None
                fit.n_children[self._up(node)] += 1
            fit.n_served += target in fit.nodes
        return fit

    def _give_up_cheapest(self, targets: list[int], capacity: Capacity) -> list[int]:
        """Give up the cheapest leaves that no target is below, until all targets fit.

        Returns the local rows to release.
        """
        fit = self._fit(targets, Capacity(rows=_ANY, nodes=_ANY, sequences=_ANY))
        n_nodes, n_leaves = len(self._local) - 1 + len(fit.nodes) - capacity.nodes, fit.n_leaves - capacity.sequences
        required = self._with_all_above(map(self._up, targets))
        queue = [
            self._price(node, required) for node in self._local if not self._n_children[node] and node not in required
        ]
        heapify(queue)
        rows: list[int] = []
        while queue and (n_nodes > 0 or n_leaves > 0):
            price = heappop(queue)
            leaf = price[-1]
            current = self._price(leaf, required)
            if current != price:  # a branch beside it was given up
                heappush(queue, current)
                continue
            if price[0] == np.inf:  # it could not be evaluated again
                continue
            # Once it is gone, the ancestors that carried only it are the cheapest.
            for _ in range(max(1, int(price[0]))):
                rows.append(self._give_up(leaf))
                leaf = self._up(leaf)
                n_nodes -= 1
                n_leaves -= self._n_children[leaf] > 0 or leaf in required
                if n_nodes <= 0 and n_leaves <= 0:
                    return rows
            if not self._n_children[leaf] and leaf not in required:
                heappush(queue, self._price(leaf, required))
        return rows

    def _price(self, leaf: int, required: set[int]) -> tuple[float, float, int]:
        """Return the key by which leaves are given up; the smallest goes first.

        It begins with the number of rows that it would take to evaluate the leaf again,
        together with the ancestors that carry no other leaf. That is 0 for a leaf that
        cannot be a parent, and inf below a spent node, which cannot be extended.
        """
        n_rows, parent = 1.0, self._up(leaf)
        while parent not in required and self._n_children[parent] == 1:
            n_rows, parent = n_rows + 1, self._up(parent)
        if parent in self._spent:
            n_rows = np.inf
        return n_rows if self._may_carry(leaf) else 0.0, self._worth(leaf), leaf

    def _give_up_all_but(self, stays: set[int]) -> list[int]:
        """Give up all nodes except `stays` and return the local rows to release.

        Args:
            stays: Nodes to keep; with a node, its ancestors must be among them.
        """
        return [self._give_up(node) for node in reversed(list(self._local)) if node not in stays]

    def _give_up(self, node: int) -> int:
        """Forget a leaf and return its local row."""
        self._n_children.pop(node, None)
        self._n_children[self._up(node)] -= 1
        self._spent.discard(node)
        return self._local.pop(node)

    def _ask(self, nodes: list[int], again: BoolArray, released: list[int], spent: list[int]) -> Ask:
        """Return the ask for nodes, and record that they are held.

        Args:
            nodes: The nodes to evaluate, parents first.
            again: bool[n], the nodes whose rows were read before.
            released: Local rows to release.
            spent: Held nodes that no later ask extends.
        """
        index = {node: i for i, node in enumerate(nodes)}
        parents = [self._up(node) for node in nodes]
        ask = Ask(
            parents=_ids([~index[up] if up in index else self._local[up] for up in parents]),
            tokens=_ids([self._tree.token[node] for node in nodes]),
            wanted=~again,
            keep=again | np.array([self._may_carry(node) for node in nodes], dtype=np.bool_),
            release=_ids(released),
            spent=_ids([self._local[node] for node in spent]),
            again=again,
        )
        self._local.update((node, self.next_local + i) for i, node in enumerate(nodes))
        self._n_children.update(parents)
        self._spent.update(spent)
        self.next_local += len(nodes)
        self.n_repeated += int(np.count_nonzero(again))
        return ask


def _ids(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int32)


MAX_KEPT = 4096
"""Children of a row that are kept at once.

Reading the row again opens the others, which is almost never needed.
"""


MIN_BOUND = float(np.finfo(np.float64).min)
"""The smallest bound above -inf."""


@dataclass(frozen=True, slots=True)
class Open:
    """An open entry: a node, a child without a node, or the rest of a row's children.

    Attributes:
        bound: Upper bound on the score of everything below.
        node: The parent of the child, or the node itself if `token` is NO_TOKEN.
        token: The child's id, or NO_TOKEN.
        logp: Log-probability of the token after its parent. For the rest of a row, that
            of its best token. For a node, that of its whole path.
        rest: Ranks, by probability, of the children that the entry stands for if it is
            the rest of a row, else None.
    """

    bound: float
    node: int
    token: int
    logp: float
    rest: range | None = None


_NO_REST = Open(-np.inf, NO_NODE, NO_TOKEN, -np.inf)


@dataclass(slots=True)
class _Batch:
    """Children of one node, best first.

    Attributes:
        prefix: Log-probability of the parent's prefix.
        ids: int32[n]; those before `at` were taken out.
        logp, bounds: float64[n].
        rest: The entry that stands for the children after the last one in `ids`.
        rest_mass: Log of their summed probability, -inf for none.
    """

    node: int
    prefix: float
    ids: IntArray
    logp: FloatArray
    bounds: FloatArray
    rest: Open
    rest_mass: float
    at: int = 0

    def cut(self, n: int) -> None:
        """Keep the first n children, and free the memory of the others."""
        self.ids, self.logp, self.bounds = self.ids[:n].copy(), self.logp[:n].copy(), self.bounds[:n].copy()


@dataclass(frozen=True, slots=True, eq=False)
class RowChildren:
    """The children of a node with the log-probabilities that its row gives.

    Attributes:
        prefix: Log-probability of the node's path.
        ids: int32[n], distinct.
        logp: float64[n], log-probability of each child after the node.
        bounds: float64[n], upper bound on the scores at and below each child.
        ranks: Ranks of the children to use, best first; None for all.
    """

    node: int
    prefix: float
    ids: IntArray
    logp: FloatArray
    bounds: FloatArray
    ranks: range | None = None


class OpenList:
    """A priority queue of children and nodes by bound, filled a row at a time.

    The children of one node are sorted once, and only the best remaining one is in the
    heap. 20 000 children thus cost one sort and a few heap operations, and the heap
    never holds a vocabulary.

    Equal bounds come in the order in which they were added, after nodes that were put
    back. In a trie, whose nodes all have numbers, they come by number, so the order
    does not depend on how the list was filled.

    Args:
        closed: bool[N], a live view of a trie's nodes. Ids are nodes of that trie, and
            those marked there are skipped. None if there is no trie.

    Attributes:
        dropped_best, dropped_mass: Best bound and summed probability of the children
            that were dropped.
    """

    def __init__(self, closed: BoolArray | None = None, *, max_kept: int = MAX_KEPT) -> None:
        self._closed, self._max_kept = closed, max_kept
        # Minus bound, id or order, batch or ~key in _nodes.
        self._heap: list[tuple[float, int, int]] = []
        self._batches: list[_Batch] = []
        self._batch_of: dict[int, int] = {}  # node -> the first batch of its children
        self._nodes: dict[int, Open] = {}
        self._order = 0
        self._n_put_back = 0
        self.dropped_best = -np.inf
        self.dropped_mass = 0.0

    def add(self, children: RowChildren, threshold: float = -np.inf) -> None:
        """Add a node's children; drop and count those with bounds below `threshold`."""
        ranks = range(len(children.ids)) if children.ranks is None else children.ranks
        order = np.lexsort((children.ids, -children.logp))[ranks.start : ranks.stop]
        ids, logp, bounds = children.ids[order], children.logp[order], children.bounds[order]
        possible = int(np.count_nonzero(logp > -np.inf))
        n = min(possible, int(np.searchsorted(-bounds[:possible], -threshold, side="right")))
        if n < possible:
            self.drop(float(bounds[n]), children.prefix + numerics.logsumexp(logp[n:possible]))
        if n == 0:
            return
        # Row 0 cannot be read again.
        kept = n if children.node == ROOT else min(n, max(self._max_kept, ranks.start))
        rest, beyond = _NO_REST, range(ranks.start + kept, ranks.start + n)
        if beyond:
            rest = Open(float(bounds[kept]), children.node, NO_TOKEN, float(logp[kept]), beyond)
        batch = _Batch(children.node, children.prefix, ids, logp, bounds, rest, numerics.logsumexp(logp[kept:n]))
        batch.cut(kept)
        self._batches.append(batch)
        self._batch_of.setdefault(children.node, len(self._batches) - 1)
        self._push(len(self._batches) - 1)

    def logp_of(self, node: int, token: int) -> float | None:
        """Return the log-probability of `token` after `node`.

        It is None if no child of the node was added, or this one was dropped.
        """
        if node not in self._batch_of:
            return None
        batch = self._batches[self._batch_of[node]]
        index = np.flatnonzero(batch.ids == token)
        return float(batch.logp[index[0]]) if len(index) else None

    def put_back(self, node: int, bound: float, prefix: float) -> None:
        """Add a node that has a number; it comes before everything of the same bound.

        A node that is taken out and put back thus keeps its turn. Otherwise two nodes
        of one bound could take turns for ever, each giving up the part of its path that
        the other has no room beside.

        Args:
            prefix: Log-probability of the node's path.
        """
        self._n_put_back += 1
        self._nodes[self._n_put_back] = Open(bound, node, NO_TOKEN, prefix)
        heapq.heappush(self._heap, (-bound, -self._n_put_back, ~self._n_put_back))

    def discount(self, node: int, parent: int, token: int) -> None:
        """Leave a node that is still in the list out of `open_mass` from now on.

        It is for a node whose row is read before its turn: its children count what may
        lie below it. No effect if the node is not in the list.
        """
        for key, entry in self._nodes.items():
            if entry.node == node:
                self._nodes[key] = replace(entry, logp=-np.inf)
        if parent in self._batch_of:
            batch = self._batches[self._batch_of[parent]]
            batch.logp[batch.at :][batch.ids[batch.at :] == token] = -np.inf

    def best(self) -> float:
        """Return the best bound, -inf if nothing is open."""
        while self._heap:
            bound, number, which = self._heap[0]
            if self._closed is None or not self._closed[number]:
                return -bound
            heapq.heappop(self._heap)
            self._batches[which].at += 1
            self._push(which)
        return -np.inf

    def pop(self) -> Open:
        """Remove and return the entry with the best bound; one must exist."""
        self.best()
        _, _, which = heapq.heappop(self._heap)
        if which < 0:
            return self._nodes.pop(~which)
        batch, at = self._batches[which], self._batches[which].at
        entry = batch.rest
        if at == len(batch.ids):
            self._end(batch)
            return entry
        entry = Open(float(batch.bounds[at]), batch.node, int(batch.ids[at]), float(batch.logp[at]))
        batch.at += 1
        self._push(which)
        return entry

    def drop_below(self, threshold: float) -> None:
        """Drop all children with bounds below `threshold`, to free memory."""
        for batch in self._batches:
            n = max(batch.at, int(np.searchsorted(-batch.bounds, -threshold, side="right")))
            if n < len(batch.ids):
                self.drop(float(batch.bounds[n]), batch.prefix + numerics.logsumexp(batch.logp[n:]))
                batch.cut(n)
            if -np.inf < batch.rest.bound < threshold:
                self.drop(batch.rest.bound, batch.prefix + batch.rest_mass)
                batch.rest, batch.rest_mass = _NO_REST, -np.inf
        self._heap = [entry for entry in self._heap if -entry[0] >= threshold or entry[2] < 0]
        heapq.heapify(self._heap)

    def drop(self, best: float, log_mass: float) -> None:
        """Count children that were not added, by their best bound and summed mass."""
        self.dropped_best = max(self.dropped_best, best)
        self.dropped_mass += float(np.exp(log_mass))

    def open_mass(self) -> float:
        """Return the summed probability of all entries and of all dropped children."""
        masses = [self.dropped_mass, *np.exp([node.logp for node in self._nodes.values()])]
        for batch in self._batches:
            inside = np.logaddexp(numerics.logsumexp(batch.logp[batch.at :]), batch.rest_mass)
            masses.append(np.exp(batch.prefix + inside))
        return float(np.sum(masses))

    def _push(self, which: int) -> None:
        """Put the best remaining child of a batch into the heap, or else its rest.

        `which` is the number of the batch.
        """
        batch = self._batches[which]
        if batch.at < len(batch.ids):
            self._heap_push(float(batch.bounds[batch.at]), which)
        elif batch.rest.bound > -np.inf:
            self._heap_push(batch.rest.bound, which)
        else:
            self._end(batch)

    def _end(self, batch: _Batch) -> None:
        """Free a batch that will not be read again."""
        batch.cut(0)
        batch.rest, batch.rest_mass, batch.at = _NO_REST, -np.inf, 0

    def _heap_push(self, bound: float, which: int) -> None:
        """Put a batch into the heap with the bound of its next entry."""
        number = self._order
        if self._closed is not None:
            number = int(self._batches[which].ids[self._batches[which].at])
        heapq.heappush(self._heap, (-bound, number, which))
        self._order += 1
