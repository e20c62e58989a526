"""The values that a task reads from the rows of a model call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selectrie.core.types import BoolArray, IntArray

Indices = NDArray[np.int64]

_NO_INDICES: Indices = np.empty(0, dtype=np.int64)
_NO_IDS: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class TokenSet:
    """A row and some tokens, whose summed probability in that row is read.

    `ids` are int32[], distinct.
    """

    row: int
    ids: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class TopTokens:
    """A row, and the number of its most probable tokens that are read.

    Attributes:
        row: The row.
        k: Number of tokens.
        allowed: bool[V], int32[] ids, or None for all, as in `Rows.top`.
    """

    row: int
    k: int
    allowed: BoolArray | IntArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The values that a task reads from each of n rows.

    Attributes:
        n_rows: n.
        owner, ids: int64[m] rows and int32[m] tokens; the log-probability of each pair
            is read.
        masses: Sets of tokens whose summed probability is read.
        rests: Sets of tokens; the summed probability of all others is read.
        tops: Most probable tokens that are read.
        whole: int64[w], rows of which anything may be read.
        best: Whether the most probable token of every row is read.
    """

    n_rows: int
    owner: Indices = field(default_factory=_NO_INDICES.copy)
    ids: IntArray = field(default_factory=_NO_IDS.copy)
    masses: tuple[TokenSet, ...] = ()
    rests: tuple[TokenSet, ...] = ()
    tops: tuple[TopTokens, ...] = ()
    whole: Indices = field(default_factory=_NO_INDICES.copy)
    best: bool = False

    @staticmethod
    def of_row(
        ids: IntArray = _NO_IDS,
        *,
        masses: Iterable[IntArray] = (),
        rests: Iterable[IntArray] = (),
        tops: Iterable[tuple[int, BoolArray | IntArray | None]] = (),
    ) -> Reads:
        """Return the `Reads` of a single row.

        Args:
            ids: Tokens whose log-probability is read.
            masses: Sets of tokens whose summed probability is read.
            rests: Sets of tokens; the summed probability of all others is read.
            tops: Pairs of `k` and `allowed` of the most probable tokens that are read.
        """
        return Reads(
            1,
            np.zeros(len(ids), dtype=np.int64),
            ids,
            masses=tuple(TokenSet(0, np.asarray(one, dtype=np.int32)) for one in masses),
            rests=tuple(TokenSet(0, np.asarray(one, dtype=np.int32)) for one in rests),
            tops=tuple(TopTokens(0, k, allowed) for k, allowed in tops),
        )

    @staticmethod
    def everything(n: int) -> Reads:
        """Return the `Reads` of n rows from which any value may be read."""
        return Reads(n, whole=np.arange(n), best=True)

    @staticmethod
    def concatenated(parts: Sequence[Reads]) -> Reads:
        """Return the `Reads` of the rows of all `parts`, one part after the other.

        The most probable token of every row is read if all parts read it.
        """
        starts = np.cumsum([0, *(part.n_rows for part in parts)]).tolist()
        pairs = list(zip(starts, parts, strict=False))
        return Reads(
            starts[-1],
            np.concatenate([_NO_INDICES, *(part.owner + start for start, part in pairs)]),
            np.concatenate([_NO_IDS, *(part.ids for part in parts)]).astype(np.int32),
            tuple(TokenSet(one.row + start, one.ids) for start, part in pairs for one in part.masses),
            tuple(TokenSet(one.row + start, one.ids) for start, part in pairs for one in part.rests),
            tuple(TopTokens(one.row + start, one.k, one.allowed) for start, part in pairs for one in part.tops),
            np.concatenate([_NO_INDICES, *(part.whole + start for start, part in pairs)]),
            best=bool(parts) and all(part.best for part in parts),
        )

    def joined(self, other: Reads) -> Reads:
        """Return the `Reads` that name the values of this one and of `other`.

        Both are for the same rows.
        """
        return Reads(
            self.n_rows,
            np.concatenate([self.owner, other.owner]),
            np.concatenate([self.ids, other.ids]),
            self.masses + other.masses,
            self.rests + other.rests,
            self.tops + other.tops,
            np.unique(np.concatenate([self.whole, other.whole])),
            best=self.best or other.best,
        )

    def take(self, rows: ArrayLike) -> Reads:
        """Return the `Reads` of the given rows, int[k], which are distinct."""
        order = np.asarray(rows, dtype=np.int64)
        number = np.full(self.n_rows, -1, dtype=np.int64)
        number[order] = np.arange(len(order))
        owner, whole = number[self.owner], number[self.whole]
        to = number.tolist()
        return Reads(
            len(order),
            owner[owner >= 0],
            self.ids[owner >= 0],
            tuple(TokenSet(to[one.row], one.ids) for one in self.masses if to[one.row] >= 0),
            tuple(TokenSet(to[one.row], one.ids) for one in self.rests if to[one.row] >= 0),
            tuple(TopTokens(to[one.row], one.k, one.allowed) for one in self.tops if to[one.row] >= 0),
            whole[whole >= 0],
            best=self.best,
        )
