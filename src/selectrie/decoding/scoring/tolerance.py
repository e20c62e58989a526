"""Computes how far the layout of calls can move a score, and finds near ties."""

from __future__ import annotations

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, NO_PATH, BoolArray, FloatArray, IntArray
from selectrie.decoding.scoring.posterior import best_of_paths
from selectrie.decoding.scoring.rules import DIFFERENCES, Lengths
from selectrie.decoding.scoring.terminators import levels, longest_prefix_owner

ROUNDING = 1e-6
"""Nats by which rounding may undercut a bound.

A bound and the score below it read the same log-sum-exp of every row that they share,
whose own error (at most 1e-6, mostly 1e-7) cancels. What is left is that of sums of
float32 exponentials, such as the mass of a set of tokens, and of float64 sums.
"""


def rows_of_paths(trie: TokenTrie, terminator: str) -> IntArray:
    """Return how many rows each path's log-probability is read from, int32[P].

    There is one row for each token, and the terminator adds its own. For
    "unless-continued" it adds the longest chain of rows, at and below the end, that
    decide whether the choice is continued.
    """
    rows = trie.depth[trie.path_node].copy()
    if terminator == "eog":
        rows += 1
    if terminator == "unless-continued":
        run = trie.inner.astype(np.int32)
        owned = longest_prefix_owner(trie) != NO_NODE
        for level in reversed(levels(trie)[1:]):
            passes = level[(trie.end_path[level] == NO_PATH) & owned[level]]
            np.maximum.at(run, trie.parent[passes], run[passes] + 1)
        rows += run[trie.path_node]
    return np.asarray(rows, dtype=np.int32)


def tolerance_of(
    rule: str,
    tolerance: float,
    trie: TokenTrie,
    terminator: str,
    *,
    lengths: Lengths,
    first_scored: IntArray | None = None,
) -> FloatArray:
    """Return by how many nats the layout of calls can move each score, float64[C].

    It is `tolerance` times the number of rows that the log-probability is read from. It
    is doubled for rules that subtract a second evaluation, and for means it is divided
    like the score.

    Args:
        rule: The rule's name.
        tolerance: Nats a row, as measured by the self-check.
    """
    rows = rows_of_paths(trie, terminator)[trie.path_of]
    if first_scored is not None:
        rows = rows - np.minimum(first_scored, trie.depth[trie.path_node[trie.path_of]])
    sides = 2.0 if rule in DIFFERENCES else 1.0
    return np.asarray(tolerance * sides * rows / lengths.for_rule(rule), dtype=np.float64)


def rows_alone(trie: TokenTrie, terminator: str) -> IntArray:
    """Return how many rows below the prompt each path alone needs, int32[P].

    They are the rows of its tokens and, for "unless-continued", all rows that decide
    whether the choice is continued.
    """
    rows = trie.depth[trie.path_node].astype(np.int32)
    if terminator == "unless-continued":
        owner = longest_prefix_owner(trie)
        counted = trie.inner & (owner != NO_NODE)
        rows += np.bincount(owner[counted], minlength=len(trie))[trie.path_node].astype(np.int32)
    return np.asarray(rows, dtype=np.int32)


def finalists(scores: FloatArray, tolerances: FloatArray, path_of: IntArray, k: int = 1) -> IntArray:
    """Return the choices whose order among the first k depends on the layout of calls.

    They come best first, one for each path. A choice is a candidate if its score is
    within the sum of both tolerances of the k-th best. It is a finalist if another
    candidate is that close to it.

    Args:
        scores, tolerances: float64[C]; NaN and -inf never qualify.
        path_of: int32[C], the path of each choice.
        k: How many of the best choices are asked for.
    """
    best = best_of_paths(scores, path_of)
    usable = np.flatnonzero(scores > -np.inf)
    usable = usable[scores[usable] == best[path_of[usable]]]
    usable = usable[np.sort(np.unique(path_of[usable], return_index=True)[1])]
    order = usable[np.argsort(-scores[usable], kind="stable")]
    if len(order) < 2:
        return np.empty(0, dtype=np.int32)
    kth = order[min(k, len(order)) - 1]
    candidates = order[scores[order] + tolerances[order] >= scores[kth] - tolerances[kth]]
    close = _has_close_neighbour(scores[candidates], tolerances[candidates])
    result: IntArray = candidates[close].astype(np.int32)
    return result


def _has_close_neighbour(scores: FloatArray, tolerances: FloatArray) -> BoolArray:
    """Return bool[n]: whether the interval score +- tolerance touches another one.

    It is computed with one sort.
    """
    close = np.zeros(len(scores), dtype=np.bool_)
    order = np.argsort(scores - tolerances, kind="stable")
    low, high = (scores - tolerances)[order], (scores + tolerances)[order]
    close[order[1:]] = np.maximum.accumulate(high)[:-1] >= low[1:]
    close[order[:-1]] |= low[1:] <= high[:-1]
    return close
