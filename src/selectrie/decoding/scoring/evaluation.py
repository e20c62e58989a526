"""Says which numbers of a trie's rows scoring needs, and reads them into arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.core.numerics import Interval
from selectrie.core.rows import Reads, Rows, TokenSet, TopTokens
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT, BoolArray, FloatArray, IntArray
from selectrie.errors import ChoiceError, OptionError


def auto_terminator(choices: Sequence[bytes], following: bytes) -> str:
    """Return the terminator that "auto" selects.

    It is "text" if `following` is not empty, "unless-continued" if a choice is a proper
    byte prefix of another, and otherwise "none". Bytes are compared rather than tokens,
    because one string can be a prefix of another although its tokens are not.
    """
    if following:
        return "text"
    distinct = sorted(set(choices))
    # In byte order, all strings with a common prefix are neighbours of that prefix, so
    # it is enough to compare neighbours.
    continued = any(later.startswith(earlier) for earlier, later in itertools.pairwise(distinct))
    return "unless-continued" if continued else "none"


def check_choices(choices: Sequence[bytes], terminator: str) -> None:
    """Raise `ChoiceError` for no choices, or for an empty choice without a terminator.

    Without a terminator, the joint of an empty choice is an empty sum: it would have
    probability 1 and win against any choice.
    """
    if not choices:
        raise ChoiceError("no choices given; give at least one")
    if terminator == "none":
        for index, choice in enumerate(choices):
            if not choice:
                reason = (
                    "empty, so its probability is 1 without a terminator; "
                    "use 'eog' or 'unless-continued', or give following text"
                )
                raise ChoiceError(reason, index=index, choice="")


def row_owner(trie: TokenTrie, terminator: str) -> IntArray | None:
    """Return the ends whose terminators depend on each node's row, int32[N].

    None if no terminator depends on rows below its end. Only that of
    "unless-continued" does.
    """
    return longest_prefix_owner(trie) if terminator == "unless-continued" else None


def longest_prefix_owner(trie: TokenTrie) -> IntArray:
    """Return the owner of each node: the nearest path end at or above it, int32[N].

    It is NO_NODE for nodes above all path ends. The rows of the inner nodes that an end
    owns decide how likely its choice is to be continued to a longer one.
    """
    owner = np.full(len(trie.token), NO_NODE, dtype=np.int32)
    owner[trie.path_node] = trie.path_node
    for level in levels(trie)[1:]:
        orphans = level[owner[level] == NO_NODE]
        owner[orphans] = owner[trie.parent[orphans]]
    return owner


def levels(trie: TokenTrie) -> list[IntArray]:
    """Return the nodes by depth, the root's level first.

    Each level is int32[], in depth-first order.
    """
    order = np.argsort(trie.depth, kind="stable").astype(np.int32)
    return np.split(order, np.cumsum(np.bincount(trie.depth))[:-1])


TOP_TOKENS = 10
"""Number of tokens of row 0 that are kept, to show what the model would say."""

NO_IDS: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class RowNeeds:
    """The rows of a trie of N nodes, and the numbers in them, that scoring needs.

    Attributes:
        row: bool[N], nodes whose row is needed. The root's row comes with the prompt in
            any case. `row_needs` marks the root, and the ancestors of marked nodes.
        eog: bool[N], nodes where the mass of `eog_ids` is read.
        rest: bool[N], nodes where the mass of all tokens that are not children is read.
        observe: Pairs (node, distinct ids) in the caller's order. The summed
            probability of the ids after the node is read too, for healing.
        eog_ids: int32[], all end-of-generation ids.
        best: bool[N], nodes where the most probable token is read; None for no node.
            The token may remain unknown.
        has_best: Whether the most probable token of every row is read. It must be known
            with certainty.
        top: Number of tokens of row 0 that are read to show what the model would say.
    """

    row: BoolArray
    eog: BoolArray
    rest: BoolArray
    observe: tuple[tuple[int, IntArray], ...]
    eog_ids: IntArray
    best: BoolArray | None = None
    has_best: bool = False
    top: int = TOP_TOKENS

    @staticmethod
    def of_edges(rows: BoolArray) -> RowNeeds:
        """Return the needs for the log-probabilities of given texts.

        Below the nodes of `rows`, bool[N], the edges are read, and the most probable
        token. The other nodes only lead to these nodes.
        """
        nowhere = np.zeros_like(rows)
        return RowNeeds(rows, nowhere, nowhere, (), NO_IDS, has_best=True, top=0)

    @property
    def n_rows(self) -> int:
        """Return how many rows exhaustive scoring evaluates, including the root's."""
        return int(np.count_nonzero(self.row))


