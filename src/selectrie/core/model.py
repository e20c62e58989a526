"""The port that a language model satisfies: one tree of contexts, extended by one call.

Laws (checked on every back end by `testing.check_model`):

1. The row of a node depends only on the node's token path: not on siblings, order,
   calls or cache content.
2. Extending in one call or in many gives the same rows.
3. Releasing and extending again gives the same row.
4. Random interleavings of extend, release and eviction equal single-path evaluation.
5. A call that cannot be done raises before anything has changed; a call that fails
   half-way leaves the tree as it was.
6. A call runs as many programs, and occupies as many rows, as `limits.batch_sizes`
   says; a recurrent-state model may evaluate runs apart. The multiple can be set while
   the tree is empty, unless sizes are fixed.
7. `rows.fetch` gives every value that a `Reads` names, as the rows have it. It can be
   called again.
8. `interrupt` ends the call that runs, which then has failed half-way, if the limits
   say `can_interrupt`. Otherwise, and while no call runs, it has no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from selectrie.core.rows import Rows
from selectrie.core.types import BoolArray, Capacity, IntArray, Limits, ModelIdentity
from selectrie.core.vocabulary import Vocabulary

SOLO_SEQUENCES = 16
"""Default number of branches of a `new_context` model; each branch costs memory."""


@dataclass(frozen=True, slots=True)
class Extension:
    """Holds the result of one `extend`.

    Attributes:
        nodes: int32[B], one node per element of the call. The caller owns one reference
            to each.
        rows: The rows of the wanted elements, in order.
        rows_evaluated: Number of distinct rows the model computed, without padding.
        rows_repeated: Number of these rows whose nodes existed already.
        rows_padded: Number of rows added to fill the call.
        n_programs: Number of times the model ran: 0 if no rows were evaluated, else 1,
            or more if the call was split among programs of fixed sizes or lost states
            were computed again first.
        decode_s: Seconds spent inside the model. If no rows were evaluated, there was
            no decode.
    """

    nodes: IntArray
    rows: Rows
    rows_evaluated: int
    rows_repeated: int
    rows_padded: int
    n_programs: int
    decode_s: float


class ModelDescription(Protocol):
    """The properties of a model by which requests are prepared, without calling it."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def identity(self) -> ModelIdentity: ...


@dataclass(frozen=True, slots=True)
class DescribedModel:
    """A model's description alone, in which each part may be another one."""

    vocabulary: Vocabulary
    limits: Limits
    identity: ModelIdentity


class Model(ModelDescription, Protocol):
    """A causal language model that holds evaluated contexts as one tree.

    Node 0 is the empty context. If the model was opened with a prefix (keys and values
    of trained or fixed tokens, as in prefix tuning), every context continues it; its
    tokens are no nodes. Only `interrupt` is thread-safe; everything else must be called
    from the one thread that owns the model (`model_thread.ModelThread`).
    """

    def extend(self, parents: IntArray, tokens: IntArray, wanted: BoolArray, keep: BoolArray) -> Extension:
        """Evaluate new nodes below live nodes in **one** decode.

        A model with fixed batch sizes runs one or more programs for it, as
        `limits.batch_sizes` says. Parents come before their children, so a call may be
        split anywhere.

        Either the whole call succeeds, or it raises and the tree is unchanged. A pair
        (parent, token) that exists already, or occurs twice in the call, is one node
        with one more reference. It is evaluated again only if its row is wanted (in
        other cells, and counted as repeated).

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

    def set_batch_multiple(self, value: int) -> None:
        """Set the number to a multiple of which the rows of each call are padded.

        This is `limits.batch_sizes.multiple`; the tree must be empty. A row
        then does not depend on how many others are in its call. `new_context`
        passes the number on.

        Args:
            value: From 1 (no padding) to the most rows that a call may have.

        Raises:
            OptionError: If the value is out of range, or batch sizes are fixed.
            ProtocolError: If the tree holds nodes.
        """
        ...

    def match_prefix(self, tokens: IntArray) -> tuple[int, int]:
        """Return the deepest node on the path `tokens` that can still be extended.

        The result is (node, depth). The caller owns one reference to the node.
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
        """Return the capacity that one `extend` may use.

        Unreferenced nodes count as free, because `extend` evicts them.
        """
        ...

    def trim(self, idle_rows: int) -> int:
        """Drop cached nodes that have been idle, and return how many were dropped.

        A node is idle if it was not used while the last `idle_rows` rows were
        evaluated; 0 drops all cached nodes.
        """
        ...

    def new_context(self, nodes: int, sequences: int = SOLO_SEQUENCES, rows: int | None = None) -> Model:
        """Return a small empty model on the same weights, with the same precision.

        It has room for at least `nodes` nodes, and for `sequences` branches if
        this model has as many. `rows` is the maximum number of rows in a call;
        None means as many as this model takes.

        The bits of its results do not depend on what this model holds, so
        scores that are too close to call are evaluated again on it. The caller
        must close it.
        """
        ...

    def interrupt(self) -> None:
        """Make the decode that is running now fail with `DecodeInterrupted`.

        That includes a decode of a `new_context` model. May be called from any thread,
        and has no effect when idle, nor on a model that is not `limits.can_interrupt`.
        """
        ...

    def close(self) -> None:
        """Free everything; later calls raise `ClosedError`.

        Closing twice is allowed.
        """
        ...


class CopiesPaths(Model, Protocol):
    """A model that can copy evaluated paths from another one on the same weights.

    `new_context` of one of the two made the other. Copied nodes are cached, and
    have the bits of the other model.
    """

    def copy_path(self, source: CopiesPaths, tokens: IntArray) -> None:
        """Copy the nodes of the path `tokens` that `source` holds and this model lacks.

        Nothing is evaluated. Raises `CapacityError` if it does not fit.
        """
        ...

    def copied_part(self, tokens: IntArray) -> tuple[int, int]:
        """Return the (start, end) depths of the last part of a path that was copied.

        Only nodes that are still held count; the result is (0, 0) if there are
        none. Nodes above the part were evaluated here, because another path had
        them already.
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
    """Split a call into rounds, each of which a recurrent-state model can take.

    Each round is one `extend`. A recurrent-state model has a state only at the tip
    of each unbranched run of a call. A node therefore joins its parent's round only
    if it is the parent's only child in the call and the parent need not be kept.
    Otherwise it starts in a later round.

    A parent given as `~j`, element j of the same call, is a node by the time its
    child's round runs, and must be kept until then.

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
