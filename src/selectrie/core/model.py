"""The port a language model satisfies: one tree of contexts, one verb.

Laws (checked on every back end by `testing.check_model`):

1. The row of a node depends only on the node's token path: not on siblings, order, calls or cache content.
2. Extending in one call or in many gives the same rows.
3. Releasing and extending again gives the same row.
4. Random interleavings of extend, release and eviction equal single-path evaluation.
5. A call that cannot be done raises before anything changed; a call that fails half-way leaves the tree as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selectrie.core import numerics
from selectrie.core.types import BoolArray, FloatArray, IntArray, Limits, LogitArray, ModelIdentity, Room
from selectrie.core.vocabulary import Vocabulary

SOLO_BRANCHES = 16
"""Of an empty model of its own, where nobody asks for more: each costs memory."""


class Rows:
    """Logits of the wanted nodes of one call: row *i* predicts the token **after** wanted node *i*.

    A view: it may read the back end's own buffer and is valid until the model's next `extend`.
    What outlives that is copied by `copy`. The N x V matrix of log-probabilities is never built.

    matrix: float32[M, V]. index: int64[n], row of `matrix` for each wanted node (default: 0..M-1).
    NaN, +inf or an all -inf row raise `NonFiniteLogitsError` when that row is first read, and leave the others readable;
    a single -inf is probability 0. A row's normaliser is worked out when it is first needed and kept: the same bits
    whichever rows stand beside it.
    """

    __slots__ = ("_index", "_matrix", "_normaliser")

    def __init__(self, matrix: LogitArray, index: ArrayLike | None = None) -> None:
        self._matrix = matrix
        self._index = np.arange(len(matrix)) if index is None else np.asarray(index, dtype=np.int64)
        self._normaliser: FloatArray = np.full(len(self._index), np.nan)

    def __len__(self) -> int:
        return len(self._index)

    def _normalisers(self, rows: NDArray[np.int64]) -> FloatArray:
        """float64, shaped like `rows`: log-sum-exp of these rows, from memory where they were read before."""
        found: FloatArray = self._normaliser[rows]
        unread = np.isnan(found)
        if unread.any():
            todo = np.unique(rows[unread])
            self._normaliser[todo] = numerics.logsumexp_rows(self._matrix, self._index[todo])
            found = self._normaliser[rows]
        return found

    def logsumexp(self, i: int) -> float:
        """Log of the sum of exponentials of row i's logits."""
        return float(self._normalisers(np.array([i]))[0])

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        """Log-probabilities, float64, of `token_ids` after wanted nodes `i`; the two broadcast against each other."""
        rows, ids = np.asarray(i, dtype=np.int64), np.asarray(token_ids, dtype=np.int64)
        return np.asarray(self._matrix[self._index[rows], ids].astype(np.float64) - self._normalisers(rows))

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        """Log of the summed probability of `token_ids` (distinct) after wanted node i; -inf for none."""
        return numerics.logsumexp(self.logp(i, token_ids))

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        """Log of the summed probability of every token but `token_ids`, from positive terms (1 - sum rounds badly)."""
        normaliser = self.logsumexp(i)
        return numerics.logsumexp_without(self.logits(i), np.asarray(token_ids, dtype=np.int64)) - normaliser

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        """The k most probable tokens after wanted node i (ties: smaller id first) and their log-probabilities.

        allowed: bool[V] (true = may follow) or an array of ids; None = every token. Fewer than k come back where fewer
        are allowed and possible.
        """
        normaliser = self.logsumexp(i)
        logits = self.logits(i)
        ids = numerics.top_k(logits, k, allowed)
        return ids, logits[ids].astype(np.float64) - normaliser

    def best(self) -> IntArray:
        """int32[n]: the most probable token after each wanted node (ties: the smaller id)."""
        self._normalisers(np.arange(len(self._index)))
        return numerics.argmax_rows(self._matrix, self._index)

    def logits(self, i: int) -> LogitArray:
        """Raw float32[V] of wanted node i, unchecked; a view."""
        row: LogitArray = self._matrix[self._index[i]]
        return row

    def slice(self, start: int, stop: int) -> Rows:
        """The wanted nodes start..stop as a view that shares this one's buffer and normalisers, both ways."""
        part = Rows(self._matrix, self._index[start:stop])
        part._normaliser = self._normaliser[start:stop]
        return part

    def take(self, order: ArrayLike) -> Rows:
        """The wanted nodes `order`, int[n], as a view that shares this one's buffer and knows its normalisers so far."""
        picked = np.asarray(order, dtype=np.int64)
        part = Rows(self._matrix, self._index[picked])
        part._normaliser = self._normaliser[picked]
        return part

    def copy(self) -> Rows:
        """The same rows in memory of their own."""
        return Rows.stack([self])

    @staticmethod
    def stack(parts: Sequence[Rows]) -> Rows:
        """Rows of one or more calls one after the other, copied."""
        stacked = Rows(np.concatenate([part._matrix[part._index] for part in parts]))
        stacked._normaliser = np.concatenate([part._normaliser for part in parts])
        return stacked