@dataclass(frozen=True, slots=True, eq=False)
class TrieEvaluation:
    """The log-probabilities that were read from the rows of a trie of N nodes.

    No log-probability is above 0: float32 rounding beyond probability 1 is cut off.
    `rest` and `observed` are exact if all rows were given in full.

    Attributes:
        edge_logp: float64[N], log p(token | parent); 0 at the root, NaN where the
            parent's row was not evaluated.
        eog_logp: float64[N], log of the summed probability of the end-of-generation
            tokens; NaN where not read.
        rest: float64[N], log of the summed probability of all tokens that are not
            children; NaN where not read.
        observed: float64[M], log of the summed probability of the ids of each of
            `RowNeeds.observe`; -inf for no ids, NaN where not read.
        evaluated: bool[N], nodes whose row was read.
        n_evaluated: The number of such nodes.
        top_ids, top_logp: The ten most probable tokens after the root, and their
            log-probabilities.
        best_token: int32[N], the most probable token after each node (the smaller id on
            ties); NO_TOKEN where it was not read or is not certain.
    """

    edge_logp: FloatArray
    eog_logp: FloatArray
    rest: Interval[FloatArray]
    observed: Interval[FloatArray]
    evaluated: BoolArray
    n_evaluated: int
    top_ids: IntArray
    top_logp: FloatArray
    best_token: IntArray


