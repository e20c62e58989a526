"""Computes how far the batch layout may move a score, and finds near ties."""

from __future__ import annotations

import numpy as np

from selectrie.core import numerics
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, NO_PATH, ROOT, BoolArray, FloatArray, IntArray
from selectrie.decoding.scoring.evaluation import TrieEvaluation, levels, row_owner
from selectrie.decoding.scoring.rules import Lengths, best_of_paths
from selectrie.options import BASELINE_RULES

ROUNDING = 1e-6
"""Nats by which a bound may fall below the true value because of rounding.

A bound and the score below it use the same log-sum-exp of each row that they share, so
its error (at most 1e-6, mostly 1e-7) cancels. The remaining error is that of sums of
float32 exponentials, such as the mass of a set of tokens, and of float64 sums.
"""


def rows_of_paths(trie: TokenTrie, terminator: str) -> IntArray:
    """Return the number of rows that each path's log-probability depends on, int32[P].

    Each token counts one row, and the terminator "eog" one more. The terminator
    "unless-continued" adds the longest chain of rows, at and below the end, that decide
    whether the choice is continued.
    """
    rows = trie.depth[trie.path_node].copy()
    if terminator == "eog":
        rows += 1
    if (owner := row_owner(trie, terminator)) is not None:
        run = trie.inner.astype(np.int32)
        for level in reversed(levels(trie)[1:]):
            passes = level[(trie.end_path[level] == NO_PATH) & (owner[level] != NO_NODE)]
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
    evaluation: TrieEvaluation | None = None,
    adds_up: bool = False,
) -> FloatArray:
    """Return by how many nats each score may differ in another layout, float64[..., C].

    Errors of different rows are independent, so the tolerance of a sum of n rows is
    that of one row times the square root of n. Two scores are near if they differ by
    less than the root of the sum of their squared tolerances (`is_near`). A rule that
    subtracts a baseline depends on twice the rows. The tolerance of a mean is divided
    like the score.

    Args:
        rule: The rule's name.
        tolerance: Nats a row (`SelfCheck.tolerance`).
        first_scored: int32[C], index of each choice's first scored token.
        evaluation: The evaluation, if known. A row that gives its token the probability
            p moves by 1 - p of the tolerance, so it counts as (1 - p) squared rows.
        adds_up: Whether `tolerance` is a strict bound for each row, so that rows add up
            linearly. This is so for models on remote servers.
    """
    rows = rows_of_paths(trie, terminator)[trie.path_of]
    if first_scored is not None:
        rows = rows - np.minimum(first_scored, trie.depth[trie.path_node[trie.path_of]])
    n_both = rows.astype(np.float64) * (2.0 if rule in BASELINE_RULES else 1.0)
    if adds_up:
        return np.asarray(tolerance * n_both / lengths.for_rule(rule), dtype=np.float64)
    if evaluation is not None:
        n_both = n_both - _count_fixed_rows(trie, terminator, evaluation, first_scored)
    return np.asarray(tolerance * np.sqrt(np.maximum(n_both, 0.0)) / lengths.for_rule(rule), dtype=np.float64)


def _count_fixed_rows(
    trie: TokenTrie, terminator: str, evaluation: TrieEvaluation, first_scored: IntArray | None
) -> FloatArray:
    """Return the number of rows, per choice, to subtract as they cannot move.

    The result is float64[..., C]. A row that gives its token the probability p counts 1
    - (1 - p) squared. Unread rows count 0, and so do rows that decide whether a choice
    is continued.
    """
    sure = _fixed_part(evaluation.edge_logp)
    sure[..., ROOT] = 0.0
    ends, above = trie.path_node, trie.accumulate(sure)
    result = above[..., ends]
    if terminator == "eog":
        result = result + _fixed_part(evaluation.eog_logp[..., ends])
    result = result[..., trie.path_of]
    if first_scored is None or not first_scored.any():
        return np.asarray(result)
    node = ends[trie.path_of].copy()
    # Climb to the last token of each choice that is not scored.
    while (below := trie.depth[node] > first_scored).any():
        node[below] = trie.parent[node[below]]
    return np.asarray(result - above[..., node])


def _fixed_part(logp: FloatArray) -> FloatArray:
    """Return 1 - (1 - p) squared for p = exp(logp); 0 for NaN."""
    p = numerics.exp(np.where(np.isnan(logp), -np.inf, logp))
    return np.asarray(1.0 - (1.0 - p) ** 2)


