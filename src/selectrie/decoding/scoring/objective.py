"""A rule as a search sees it: from a path's log-probability to its score, and from a prefix to a bound on scores below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_PATH, FloatArray, IntArray
from selectrie.decoding.scoring.rules import DIFFERENCES, Lengths
from selectrie.errors import ChoiceError, OptionError
from selectrie.options import Rule


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """score(path) = logp(path) / length + offset, for P paths.

    length: float64[P], at least 1; all 1 but for means. offset: float64[P], log prior less baseline; -inf excludes.
    tolerance: float64[P], nats by which layout can move the score (0 = not asked for). first_scored: tokens of every
    path that do not count. divides: some length is not 1.
    """

    length: FloatArray
    offset: FloatArray
    tolerance: FloatArray
    first_scored: int = 0

    @property
    def divides(self) -> bool:
        return bool((self.length != 1).any())

    def score(self, paths: IntArray, logp: FloatArray) -> FloatArray:
        """float64[n]: scores of paths with these log-probabilities."""
        scores = logp / self.length[paths] + np.where(np.isneginf(logp), 0.0, self.offset[paths])
        return np.asarray(scores, dtype=np.float64)


def objective_of(
    rule: Rule,
    trie: TokenTrie,
    lengths: Lengths,
    *,
    log_prior: FloatArray | None = None,
    baseline: FloatArray | None = None,
    tolerances: FloatArray | None = None,
    first_scored: IntArray | None = None,
) -> Objective | None:
    """The objective of a request, or None where no prefix bounds what is below it: then all paths must be scored.

    None for rule "batch" (its baseline needs every prompt's scores), for equal paths of choices with different lengths,
    and for tokens that count in some choices but not in others. log_prior, baseline, tolerances: float64[C] as for
    `score_choices` and of `tolerance_of`; first_scored: int32[C]. A baseline of -inf raises `ChoiceError`.
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
    """The joint log-probability itself."""
    n = len(trie.path_node)
    return Objective(np.ones(n), np.zeros(n), np.zeros(n))


class Bounds:
    """Bounds on the scores of all paths below a node, from the log-probability of its prefix.

    inclusive: a path that ends at the node is below it too (its terminator is not known before the node's own row).
    Offsets and lengths below every node are taken once, vectorised, and only where they differ between paths.
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
        """float64[n]: no path below scores more; -inf where there is none, or none with any probability.

        Logarithms are negative, so the longest path below bounds a mean; a prefix above 0 (healed bytes taken off)
        is bounded by the shortest. cautious: each score may move up by its tolerance.
        """
        if self.divides:
            logp = logp / np.where(logp < 0, self._longest[nodes], self._shortest[nodes])
        offset = (self._cautious if cautious else self._offset)[nodes]
        return np.where(
            np.isneginf(logp) | np.isneginf(offset), -np.inf, np.where(np.isneginf(logp), 0.0, logp) + offset
        )


def _range_max(values: FloatArray, start: NDArray[np.int64], stop: NDArray[np.int64]) -> FloatArray:
    """float64[N]: maximum of values[start:stop] of each range, -inf for an empty one."""
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
    """float64[P]: the largest value among the choices of each path."""
    result = np.full(len(trie.path_node), -np.inf)
    np.maximum.at(result, trie.path_of, values)
    return result
