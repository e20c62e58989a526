"""The port that a language model satisfies: one tree of contexts, extended by one call.

Laws (checked on every back end by `testing.check_model`):

1. The row of a node depends only on the node's token path: not on siblings, order,
   calls or cache content.
2. Extending in one call or in many gives the same rows.
3. Releasing and extending again gives the same row.
4. Random interleavings of extend, release and eviction equal single-path evaluation.
5. A call that cannot be done raises before anything has changed; a call that fails
   half-way leaves the tree as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selectrie.core import numerics
from selectrie.core.types import BoolArray, Capacity, FloatArray, IntArray, Limits, LogitArray, ModelIdentity
from selectrie.core.vocabulary import Vocabulary

SOLO_SEQUENCES = 16
"""Default number of branches of a `new_context` model; each branch costs memory."""


class Rows:
    """Holds the logits of one call.

    Row *i* predicts the token **after** wanted node *i*. This is a view: it may read
    the back end's own buffer, and it is valid until the model's next `extend`. Use
    `copy` to keep rows for longer. The N x V matrix of log-probabilities is never
    built.

    NaN, +inf or a row that is all -inf raises `NonFiniteLogitsError` when that row is
    first read; the other rows stay readable. A single -inf is probability 0. The
    normaliser of a row is computed when it is first needed, and kept; its bits do not
    depend on the other rows.

    Args:
        matrix: float32[M, V], the logits.
        index: int64[n], the row of `matrix` for each wanted node (default: 0..M-1).
    """

    __slots__ = ("_index", "_matrix", "_normaliser")

    def __init__(self, matrix: LogitArray, index: ArrayLike | None = None) -> None:
        self._matrix = matrix
        self._index = np.arange(len(matrix)) if index is None else np.asarray(index, dtype=np.int64)
        self._normaliser: FloatArray = np.full(len(self._index), np.nan)

    def __len__(self) -> int:
        return len(self._index)

    def _normalisers(self, rows: NDArray[np.int64]) -> FloatArray:
        """Return the log-sum-exp of these rows, float64 shaped like `rows`.

        Values computed before are reused.
        """
        values: FloatArray = self._normaliser[rows]
        unread = np.isnan(values)
        if unread.any():
            todo = np.unique(rows[unread])
            self._normaliser[todo] = numerics.logsumexp_rows(self._matrix, self._index[todo])
            values = self._normaliser[rows]
        return values

    def logsumexp(self, i: int) -> float:
        """Return the log of the sum of exponentials of row i's logits."""
        return float(self._normalisers(np.array([i]))[0])

    def logp(self, i: ArrayLike, token_ids: ArrayLike) -> FloatArray:
        """Return the float64 log-probabilities of `token_ids` after wanted nodes `i`.

        The two arguments broadcast against each other.
        """
        rows, ids = np.asarray(i, dtype=np.int64), np.asarray(token_ids, dtype=np.int64)
        return np.asarray(self._matrix[self._index[rows], ids].astype(np.float64) - self._normalisers(rows))

    def log_mass(self, i: int, token_ids: ArrayLike) -> float:
        """Return the log of the summed probability of `token_ids` after wanted node i.

        The ids must be distinct. The result is -inf if there are none.
        """
        return numerics.logsumexp(self.logp(i, token_ids))

    def log_rest(self, i: int, token_ids: ArrayLike) -> float:
        """Return the log of the summed probability of all tokens except `token_ids`.

        It is summed from positive terms, because 1 - sum rounds badly.
        """
        normaliser = self.logsumexp(i)
        return numerics.logsumexp_without(self.logits(i), np.asarray(token_ids, dtype=np.int64)) - normaliser

    def top(self, i: int, k: int, allowed: BoolArray | IntArray | None = None) -> tuple[IntArray, FloatArray]:
        """Return the k most probable tokens after wanted node i.

        Returns their ids and their log-probabilities. Ties are ordered by id, smaller
        first. `allowed` is bool[V] (true = may follow) or an array of ids; None allows
        every token. Fewer than k tokens are returned if fewer are allowed and possible.
        """
        normaliser = self.logsumexp(i)
        logits = self.logits(i)
        ids = numerics.top_k(logits, k, allowed)
        return ids, logits[ids].astype(np.float64) - normaliser

    def best(self) -> IntArray:
        """Return the most probable token after each wanted node as int32[n].

        Ties go to the smaller id.
        """
        self._normalisers(np.arange(len(self._index)))
        return numerics.argmax_rows(self._matrix, self._index)

    def logits(self, i: int) -> LogitArray:
        """Return the raw, unchecked float32[V] logits of wanted node i, as a view."""
        row: LogitArray = self._matrix[self._index[i]]
        return row

    def slice(self, start: int, stop: int) -> Rows:
        """Return the wanted nodes start..stop as a view.

        The view shares this one's buffer. The two share normalisers in both directions.
        """
        part = Rows(self._matrix, self._index[start:stop])
        part._normaliser = self._normaliser[start:stop]
        return part

    def take(self, order: ArrayLike) -> Rows:
        """Return the wanted nodes `order`, int[n], as a view.

        The view shares this one's buffer and copies the normalisers known so far.
        """
        picked = np.asarray(order, dtype=np.int64)
        part = Rows(self._matrix, self._index[picked])
        part._normaliser = self._normaliser[picked]
        return part

    def copy(self) -> Rows:
        """Return the same rows in newly allocated memory."""
        return Rows.stack([self])

    @staticmethod
    def stack(parts: Sequence[Rows]) -> Rows:
        """Concatenate and copy the rows of one or more calls."""
        stacked = Rows(np.concatenate([part._matrix[part._index] for part in parts]))
        stacked._normaliser = np.concatenate([part._normaliser for part in parts])
        return stacked