@dataclass(frozen=True, slots=True)
class Extension:
    """What one `extend` gave.

    nodes: int32[B], one per element asked for; the caller owns one reference each.
    rows: of the wanted elements, in order.
    rows_evaluated: distinct rows the model computed (padding not counted); rows_repeated: of these, rows of nodes that
    existed already; rows_padded: rows added to fill the call; decode_s: seconds inside the model; 0 rows = no decode.
    """

    nodes: IntArray
    rows: Rows
    rows_evaluated: int
    rows_repeated: int
    rows_padded: int
    decode_s: float


class Model(Protocol):
    """A causal language model that holds evaluated contexts as one tree. Node 0 is the empty context.

    Not thread-safe but for `interrupt`: one thread owns it (`owner.Owner`).

    granule: rows every call is padded to, so that rows do not depend on how many stand in their call (1 = no padding).
    May be set while the tree is empty; `solo` hands it on.
    """

    granule: int

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def identity(self) -> ModelIdentity: ...

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        """Evaluate nodes below live nodes: **one** decode, or an error before anything changed.

        parents: int32[B], a live node, or `~j` for element j < i of the same call. tokens: int32[B].
        wanted: bool[B], whose rows are needed. keep: bool[B], who may become a parent in a later call: a forking model
        keeps a state for those alone.

        A (parent, token) that exists already, or stands twice in the call, is one node with one more reference; it is
        evaluated again only where its row is wanted (on a scratch branch, counted as repeated).
        A forking model takes calls of one round only (see `rounds`).
        Cached nodes are evicted leaf first, least recently used first, as room is needed; never an ancestor of a
        referenced node or of this call's parents.

        Raises `CapacityError` (needed, available) where the call does not fit, `NodeError` for a dead or wrong
        parent, `TokenRangeError` for a token that does not exist, `DecodeError` where the back end failed,
        `DecodeInterrupted` after `interrupt`; in each case the tree is as it was.
        """
        ...

    def find(self, tokens: IntArray) -> tuple[int, int]:
        """The deepest node on this path that can still be extended, and its depth. The caller owns one reference."""
        ...

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        """Give back one reference each. Without references a node stays as cache until room is needed; with
        `forget` it is dropped now (leaf first: nodes that carry others stay until those go)."""
        ...

    def room(self) -> Room:
        """What one `extend` could use now if every unreferenced node were evicted."""
        ...

    def trim(self, idle_rows: int) -> int:
        """Drop cached nodes not used while the last `idle_rows` rows were evaluated (0: all); returns how many."""
        ...

    def solo(self, nodes: int, branches: int = SOLO_BRANCHES, rows: int | None = None) -> Model:
        """A small empty model on the same weights and precision, with room for at least `nodes` nodes, and for `branches` where
        this one has so many. rows: most in a call, None = as many as this one takes.

        What it computes has the same bits whatever this model holds: near ties are settled on it. The caller closes it.
        """
        ...

    def interrupt(self) -> None:
        """Make the decode that is running now, here or on a `solo` model, fail with `DecodeInterrupted`; from any thread,
        no effect when idle."""
        ...

    def close(self) -> None:
        """Free everything; later calls raise `ClosedError`. Closing twice is fine."""
        ...


def chain(parent: int, n: int) -> IntArray:
    """int32[n]: parents of a run of n >= 1 elements below a node, each hanging from the one before it."""
    parents: IntArray = ~np.arange(-1, n - 1, dtype=np.int32)
    parents[0] = parent
    return parents


def rounds(parents: IntArray, keep: BoolArray) -> IntArray:
    """Cut one call into rounds that a forking model can take, each an `extend` of its own.

    A forking model has a state only at the tip of each unbranched run of a call. So a node joins its parent's round only
    as the parent's one child in the call, and only where the parent need not be kept; otherwise it starts in a later one.

    parents: int32[B] as in `extend`; keep: bool[B]. Returns int32[B]: the round of each element; all 0 = one call.
    A parent `~j` of an earlier round is a node by the time its child's round runs, and must be kept until then.
    """
    n = len(parents)
    inside = np.flatnonzero(parents < 0)
    children = np.bincount(~parents[inside], minlength=n)
    result = np.zeros(n, dtype=np.int32)
    for i in inside:
        j = ~int(parents[i])
        result[i] = result[j] + int(keep[j] or children[j] > 1)
    return result
