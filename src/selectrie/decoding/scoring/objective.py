"""Scores and bounds by a scoring rule, as a search needs them.

An objective maps a path's log-probability to a score, and a prefix's log-probability to
a bound on the scores below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_PATH, FloatArray, IntArray
from selectrie.decoding.scoring.rules import DIFFERENCES, Lengths
from selectrie.errors import ChoiceError, OptionError
from selectrie.options import ScoringRule


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """Scores P paths by logp(path) / length + offset.

    Attributes:
        length: float64[P], at least 1; all 1 except for means.
        offset: float64[P], log prior minus baseline. A path with -inf is excluded.
        tolerance: float64[P], nats by which the layout of calls can move the score; 0
            if not requested.
        first_scored: How many tokens of every path do not count.
        moves: Nats by which two scores may move against each other, because a baseline
            is known within bounds only.
        divides: Whether some length is not 1.
    """

    length: FloatArray
    offset: FloatArray
    tolerance: FloatArray
    first_scored: int = 0
    moves: float = 0.0

    @property
    def divides(self) -> bool:
        return bool((self.length != 1).any())

    def score(self, paths: IntArray, logp: FloatArray) -> FloatArray:
        """Return the scores of paths with these log-probabilities, float64[n]."""
        scores = logp / self.length[paths] + np.where(np.isneginf(logp), 0.0, self.offset[paths])
        return np.asarray(scores, dtype=np.float64)


def objective_of(
    rule: ScoringRule,
    trie: TokenTrie,
    lengths: Lengths,
    *,
    log_prior: FloatArray | None = None,
    baseline: FloatArray | None = None,
    tolerances: FloatArray | None = None,
    first_scored: IntArray | None = None,
) -> Objective | None:
    """Return the objective of a request, or None if a prefix bounds no scores below it.

    Then all paths must be scored. That is the case for rule "batch" (its baseline needs
    the scores of every prompt), for equal paths of choices with different lengths, and
    for tokens that count in some choices but not in others.

    Args:
        log_prior, baseline: float64[C], as for `score_choices`. A baseline of -inf
            raises `ChoiceError`.
        tolerances: float64[C], from `tolerance_of`.
        first_scored: int32[C].
    """
    divisor = lengths.for_rule(rule.name)
    first = np.zeros(len(divisor), dtype=np.int32) if first_scored is None else first_scored
    length = _max_by_path(divisor, trie)
    if rule.name == "batch" or (length[trie.path_of] != divisor).any() or len(np.unique(first)) > 1:
        return None
    offset = np.zeros(len(divisor)) if log_prior is None else log_prior.copy()
    if rule.name in DIFFERENCES:
        if baseline is None:
            raise OptionError("baseline", None, f"log-probabilities to subtract for rule {rule.name!r}")
        if np.isneginf(baseline).any():
            reason = f"probability 0 in the baseline of rule {rule.name!r}, so no bound on its score exists"
            raise ChoiceError(reason, index=int(np.argmax(np.isneginf(baseline))))
        offset = np.where(np.isneginf(offset), -np.inf, np.where(np.isneginf(offset), 0.0, offset) - baseline)
    tolerance = np.zeros(len(divisor)) if tolerances is None else tolerances
    return Objective(length, _max_by_path(offset, trie), _max_by_path(tolerance, trie), int(first.max(initial=0)))


def plain_objective(trie: TokenTrie) -> Objective:
    """Return the objective whose score is the joint log-probability itself."""
    n = len(trie.path_node)
    return Objective(np.ones(n), np.zeros(n), np.zeros(n))


class Bounds:
    """Computes bounds on the scores of all paths below a node from its log-probability.

    The extreme offsets and lengths below every node are computed once, vectorised, and
    only where they differ between paths.

    Args:
        inclusive: Whether a path that ends at the node counts as below it, because its
            terminator is unknown before the node's own row.
    """

    def __init__(self, trie: TokenTrie, objective: Objective, *, inclusive: bool) -> None:
        start = trie.first_path.astype(np.int64)
        stop = start + trie.n_paths
        if not inclusive:
            start = start + (trie.end_path != NO_PATH)
        self.n_paths: NDArray[np.int64] = stop - start
        self._offset = _range_max(objective.offset, start, stop)
        total = objective.offset + objective.tolerance
        self._cautious = self._offset if not objective.tolerance.any() else _range_max(total, start, stop)
        self.divides = objective.divides
        if self.divides:
            self._longest = _range_max(objective.length, start, stop)
            self._shortest = -_range_max(-objective.length, start, stop)

    def upper(self, nodes: IntArray, logp: FloatArray, *, cautious: bool = False) -> FloatArray:
        """Return an upper bound on the scores of all paths below each node, float64[n].

        `logp` are the log-probabilities of the nodes' prefixes. A bound is -inf where
        no path below has any probability. For means, a negative `logp` is divided by
        the length of the longest path below. A positive one (after healed bytes were
        subtracted) is divided by that of the shortest.

        Args:
            cautious: Whether each score may move up by its tolerance.
        """
        if self.divides:
            logp = logp / np.where(logp < 0, self._longest[nodes], self._shortest[nodes])
        offset = (self._cautious if cautious else self._offset)[nodes]
        return np.where(
            np.isneginf(logp) | np.isneginf(offset), -np.inf, np.where(np.isneginf(logp), 0.0, logp) + offset
        )


def _range_max(values: FloatArray, start: NDArray[np.int64], stop: NDArray[np.int64]) -> FloatArray:
    """Return the maximum of values[start:stop] of each range, -inf for an empty one."""
    if len(values) and (values == values[0]).all():
        return np.where(stop > start, values[0], -np.inf)
    padded = np.append(values, -np.inf)
    result = np.full(len(start), -np.inf)
    filled = np.flatnonzero(stop > start)
    if len(filled):
        pairs = np.stack([start[filled], stop[filled]], axis=1).ravel()
        result[filled] = np.maximum.reduceat(padded, pairs)[::2]
    return result


def _max_by_path(values: FloatArray, trie: TokenTrie) -> FloatArray:
    """Return the largest value among the choices of each path, float64[P]."""
    result = np.full(len(trie.path_node), -np.inf)
    np.maximum.at(result, trie.path_of, values)
    return result