def rows_alone(trie: TokenTrie, terminator: str) -> IntArray:
    """Return the number of rows below the prompt that each path alone needs, int32[P].

    They are the rows of its tokens and, for "unless-continued", all rows that decide
    whether the choice is continued.
    """
    rows = trie.depth[trie.path_node].astype(np.int32)
    if (owner := row_owner(trie, terminator)) is not None:
        counted = trie.inner & (owner != NO_NODE)
        rows += np.bincount(owner[counted], minlength=len(trie))[trie.path_node].astype(np.int32)
    return np.asarray(rows, dtype=np.int32)


def near_choices(scores: FloatArray, tolerances: FloatArray, path_of: IntArray, k: int = 1) -> IntArray:
    """Return the choices whose order among the first k depends on the batch layout.

    They come best first, one for each path. A choice is a candidate if its score is
    above the k-th best, or near it by the widest tolerance of the first k. A candidate
    is a finalist if another candidate is near it.

    Args:
        scores, tolerances: float64[C]; NaN and -inf never qualify.
        path_of: int32[C], the path of each choice.
        k: Number of best choices whose order matters.
    """
    best = best_of_paths(scores, path_of)
    usable = np.flatnonzero(scores > -np.inf)
    usable = usable[scores[usable] == best[path_of[usable]]]
    usable = usable[np.sort(np.unique(path_of[usable], return_index=True)[1])]
    order = usable[np.argsort(-scores[usable], kind="stable")]
    if len(order) < 2:
        return np.empty(0, dtype=np.int32)
    first = order[:k]
    behind = scores[order] - scores[first[-1]]
    candidates = order[is_near(behind, tolerances[order], tolerances[first].max())]
    close = _has_near_neighbour(scores[candidates], tolerances[candidates])
    result: IntArray = candidates[close].astype(np.int32)
    return result


def is_near(ahead: FloatArray, tolerances: FloatArray | np.float64, others: FloatArray | np.float64) -> BoolArray:
    """Return whether scores are ahead of others, or behind by no more than tolerances.

    Args:
        ahead: By how much each score is ahead; negative where it is behind.
        tolerances, others: Tolerances of the scores and of the others.
    """
    return np.asarray(ahead >= -np.hypot(tolerances, others))


def near_margins(scores: FloatArray, tolerances: FloatArray, path_of: IntArray) -> FloatArray:
    """Return the margin below which the best two choices are a near tie, float64[B].

    It is 0 if only one path has a score.

    Args:
        scores, tolerances: float64[B, C]; NaN and -inf never qualify.
        path_of: int32[C], the path of each choice.
    """
    rows, known = np.arange(len(scores)), np.where(np.isnan(scores), -np.inf, scores)
    winner = np.argmax(known, axis=1)
    others = np.where(path_of == path_of[winner][:, None], -np.inf, known)
    second = np.argmax(others, axis=1)
    margins = np.hypot(tolerances[rows, winner], tolerances[rows, second])
    return np.where(np.isneginf(others[rows, second]), 0.0, margins)


def are_clear(scores: FloatArray, tolerances: FloatArray, path_of: IntArray) -> BoolArray:
    """Return bool[B], whether the best score of each row has no near tie.

    For a true entry, `near_choices` with k = 1 finds nothing. It may also find
    nothing for a false entry.

    Args:
        scores: float64[B, C], without NaN.
        tolerances: float64[B, C].
        path_of: int32[C], the path of each choice.
    """
    rows, winner = np.arange(len(scores)), np.argmax(scores, axis=1)
    with np.errstate(invalid="ignore"):  # -inf - -inf
        ahead = scores - scores[rows, winner][:, None]
    near = is_near(ahead, tolerances, tolerances[rows, winner][:, None]) & (scores > -np.inf)
    near &= path_of != path_of[winner][:, None]
    return np.asarray(~near.any(axis=1))


def _has_near_neighbour(scores: FloatArray, tolerances: FloatArray) -> BoolArray:
    """Return bool[n]: whether another score is near each score.

    `scores` are finite and descending. Step n compares each score with the one n places
    below. The loop stops when no pair n places apart is within the widest tolerance.
    """
    near = np.zeros(len(scores), dtype=np.bool_)
    widest = float(np.hypot(tolerances.max(initial=0.0), tolerances.max(initial=0.0)))
    for n in range(1, len(scores)):
        behind = scores[n:] - scores[:-n]
        if not (behind >= -widest).any():
            break
        is_close = is_near(behind, tolerances[n:], tolerances[:-n])
        near[n:] |= is_close
        near[:-n] |= is_close
        if near.all():
            break
    return near
