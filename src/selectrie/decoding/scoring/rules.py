"""Computes scores by named rules, with bounds, and turns them into a decision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from numbers import Real
from typing import SupportsFloat, TypeVar

import numpy as np
from numpy.typing import NDArray

from selectrie.core import numerics
from selectrie.core.numerics import ROUNDED_SUM, Interval
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_PATH, BoolArray, FloatArray, IntArray
from selectrie.errors import ChoiceError, OptionError
from selectrie.options import BASELINE_RULES, ScoringRule

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Lengths of C choices.

    Attributes:
        n_tokens: int32[C], number of scored tokens of the path, including tokens of
            healed bytes and of following text.
        n_chars, n_bytes: int32[C], number of characters and bytes of the choice as
            given.
    """

    n_tokens: IntArray
    n_chars: IntArray
    n_bytes: IntArray

    @classmethod
    def of(cls, texts: Sequence[str], trie: TokenTrie, first_scored: IntArray | None = None) -> Lengths:
        """Return the lengths of the choices `texts`, whose paths are in `trie`.

        Tokens before first_scored[c] do not count.
        """
        n_tokens = trie.depth[trie.path_node[trie.path_of]]
        if first_scored is not None:
            n_tokens = np.maximum(n_tokens - first_scored, 0)
        n_chars = np.array([len(text) for text in texts], dtype=np.int32)
        n_bytes = np.array([len(text.encode("utf-8", "surrogatepass")) for text in texts], dtype=np.int32)
        return cls(n_tokens.astype(np.int32), n_chars, n_bytes)

    def divides(self, rule: str) -> bool:
        """Return whether the rule divides by a length other than 1."""
        return bool((self.for_rule(rule) != 1).any())

    def for_rule(self, rule: str) -> FloatArray:
        """Return the length by which the rule divides each score, float64[C].

        It is 1 for rules without lengths. Raises `ChoiceError` for a length of 0.
        """
        units = {"token_mean": ("tokens", self.n_tokens), "char_mean": ("characters", self.n_chars)}
        units["byte_mean"] = ("bytes", self.n_bytes)
        if rule not in units:
            return np.ones(len(self.n_tokens))
        unit, lengths = units[rule]
        if (lengths == 0).any():
            raise ChoiceError(f"no {unit} to average over; use rule 'joint'", index=int(np.argmax(lengths == 0)))
        return lengths.astype(np.float64)


def log_priors(prior: Mapping[str, float] | Sequence[float] | None, choices: Sequence[str]) -> FloatArray | None:
    """Return the log of each choice's prior, float64[C], or None if none is given.

    A prior of 0 gives -inf and excludes the choice.

    Args:
        prior: Weights by choice, or C weights in the order of `choices`. They must be
            finite, not negative and not all 0. They need not sum to one, since a common
            factor changes no decision.

    Raises:
        OptionError: If `prior` is neither a mapping nor a sequence of weights (a text,
            a set, a number).
        ChoiceError: If a weight is no such number (Booleans and texts are refused), a
            choice is unknown or missing, the number of weights is wrong, or equal
            choices have different weights.
    """
    if prior is None:
        return None
    values = _read_prior_mapping(prior, choices) if isinstance(prior, Mapping) else _read_prior_list(prior)
    if len(values) != len(choices):
        raise ChoiceError(f"the prior has {len(values)} weights for {len(choices)} choices", of_prior=True)
    weights = np.array([_to_weight(value) for value in values], dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(wrong):
        index = int(wrong[0])
        reason = f"its prior is {values[index]!r}; give a finite weight of at least 0"
        raise ChoiceError(reason, index=index, choice=choices[index], of_prior=True)
    first: dict[str, int] = {}
    for index, choice in enumerate(choices):
        if weights[first.setdefault(choice, index)] != weights[index]:
            reason = f"its prior differs from that of the equal choice {first[choice]}"
            raise ChoiceError(reason, index=index, choice=choice, of_prior=True)
    if len(weights) and not weights.any():
        raise ChoiceError("every prior is 0, which leaves nothing to choose from", of_prior=True)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights), dtype=np.float64)


def _read_prior_list(prior: object) -> list[object]:
    """Return a prior's weights as a list; raise `OptionError` for no sequence."""
    if isinstance(prior, np.ndarray):
        return list(prior) if prior.ndim else [prior]
    if not isinstance(prior, Iterable) or isinstance(prior, str | bytes | bytearray | AbstractSet):
        raise OptionError("prior", prior, "weights by choice (a mapping), or one weight for each choice in order")
    return list(prior)


