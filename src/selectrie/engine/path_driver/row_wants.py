"""What has to be asked about each row, from the values that a task reads of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from selectrie.core.path_model import PathLimits
from selectrie.core.reads import Reads
from selectrie.core.types import IntArray
from selectrie.errors import WholeRowsError

_NO_IDS: IntArray = np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class RowWants:
    """What is wanted of one row.

    Attributes:
        named: int32[m], tokens whose log-probabilities are wanted, ascending.
        top: How many of the most probable tokens are wanted.
        has_best: Whether it is asked again if the most probable token is not certain.
        needs_best: Whether the call fails if it is not certain then.
    """

    named: IntArray
    top: int
    has_best: bool
    needs_best: bool


def row_wants(reads: Reads, limits: PathLimits, n_tokens: int) -> list[RowWants]:
    """Return what is wanted of each row of `reads`.

    Tokens whose log-probabilities are read are always named. The tokens of a mass, of a
    rest, or among which the best are looked for, are named if that takes no further
    query, the smallest sets first. Of larger sets, those among the most probable tokens
    of the row are known, and the others have bounds. One more of the most probable
    tokens is wanted than is read, because the last may be as probable as one that is
    not known.

    Raises:
        WholeRowsError: If whole rows are read.
    """
    if len(reads.whole):
        raise WholeRowsError("this request")
    order = np.argsort(reads.owner, kind="stable")
    bounds = np.searchsorted(reads.owner[order], np.arange(reads.n_rows + 1)).tolist()
    ids = reads.ids[order]
    named = [np.unique(ids[start:stop]) for start, stop in pairwise(bounds)]
    sets: list[list[IntArray]] = [[] for _ in range(reads.n_rows)]
    tops = [2 if reads.best else 0] * reads.n_rows
    has_best = [reads.best] * reads.n_rows
    for one in (*reads.masses, *reads.rests):
        sets[one.row].append(one.ids)
    for top in reads.tops:
        if top.allowed is None:
            tops[top.row] = max(tops[top.row], top.k + 1)
            has_best[top.row] |= top.k == 1
        elif top.k:
            is_mask = top.allowed.dtype == np.bool_
            sets[top.row].append(np.flatnonzero(top.allowed).astype(np.int32) if is_mask else np.unique(top.allowed))
    wants = []
    for own, others, n_top, best in zip(named, sets, tops, has_best, strict=True):
        all_ids, is_whole = _with_sets(own, others, limits.named_ids)
        most = min(limits.top_ids, n_tokens)
        wants.append(RowWants(all_ids, min(n_top, most) if is_whole else most, best, reads.best))
    return wants


def _with_sets(named: IntArray, sets: list[IntArray], max_named: int) -> tuple[IntArray, bool]:
    """Return the tokens to name, int32[], and whether they hold all tokens of the sets.

    They take as many queries as `named` does, or one.
    """
    room = max(1, -(-len(named) // max(1, max_named))) * max_named
    is_whole = True
    for ids in sorted(sets, key=len):
        union = np.union1d(named, ids) if len(ids) <= room else _NO_IDS
        if len(ids) <= room and len(union) <= room:
            named = union
        else:
            is_whole = False
    return named.astype(np.int32), is_whole