def row_needs(
    trie: TokenTrie,
    terminator: str,
    observe: Iterable[tuple[int, IntArray]] = (),
    eog_ids: IntArray = NO_IDS,
) -> RowNeeds:
    """Return the rows of a trie that are needed to score its paths.

    Rows of inner nodes are always needed, since they hold the edges below. With
    terminator "eog", path ends are needed too. With "unless-continued" the inner nodes
    suffice, because a path that ends at a leaf cannot be continued. Observed nodes and
    their ancestors are needed.

    The mass of `eog_ids` is read at every end for "eog". Otherwise it is read at inner
    nodes where a path ends, as the weight of stopping there in step-by-step choice. The
    mass of all tokens that are not children is read only for "unless-continued", at
    inner nodes at or below an end.

    Args:
        terminator: "none", "eog", "text" or "unless-continued".
        observe: Pairs (node, distinct ids), as in `RowNeeds`.
        eog_ids: int32[], all end-of-generation ids. "eog" without any raises
            `OptionError`.
    """
    if terminator == "eog" and len(eog_ids) == 0:
        raise OptionError(
            "terminator", terminator, "'none', 'text' or 'unless-continued': this model has no end-of-generation token"
        )
    inner = trie.inner
    ends = np.zeros(len(inner), dtype=np.bool_)
    ends[trie.path_node] = True
    row, rest = inner.copy(), np.zeros(len(inner), dtype=np.bool_)
    row[ROOT] = True
    eog = ends & inner
    if terminator == "eog":
        row |= ends
        eog = ends
    elif (owner := row_owner(trie, terminator)) is not None:
        eog = rest
        rest = inner & (owner != NO_NODE)
    observed = tuple((int(node), np.asarray(ids, dtype=np.int32)) for node, ids in observe)
    for node, _ in observed:
        above = node
        while above >= 0 and not row[above]:
            row[above] = True
            above = int(trie.parent[above])
    return RowNeeds(row, eog.copy(), rest, observed, np.asarray(eog_ids, dtype=np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class ReadPlan:
    """The numbers to read from the rows of n nodes of a trie.

    Attributes:
        children: int32[m], all children of the nodes.
        owner: int64[m], index (in the n nodes) of each child's parent.
        tokens: int64[m], the children's tokens.
        eog: int64[], indices of the nodes where the mass of `RowNeeds.eog_ids` is read.
        eog_nodes: int32[], the nodes at these indices.
        rests: Indices of the nodes where the mass of tokens that are not children is
            read.
        best: Indices of the nodes where the most probable token is read.
    """

    children: IntArray
    owner: NDArray[np.int64]
    tokens: NDArray[np.int64]
    eog: NDArray[np.int64]
    eog_nodes: IntArray
    rests: list[int]
    best: list[int]


_MAX_PLANS = 16
"""Maximum number of cached plans for a trie."""


class ReadPlans:
    """Plans and caches the numbers to read from the rows of a trie.

    Tasks may share it. They mostly ask for the same nodes: the root, and then all
    others.
    """

    def __init__(self, trie: TokenTrie, needs: RowNeeds) -> None:
        self.trie, self.needs = trie, needs
        self.reads_eog = bool(needs.eog.any()) and len(needs.eog_ids) > 0
        self.reads_rest = bool(needs.rest.any())
        self.unread: FloatArray = np.full(len(trie.token), np.nan)
        """float64[N], all NaN, of which readers take copies."""
        self._by_nodes: dict[bytes, ReadPlan] = {}

    def of(self, nodes: IntArray) -> ReadPlan:
        """Return the plan for the rows of `nodes`, int32[n]."""
        key = nodes.tobytes()
        found = self._by_nodes.get(key)
        if found is None:
            found = self._make_plan(nodes)
            if len(self._by_nodes) < _MAX_PLANS:
                self._by_nodes[key] = found
        return found

    def _make_plan(self, nodes: IntArray) -> ReadPlan:
        """Build the plan for the rows of `nodes`."""
        trie, needs = self.trie, self.needs
        children, owner = children_of(trie, nodes)
        eog = np.flatnonzero(needs.eog[nodes])
        return ReadPlan(
            children=children,
            owner=owner,
            tokens=trie.token[children].astype(np.int64),
            eog=eog,
            eog_nodes=nodes[eog],
            rests=np.flatnonzero(needs.rest[nodes]).tolist() if self.reads_rest else [],
            best=[] if needs.best is None else np.flatnonzero(needs.best[nodes]).tolist(),
        )


def children_of(trie: TokenTrie, nodes: IntArray) -> tuple[IntArray, NDArray[np.int64]]:
    """Return all children of `nodes`, and the index in `nodes` of each child's parent.

    Both are integer arrays of the same length.
    """
    starts = trie.child_start[nodes].astype(np.int64)
    counts = trie.child_start[nodes + 1] - starts
    owner = np.repeat(np.arange(len(nodes)), counts)
    shift = starts - np.cumsum(counts) + counts
    return trie.child[np.arange(len(owner)) + shift[owner]], owner


class TrieReader:
    """Reads the rows of a trie into the arrays of a `TrieEvaluation`.

    It makes a few numpy calls for many nodes at once. Its arrays have the names of
    those of `TrieEvaluation`, and the values that were read so far.

    Args:
        trie: The trie.
        needs: The rows to read, and the numbers to read from them.
        readings: Plans that readers of this trie with these needs share; None to create
            them.
    """

    def __init__(self, trie: TokenTrie, needs: RowNeeds, readings: ReadPlans | None = None) -> None:
        n = len(trie.token)
        self.trie, self.needs = trie, needs
        self._readings = ReadPlans(trie, needs) if readings is None else readings
        unread = self._readings.unread
        self.edge_logp: FloatArray = unread.copy()
        self.edge_logp[ROOT] = 0.0
        self.eog_logp: FloatArray = unread.copy()
        self.rest = Interval.point(unread.copy())
        self.observed = Interval.point(np.full(len(needs.observe), np.nan))
        self.evaluated: BoolArray = np.zeros(n, dtype=np.bool_)
        self.best_token: IntArray = np.full(n, NO_TOKEN, dtype=np.int32)
        self.n_evaluated = 0
        self._top_ids: IntArray = NO_IDS
        self._top_logp: FloatArray = np.empty(0)

    def children(self, nodes: IntArray) -> tuple[IntArray, NDArray[np.int64]]:
        """Return `children_of` for these nodes."""
        return children_of(self.trie, nodes)

    def reads(self, nodes: IntArray) -> Reads:
        """Return the `Reads` that `read` needs from the rows of `nodes`, int32[n]."""
        trie, needs, reading = self.trie, self.needs, self._readings.of(nodes)
        owners, ids = [reading.owner], [trie.token[reading.children]]
        if self._readings.reads_eog:
            n_eog = len(needs.eog_ids)
            owners.append(np.repeat(reading.eog, n_eog))
            ids.append(np.tile(needs.eog_ids, len(reading.eog)))
        tops = [TopTokens(index, 1) for index in reading.best]
        if self._reads_top(nodes):
            tops.append(TopTokens(0, needs.top))
        return Reads(
            len(nodes),
            np.concatenate(owners),
            np.concatenate(ids),
            masses=tuple(
                TokenSet(index, observed)
                for node, observed in needs.observe
                for index in np.flatnonzero(nodes == node).tolist()
            ),
            rests=tuple(TokenSet(index, trie.token[trie.children(int(nodes[index]))]) for index in reading.rests),
            tops=tuple(tops),
            best=needs.has_best,
        )

    def _reads_top(self, nodes: IntArray) -> bool:
        """Return whether the first of `nodes` is the root, not read before."""
        return self.needs.top > 0 and len(nodes) > 0 and bool(nodes[0] == ROOT) and not self.evaluated[ROOT]

    def read(self, nodes: IntArray, rows: Rows) -> None:
        """Read the rows of `nodes`, in order; each node may be read once.

        Raises `NonFiniteLogitsError` for a row that is not finite.
        """
        if len(nodes) == 0:
            return
        # Every row is checked before anything changes.
        rows.check()
        reading = self._readings.of(nodes)
        self.edge_logp[reading.children] = np.minimum(rows.logp(reading.owner, reading.tokens), 0.0)
        if not self._readings.reads_eog:
            self.eog_logp[reading.eog_nodes] = -np.inf
        elif len(reading.eog):
            mass = rows.logp(reading.eog[:, None], self.needs.eog_ids[None, :])
            self.eog_logp[reading.eog_nodes] = np.minimum(np.logaddexp.reduce(mass, axis=1), 0.0)
        for index in reading.rests:
            self._read_rest(int(nodes[index]), rows, index)
        if self.needs.observe:
            self._read_observed(nodes, rows)
        for index in reading.best:
            self.best_token[nodes[index]] = _most_probable(rows, index)
        if self.needs.has_best:
            self.best_token[nodes] = rows.best()
        if self._reads_top(nodes):
            self._top_ids, self._top_logp = rows.top(0, self.needs.top)
        self.evaluated[nodes] = True
        self.n_evaluated += len(nodes)

    def _read_observed(self, nodes: IntArray, rows: Rows) -> None:
        """Read the masses of `RowNeeds.observe` at these nodes."""
        for k, (node, ids) in enumerate(self.needs.observe):
            for index in np.flatnonzero(nodes == node).tolist():
                self.observed = _set_bounds(self.observed, k, rows.log_mass_bounds(index, ids))

    def _read_rest(self, node: int, rows: Rows, index: int) -> None:
        """Read the mass of the tokens that are not children of a node."""
        bounds = rows.log_rest_bounds(index, self.trie.token[self.trie.children(node)])
        self.rest = _set_bounds(self.rest, node, bounds)

    def evaluation(self) -> TrieEvaluation:
        """Return the numbers read so far."""
        return TrieEvaluation(
            edge_logp=self.edge_logp,
            eog_logp=self.eog_logp,
            rest=self.rest,
            observed=self.observed,
            evaluated=self.evaluated,
            n_evaluated=self.n_evaluated,
            top_ids=self._top_ids,
            top_logp=self._top_logp,
            best_token=self.best_token,
        )


def _set_bounds(values: Interval[FloatArray], at: int, bounds: tuple[float, float]) -> Interval[FloatArray]:
    """Return `values` with the bounds of one entry set; the arrays are changed."""
    if values.is_known and bounds[0] != bounds[1]:  # until now both bounds are one array
        values = Interval(values.low, values.low.copy())
    values.low[at], values.high[at] = min(bounds[0], 0.0), min(bounds[1], 0.0)
    return values


def _most_probable(rows: Rows, index: int) -> int:
    """Return the most probable token of a row; NO_TOKEN if it is not certain."""
    ids, _ = rows.top(index, 1)
    return int(ids[0]) if len(ids) else NO_TOKEN