def _to_weight(value: object) -> float:
    """Return `value` as a float, or NaN for Booleans, texts, None and arrays."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return np.nan
    try:
        return float(value)
    except OverflowError:  # an integer beyond 1e308
        return np.inf


def _read_prior_mapping(prior: Mapping[str, float], choices: Sequence[str]) -> list[object]:
    """Return the weights of a mapping in the order of the choices.

    Raises `ChoiceError` if a choice is unknown or missing.
    """
    known = set(choices)
    unknown = next((key for key in prior if key not in known), None)
    if unknown is not None:
        raise ChoiceError(f"the prior names {unknown!r}, which is not a choice", of_prior=True)
    for index, choice in enumerate(choices):
        if choice not in prior:
            raise ChoiceError(
                "the prior does not name it; give every choice a weight", index=index, choice=choice, of_prior=True
            )
    return [prior[choice] for choice in choices]


def score_choices(
    rule: ScoringRule,
    logp: FloatArray,
    lengths: Lengths,
    *,
    baseline: FloatArray | None = None,
    log_prior: FloatArray | None = None,
) -> FloatArray:
    """Return the score of each choice by a named rule, prior included, float64[C].

    Args:
        logp: float64[C], the joint, NaN where unknown. NaN stays NaN, whatever the
            prior, and -inf stays -inf, whatever the baseline.
        baseline: float64[C]. For rule "pmi" it is the joint after the premise, for
            "calibrated" and "batch" the mean joint (`mean_joint`). Both include the
            terminator. A baseline of -inf with a finite joint raises `ChoiceError`,
            because the difference is infinite.
        log_prior: From `log_priors`; -inf excludes the choice.
    """
    if rule.name in BASELINE_RULES:
        if baseline is None:
            raise OptionError("baseline", None, f"log-probabilities to subtract for rule {rule.name!r}")
        bad = np.flatnonzero(np.isneginf(baseline) & (logp > -np.inf))
        if len(bad):
            reason = f"probability 0 in the baseline of rule {rule.name!r}, so its score would be infinite"
            raise ChoiceError(reason, index=int(bad[0]))
        scores = logp - np.where(np.isneginf(logp), 0.0, baseline)
    else:
        scores = logp / lengths.for_rule(rule.name)
    return _add_prior(scores, log_prior)


def score_with(
    rule: Callable[[Record], float], records: Iterable[Record], log_prior: FloatArray | None = None
) -> FloatArray:
    """Return the scores that the function `rule` gives to `records`, float64[C].

    There is one record for each choice, and `log_prior` is added. Raises `OptionError`
    if the function returns NaN, +inf or no number.
    """
    scores = np.array([_to_number(rule(record), index) for index, record in enumerate(records)], dtype=np.float64)
    wrong = np.flatnonzero(np.isnan(scores) | np.isposinf(scores))
    if len(wrong):
        index = int(wrong[0])
        raise OptionError(
            "rule", f"{float(scores[index])} for choice {index}", "a callable that returns a number below inf"
        )
    return _add_prior(scores, log_prior)


def _to_number(value: object, index: int) -> float:
    """Return the score of a choice as a float; raise `OptionError` for other types."""
    if not isinstance(value, SupportsFloat):
        raise OptionError("rule", f"{value!r} for choice {index}", "a callable that returns a number below inf")
    return float(value)


def rounding_of(
    rule: ScoringRule,
    logp: FloatArray,
    lengths: Lengths,
    *,
    baseline: FloatArray | None = None,
    log_prior: FloatArray | None = None,
) -> FloatArray:
    """Return the possible rounding error of each score in nats, float64[..., C].

    Two scores that differ by less may come from equal sums that were added in another
    order, or from other terms. The arguments are those of `score_choices`. The error is
    0 for scores that are not finite.
    """
    size = np.maximum(np.abs(logp), 1.0)
    if rule.name in BASELINE_RULES and baseline is not None:
        size = size + np.abs(baseline)
    size = size / lengths.for_rule(rule.name)
    if log_prior is not None:
        size = size + np.abs(log_prior)
    return np.where(np.isfinite(size), ROUNDED_SUM * size, 0.0)


def mean_joint(joints: Sequence[FloatArray]) -> FloatArray:
    """Return the mean log-probability of each choice over several prompts, float64[C].

    The rules "calibrated" and "batch" use it. If a choice has probability 0 after some
    prompt, its mean is -inf.
    """
    return np.asarray(np.mean(np.stack(list(joints)), axis=0), dtype=np.float64)


def _add_prior(scores: FloatArray, log_prior: FloatArray | None) -> FloatArray:
    """Return the scores plus the log prior; a prior of -inf always gives -inf."""
    if log_prior is None:
        return scores
    excluded = np.isneginf(log_prior)
    return np.where(excluded & ~np.isnan(scores), -np.inf, scores + np.where(excluded, 0.0, log_prior))


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """Scores P paths by logp(path) / length + offset.

    Attributes:
        length: float64[P], at least 1; all 1 except for mean rules.
        offset: float64[P], log prior minus baseline. A path with -inf is excluded.
        tolerance: float64[P], nats by which the batch layout can move the score; 0 if
            not requested.
        first_scored: Number of leading tokens of every path that are not scored.
        moves: Nats by which the difference of two scores may be wrong, because the
            baseline is an interval.
    """

    length: FloatArray
    offset: FloatArray
    tolerance: FloatArray
    first_scored: int = 0
    moves: float = 0.0

    @property
    def divides(self) -> bool:
        """Return whether some length is not 1."""
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
    """Return the objective of a request, or None if prefixes give no bounds.

    None means that all paths must be scored. That is the case for rule "batch" (its
    baseline needs the scores of every prompt), for equal paths of choices with
    different lengths, and for tokens that are scored in some choices but not in others.

    Args:
        log_prior, baseline: float64[C], as for `score_choices`. A baseline of -inf
            raises `ChoiceError`.
        tolerances: float64[C], from `tolerance_of`.
        first_scored: int32[C], index of each choice's first scored token.
    """
    divisor = lengths.for_rule(rule.name)
    first = np.zeros(len(divisor), dtype=np.int32) if first_scored is None else first_scored
    length = _max_by_path(divisor, trie)
    if rule.name == "batch" or (length[trie.path_of] != divisor).any() or len(np.unique(first)) > 1:
        return None
    offset = np.zeros(len(divisor)) if log_prior is None else log_prior.copy()
    if rule.name in BASELINE_RULES:
        if baseline is None:
            raise OptionError("baseline", None, f"log-probabilities to subtract for rule {rule.name!r}")
        if np.isneginf(baseline).any():
            reason = f"probability 0 in the baseline of rule {rule.name!r}, so no bound on its score exists"
            raise ChoiceError(reason, index=int(np.argmax(np.isneginf(baseline))))
        offset = np.where(np.isneginf(offset), -np.inf, np.where(np.isneginf(offset), 0.0, offset) - baseline)
    tolerance = np.zeros(len(divisor)) if tolerances is None else tolerances
    return Objective(length, _max_by_path(offset, trie), _max_by_path(tolerance, trie), int(first.max(initial=0)))


class Bounds:
    """Computes upper bounds on the scores of all paths below a node.

    The largest offset and the extreme lengths below every node are computed once, for
    all nodes together, and only where they differ between paths.

    Args:
        inclusive: Whether a path that ends at the node counts as below it. That is
            needed if its terminator is unknown before the node's own row.
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

        A bound is -inf if no path below the node has a positive probability. For mean
        rules, a negative `logp` is divided by the length of the longest path below. A
        positive one (after healed bytes were subtracted) is divided by that of the
        shortest.

        Args:
            nodes: int32[n], the nodes.
            logp: float64[n], the log-probability of each node's prefix.
            cautious: Whether to add the tolerance of each score.
        """
        if self.divides:
            logp = logp / np.where(logp < 0, self._longest[nodes], self._shortest[nodes])
        offset = (self._cautious if cautious else self._offset)[nodes]
        return np.where(
            np.isneginf(logp) | np.isneginf(offset), -np.inf, np.where(np.isneginf(logp), 0.0, logp) + offset
        )


def _range_max(values: FloatArray, start: NDArray[np.int64], stop: NDArray[np.int64]) -> FloatArray:
    """Return the maximum of each range values[start:stop]; -inf if it is empty."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """A decision over C choices.

    Attributes:
        probability: float64[C], softmax of the scores over distinct paths. Choices with
            equal paths all get the path's probability. NaN where the score is unknown.
        bounds: float64[C], bounds on the probability. They differ if a search left mass
            open, or if the scores are intervals.
        winner: Index of the choice with the best score; the lowest index on exact ties.
            It always has a score.
        is_tie: Whether another path has the winner's score, as far as rounding can
            show.
        margin: The winner's score minus the best score, or upper bound on a score, of
            another path; inf if there is only one path.
        bound_gap: The lowest score of the first k paths minus the best bound on a path
            without a score; inf if no path without a score can have any probability.
    """

    probability: FloatArray
    bounds: Interval[FloatArray]
    winner: int
    is_tie: bool
    margin: float
    bound_gap: float = math.inf


def duplicates(path_of: IntArray) -> IntArray:
    """Return for each choice the first choice with the same path, int32[C].

    It is -1 for that first choice itself.
    """
    _, first, inverse = np.unique(path_of, return_index=True, return_inverse=True)
    earliest = first[inverse.reshape(-1)]
    return np.where(earliest == np.arange(len(path_of)), -1, earliest).astype(np.int32)


def coverage_of(logp: FloatArray) -> float:
    """Return the total probability of the choices, the sum of exp(logp).

    `logp` is float64[P], over distinct paths; NaN counts as probability 0.
    """
    return float(numerics.exp(np.array(numerics.logsumexp(logp[~np.isnan(logp)]))))


def best_of_paths(scores: FloatArray, path_of: IntArray) -> FloatArray:
    """Return the best score among the choices of each path, float64[P].

    It is NaN where no choice has a score.
    """
    best = np.full(int(path_of.max(initial=-1)) + 1, np.nan)
    np.fmax.at(best, path_of, scores)
    return best


def posterior(
    scores: Interval[FloatArray],
    path_of: IntArray,
    *,
    ranking: FloatArray | None = None,
    log_open: float = -np.inf,
    slack: FloatArray | None = None,
    k: int = 1,
) -> Posterior:
    """Decide among C choices by their scores, or by bounds on them.

    The best of `ranking` wins; of equal ones the lowest index, also if all are -inf.
    The margin is the winner's lower bound minus the best upper bound on another path,
    so it may be negative for intervals. For ties see `has_near_tie`.

    Args:
        scores: float64[C]. `low` is NaN where a choice has no score; `high` still
            bounds it. A constant that is added to all scores may be left out.
        path_of: int32[C]; equal paths count once, by their best score.
        ranking: float64[C], the scores to rank by, NaN where there is none; None for
            `scores.low`.
        log_open: Log of a bound on the summed exp(score) of all paths without a score.
        slack: float64[C], nats by which rounding, or reading it again, may move each
            score; None for 0.
        k: The number of best paths that `Posterior.bound_gap` is about.
    """
    low, ranking = scores.low, scores.low if ranking is None else ranking
    best = scores.map(lambda one: best_of_paths(one, path_of))
    least, most = best.low, best.high
    done = ~np.isnan(least)
    weights = np.where(done, least, -np.inf)
    if scores.is_known:
        most = np.where(done, least, most)
        share = _softmax(weights, log_open)
    else:
        share = _bound_shares(weights, np.where(done, most, -np.inf), log_open)
    if not done.all():
        left = np.minimum(np.where(done, -np.inf, most), log_open)
        most_left = _round_up(_log_share(left, np.array(numerics.logsumexp(weights))))
        share = Interval(share.low, np.where(done, share.high, most_left))
    known = np.flatnonzero(~np.isnan(ranking))  # `nanargmax` takes NaN for -inf
    winner = int(known[np.argmax(ranking[known])])
    rival = float(np.delete(most, path_of[winner]).max(initial=-np.inf))
    margin = float(low[winner]) - rival if rival > -np.inf else (np.inf if low[winner] > -np.inf else 0.0)
    return Posterior(
        probability=np.where(done, (share.low + share.high) / 2, np.nan)[path_of],
        bounds=share.map(lambda p: p[path_of]),
        winner=winner,
        is_tie=has_near_tie(scores, path_of, np.zeros(len(low)) if slack is None else slack, winner),
        margin=margin if len(most) > 1 else np.inf,
        bound_gap=_bound_gap(best_of_paths(ranking, path_of), Interval(least, most), k),
    )


def _bound_gap(ranking: FloatArray, scores: Interval[FloatArray], k: int) -> float:
    """Return the lowest score of the first k paths minus the best bound on the others.

    The others are those that have no score. The result is -inf if fewer than k paths
    have one, and inf if the others can have no probability.

    Args:
        ranking: float64[P], the scores that are shown; NaN where there is none.
        scores: float64[P], bounds on the scores; NaN as `low` where there is none.
        k: The number of best paths; all of them if there are fewer.
    """
    best_open = float(scores.high[np.isnan(ranking)].max(initial=-np.inf))
    if best_open == -np.inf:
        return np.inf
    ranked = np.sort(ranking)[: np.count_nonzero(~np.isnan(ranking))]  # NaN comes last
    k = min(k, len(ranking))
    return -np.inf if len(ranked) < k else float(scores.low[ranking >= ranked[-k]].min()) - best_open


def _softmax(weights: FloatArray, log_open: float) -> Interval[FloatArray]:
    """Return bounds on the share of each of P masses in their sum.

    `weights` are log masses. The sum may include up to exp(log_open) more.
    """
    total = numerics.logsumexp(weights)
    high = numerics.exp(_log_difference(weights, total))
    if log_open == -np.inf:
        return Interval.point(high)
    return Interval(numerics.exp(_log_difference(weights, float(np.logaddexp(total, log_open)))), high)


def _log_difference(x: FloatArray, y: float) -> FloatArray:
    """Return x - y for logarithms, with -inf - -inf defined as 0."""
    return np.where(np.isneginf(x), -np.inf, np.where(np.isneginf(x), 0.0, x) - (0.0 if y == -np.inf else y))


_ROUNDED = 1e-11
"""Relative widening of bounds on a probability, for rounding.

