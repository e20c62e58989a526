"""The token paths of an automaton that a search has looked at, as one growing tree.

A node is a token after its parent.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from selectrie.core.types import NO_NODE, NO_TOKEN, ROOT, BoolArray, FloatArray, IntArray
from selectrie.decoding.healed_bytes import NOTHING_HEALED, Healed

_FIRST = 256


@dataclass(slots=True)
class _Columns:
    """One entry per node, in arrays longer than the number of nodes."""

    parent: IntArray
    token: IntArray
    state: NDArray[np.int64]
    depth: IntArray
    n_healed: IntArray
    n_text: IntArray
    logp: FloatArray
    logp_prefix: FloatArray
    evaluated: BoolArray
    can_end: BoolArray
    goes_on: BoolArray
    best_token: IntArray
    best_logp: FloatArray
    eog_logp: FloatArray

    def doubled(self) -> _Columns:
        """Return the same columns with twice the length."""
        return _Columns(*(np.concatenate([old, np.zeros_like(old)]) for old in map(self.__getattribute__, _NAMES)))


_NAMES = tuple(field.name for field in fields(_Columns))


class PathNodes:
    """Parallel arrays over nodes, parents before children.

    Node 0 is the empty path, in the automaton's first state. The arrays are views of
    the current nodes and must not be kept.

    Attributes:
        parent, token, depth: int32[N].
        n_healed: int32[N], bytes of the prompt that are still to be spelt.
        n_text: int32[N], tokens of the path that spell more than such bytes.
        state: int64[N], the automaton's state.
        logp: float64[N], log-probability of the token after its parent.
        logp_prefix: float64[N], its sum along the path.
        evaluated: bool[N], whether the row was read.
        can_end: bool[N], whether the automaton may end there.
        goes_on: bool[N], whether the automaton allows another token.
        best_token, best_logp: For evaluated nodes, the most probable allowed token
            (NO_TOKEN for none).
        eog_logp: For evaluated nodes, the log-probability of the end of generation.
    """

    def __init__(self, state: int, *, can_end: bool, goes_on: bool, healed: Healed | None = None) -> None:
        kinds: tuple[type, ...] = (np.int32, np.int32, np.int64, np.int32, np.int32, np.int32, np.float64, np.float64)
        kinds += (np.bool_, np.bool_, np.bool_, np.int32, np.float64, np.float64)
        self._columns = _Columns(*(np.zeros(_FIRST, dtype=kind) for kind in kinds))
        self._n, self._healed = 0, NOTHING_HEALED if healed is None else healed
        self._put(NO_NODE, NO_TOKEN, state, depth=0, logp=0.0, logp_prefix=0.0)
        self._columns.n_healed[ROOT] = self._healed.n_bytes
        self.set_ends(ROOT, can_end=can_end, goes_on=goes_on)

    def __len__(self) -> int:
        return self._n

    @property
    def parent(self) -> IntArray:
        return self._columns.parent[: self._n]

    @property
    def token(self) -> IntArray:
        return self._columns.token[: self._n]

    @property
    def state(self) -> NDArray[np.int64]:
        return self._columns.state[: self._n]

    @property
    def depth(self) -> IntArray:
        return self._columns.depth[: self._n]

    @property
    def n_healed(self) -> IntArray:
        return self._columns.n_healed[: self._n]

    @property
    def n_text(self) -> IntArray:
        return self._columns.n_text[: self._n]

    @property
    def logp(self) -> FloatArray:
        return self._columns.logp[: self._n]

    @property
    def logp_prefix(self) -> FloatArray:
        return self._columns.logp_prefix[: self._n]

    @property
    def evaluated(self) -> BoolArray:
        return self._columns.evaluated[: self._n]

    @property
    def can_end(self) -> BoolArray:
        return self._columns.can_end[: self._n]

    @property
    def goes_on(self) -> BoolArray:
        return self._columns.goes_on[: self._n]

    @property
    def best_token(self) -> IntArray:
        return self._columns.best_token[: self._n]

    @property
    def best_logp(self) -> FloatArray:
        return self._columns.best_logp[: self._n]

    @property
    def eog_logp(self) -> FloatArray:
        return self._columns.eog_logp[: self._n]

    def add(self, parent: int, token: int, logp: float, state: int) -> int:
        """Add a node and return its number."""
        above = self._columns
        node = self._put(
            parent,
            token,
            state,
            depth=int(above.depth[parent]) + 1,
            logp=logp,
            logp_prefix=float(above.logp_prefix[parent]) + logp,
        )
        columns = self._columns
        left, counts = self._healed.after(int(columns.n_healed[parent]), token)
        columns.n_healed[node], columns.n_text[node] = left, columns.n_text[parent] + counts
        return node

    def set_ends(self, node: int, *, can_end: bool, goes_on: bool) -> None:
        """Record what the automaton allows in the node's state."""
        self._columns.can_end[node], self._columns.goes_on[node] = can_end, goes_on

    def path(self, node: int) -> list[int]:
        """Return the nodes from below the root down to this one."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = int(self._columns.parent[node])
        return nodes[::-1]

    def tokens(self, node: int) -> list[int]:
        """Return the tokens on the path to this node."""
        return [int(self._columns.token[step]) for step in self.path(node)]

    def _put(self, parent: int, token: int, state: int, *, depth: int, logp: float, logp_prefix: float) -> int:
        if self._n == len(self._columns.parent):
            self._columns = self._columns.doubled()
        columns, node = self._columns, self._n
        columns.parent[node], columns.token[node], columns.state[node] = parent, token, state
        columns.depth[node], columns.logp[node], columns.logp_prefix[node] = depth, logp, logp_prefix
        self._n += 1
        return node