@dataclass(frozen=True, slots=True)
class Extension:
    """Holds the result of one `extend`.

    Attributes:
        nodes: int32[B], one node per element of the call. The caller owns one reference
            to each.
        rows: The rows of the wanted elements, in order.
        rows_evaluated: Number of distinct rows the model computed, without padding.
        rows_repeated: How many of these belong to nodes that existed already.
        rows_padded: Number of rows added to fill the call.
        decode_s: Seconds spent inside the model. If no rows were evaluated, there was
            no decode.
    """

    nodes: IntArray
    rows: Rows
    rows_evaluated: int
    rows_repeated: int
    rows_padded: int
    decode_s: float


class Model(Protocol):
    """A causal language model that holds evaluated contexts as one tree.

    Node 0 is the empty context. Only `interrupt` is thread-safe; everything else must
    be called from the one thread that owns the model (`model_thread.ModelThread`).

    Attributes:
        batch_multiple: Every call is padded to a multiple of this number of rows, so
            that a row does not depend on how many others are in its call (1 = no
            padding). It may be set while the tree is empty; `new_context` passes it on.
    """

    batch_multiple: int

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def identity(self) -> ModelIdentity: ...

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        """Evaluate new nodes below live nodes in **one** decode.

        Either the whole call succeeds, or it raises and the tree is unchanged. A pair
        (parent, token) that exists already, or occurs twice in the call, is one node
        with one more reference. It is evaluated again only if its row is wanted (on a
        scratch branch, counted as repeated).

        A recurrent-state model takes only calls of one round (see `rounds`). Cached
        nodes are evicted as room is needed, leaves first, least recently used first.
        Ancestors of referenced nodes and of this call's parents are never evicted.

        Args:
            parents: int32[B], a live node, or `~j` for element j < i of the same call.
            tokens: int32[B], the token of each new node.
            wanted: bool[B], the elements whose rows are needed.
            keep: bool[B], the elements that may become a parent in a later call. A
                recurrent-state model keeps a state only for those.

        Raises:
            CapacityError: If the call does not fit; holds what is needed and available.
            NodeError: If a parent is dead or wrong.
            TokenRangeError: If a token does not exist.
            DecodeError: If the back end failed.
            DecodeInterrupted: After `interrupt`.
        """
        ...

    def match_prefix(self, tokens: IntArray) -> tuple[int, int]:
        """Return the deepest node on this path that can still be extended.

        Its depth is returned too. The caller owns one reference to the node.
        """
        ...

    def release(self, nodes: IntArray, *, forget: bool = False) -> None:
        """Drop one reference to each node.

        A node without references stays cached until room is needed. With `forget` it is
        dropped now. Leaves go first: a node with children stays until those are
        dropped.
        """
        ...

    def capacity(self) -> Capacity:
        """Return what one `extend` could use if all unreferenced nodes were evicted."""
        ...

    def trim(self, idle_rows: int) -> int:
        """Drop cached nodes that have been idle, and return how many were dropped.

        A node is idle if it was not used while the last `idle_rows` rows were
        evaluated; 0 drops all cached nodes.
        """
        ...

    def new_context(self, nodes: int, sequences: int = SOLO_SEQUENCES, rows: int | None = None) -> Model:
        """Return a small empty model on the same weights, with the same precision.

        It has room for at least `nodes` nodes, and for `sequences` branches if this
        model has as many. `rows` is the maximum number of rows in a call; None means as
        many as this model takes.

        What it computes has the same bits whatever this model holds, so near ties are
        settled on it. The caller must close it.
        """
        ...

    def interrupt(self) -> None:
        """Make the decode that is running now fail with `DecodeInterrupted`.

        That includes a decode of a `new_context` model. May be called from any thread,
        and has no effect when idle.
        """
        ...

    def close(self) -> None:
        """Free everything; later calls raise `ClosedError`.

        Closing twice is allowed.
        """
        ...


def chain(parent: int, n: int) -> IntArray:
    """Return the parents of a chain of n >= 1 elements below a node, as int32[n].

    Each element is the parent of the next one.
    """
    parents: IntArray = ~np.arange(-1, n - 1, dtype=np.int32)
    parents[0] = parent
    return parents


def rounds(parents: IntArray, keep: BoolArray) -> IntArray:
    """Split a call into rounds that a recurrent-state model can take.

    Each round is one `extend`.

    A recurrent-state model has a state only at the tip of each unbranched run of a
    call. A node therefore joins its parent's round only if it is the parent's only
    child in the call and the parent need not be kept. Otherwise it starts in a later
    round.

    A parent `~j` of an earlier round is a node by the time its child's round runs, and
    must be kept until then.

    Args:
        parents: int32[B], as in `extend`.
        keep: bool[B], as in `extend`.

    Returns:
        int32[B], the round of each element. If all are 0, one call is enough.
    """
    n = len(parents)
    inside = np.flatnonzero(parents < 0)
    children = np.bincount(~parents[inside], minlength=n)
    result = np.zeros(n, dtype=np.int32)
    for i in inside:
        j = ~int(parents[i])
        result[i] = result[j] + int(keep[j] or children[j] > 1)
    return result