A score of 10 000 nats is rounded by 2e-12, and its exponential relatively by as much.
"""


def has_near_tie(scores: Interval[FloatArray], path_of: IntArray, slack: FloatArray, winner: int) -> bool:
    """Return whether another choice may be as good as `winner`, by bounds and slack.

    Only choices with a score count, on another path than the winner's. The arguments
    are those of `posterior`.
    """
    others = ~np.isnan(scores.low) & (path_of != path_of[winner])
    return bool((scores.high + slack >= scores.low[winner] - slack[winner])[others].any())


def is_certain(scores: Interval[FloatArray], path_of: IntArray, tolerances: FloatArray, k: int) -> bool:
    """Return whether bounds and tolerances decide the order of the first k paths.

    Exactly known, equal scores without a tolerance are ordered by their index, if the
    best choice of each of their paths is known too. The arguments are those of
    `posterior`.
    """
    lower = np.where(np.isnan(scores.low), -np.inf, scores.low)
    first, may_be_first = _first_best(lower, path_of), _first_best(scores.high, path_of)
    ranked = np.lexsort((first, -lower[first]))
    lowest = best_of_paths(lower - tolerances, path_of)[ranked]
    highest = best_of_paths(scores.high + tolerances, path_of)[ranked]
    is_known: BoolArray = (lowest == highest) & (first == may_be_first)[ranked]
    below, doubtful = _largest_after(highest), _largest_after(np.where(is_known, -np.inf, highest))
    decided = (lowest > below) | (is_known & ((lowest > doubtful) | np.isneginf(doubtful)))
    decided[-1] = True
    return bool(decided[:k].all())


def _first_best(scores: FloatArray, path_of: IntArray) -> IntArray:
    """Return the first choice with the best score of each path, int64[P]."""
    best = np.flatnonzero(scores == best_of_paths(scores, path_of)[path_of])
    return np.asarray(best[np.unique(path_of[best], return_index=True)[1]])


def _largest_after(values: FloatArray) -> FloatArray:
    """Return for each value the largest of those after it; -inf for the last."""
    return np.append(np.maximum.accumulate(values[::-1])[::-1][1:], -np.inf)


def _bound_shares(low: FloatArray, high: FloatArray, log_open: float) -> Interval[FloatArray]:
    """Return bounds on the share of each of P masses in their sum.

    Each mass lies between exp(low) and exp(high). The sum may include up to
    exp(log_open) more.
    """
    p_low = numerics.exp(_log_share(low, np.logaddexp(_log_sum_others(high), log_open))) * (1 - _ROUNDED)
    return Interval(p_low, _round_up(_log_share(high, _log_sum_others(low))))


def _round_up(log_share: FloatArray) -> FloatArray:
    """Return exp(log_share), rounded up and at most 1."""
    return np.minimum(numerics.exp(log_share) * (1 + _ROUNDED), 1.0)


def _log_share(x: FloatArray, others: FloatArray) -> FloatArray:
    """Return the log of the share of exp(x) in the sum of exp(x) and exp(others)."""
    total = np.logaddexp(x, others)
    with np.errstate(invalid="ignore"):  # inf - inf
        share = np.where(np.isneginf(x), -np.inf, x - np.where(np.isneginf(total), 0.0, total))
    return np.where(np.isposinf(x), 0.0, share)


def _log_sum_others(x: FloatArray) -> FloatArray:
    """Return for each of P logarithms the log of the sum of all others, float64[P]."""
    padded = np.concatenate([[-np.inf], x, [-np.inf]])
    before, after = np.logaddexp.accumulate(padded), np.logaddexp.accumulate(padded[::-1])[::-1]
    return np.logaddexp(before[:-2], after[2:])
