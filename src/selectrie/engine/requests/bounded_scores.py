"""Scores of choices as bounds, where rows were not read in full.

What is not known of the healed bytes moves all log-probabilities alike. It is kept
apart, so it leaves the order of the choices and their probabilities as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core import numerics
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import FloatArray
from selectrie.decoding import scoring
from selectrie.decoding.scoring.paths import widened
from selectrie.decoding.trie.frontier import longest_chain
from selectrie.engine.requests.selection import PreparedSelect
from selectrie.errors import OptionError

BOUNDS_NOTE = (
    "the probabilities of some tokens were not read: logp, score and coverage are lower bounds where logp_upper, "
    "coverage_high or heal_gap say so, and a probability is the middle of its bounds"
)

HEAL_NOTE = (
    "the log-probability of the healed bytes is known to {:.2g} nats only: each logp may be lower by as much, and "
    "coverage is a lower bound"
)
NOTED_GAP = 0.01
"""Nats to which the healed bytes' log-probability must be known to need no note."""

_ROUNDED = 1e-11
"""Share by which bounds on a coverage are widened, for the rounding of sums."""


@dataclass(frozen=True, slots=True, eq=False)
class MeanBaseline:
    """What a rule subtracts from the joint of each of C choices.

    Attributes:
        low, high: float64[C], bounds on it; the same array if it is known.
    """

    low: FloatArray
    high: FloatArray

    @property
    def is_known(self) -> bool:
        return self.low is self.high

    @property
    def width(self) -> float:
        """Return the largest distance of two bounds, in nats."""
        is_possible = self.high > -np.inf
        return float((self.high[is_possible] - self.low[is_possible]).max(initial=0.0))


@dataclass(frozen=True, slots=True, eq=False)
class ScoreBounds:
    """Bounds on the scores of C choices, without what is added to all of them alike.

    Attributes:
        low, high: float64[C], the bounds; `low` is NaN where a choice is not finished.
        coverage_high: Upper bound on the probability of the finished paths together.
        open_shift: What is added to the log of an open mass, which a search relates to
            its own log-probability of the healed bytes.
        rows_known: Whether all rows were read in full. Only open tokens then keep the
            log-probability of the healed bytes from being known.
        has_gap: Whether the log-probabilities shown are what remains after subtracting
            the upper bound on that of the healed bytes.
    """

    low: FloatArray
    high: FloatArray
    coverage_high: float
    open_shift: float
    rows_known: bool = False
    has_gap: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class BoundedJoints:
    """Joints of C choices as bounds, and what they give; as in `ChoiceScores`."""

    logp: FloatArray
    upper: FloatArray
    scores: FloatArray
    score_upper: FloatArray
    coverage: float
    log_heal: float
    heal_gap: float
    bounds: ScoreBounds


@dataclass(frozen=True, slots=True, eq=False)
class _Heal:
    """The log-probability of the healed bytes, between `low` and `low + gap`.

    Attributes:
        low, gap: The bounds.
        is_known: Whether `low` is the value that is subtracted.
    """

    low: float
    gap: float
    is_known: bool

    @property
    def shown(self) -> float:
        """Return the value that is subtracted from what is compared."""
        return self.low if self.low > -np.inf else 0.0


def known_heal_gap(prepared: PreparedSelect, evaluation: scoring.TrieEvaluation) -> float | None:
    """Return the bound on the error of `log_heal` if the scores are known.

    The mass of the open tokens may then still be known within bounds only. Return None
    if scores have bounds.
    """
    if evaluation.rest_high is not None:
        return None
    heal = _heal(prepared, evaluation, None)
    return heal.gap if heal.is_known else None


def bounded_joints(
    prepared: PreparedSelect, evaluation: scoring.TrieEvaluation, baseline: MeanBaseline | None
) -> BoundedJoints:
    """Return the joints and scores of all choices from rows not read in full.

    Raises `OptionError` for a callable rule, which has no bounds.
    """
    if prepared.custom is not None:
        expected = "the name of a rule: this model gives bounds on some probabilities, and a callable has none"
        raise OptionError("rule", prepared.custom, expected)
    trie = prepared.trie
    paths = scoring.path_scores(trie, evaluation, prepared.terminator)
    heal = _heal(prepared, evaluation, paths)
    low, high = paths.first_scored(trie, evaluation, prepared.encoded.first_scored)
    low, high = low - heal.shown, high - heal.shown
    compared = _compared(prepared, low, high, baseline, heal)
    done = ~np.isnan(paths.logp)
    least, most = paths.logp[done] - heal.shown, paths.logp_upper[done] - heal.shown
    if not heal.is_known:
        low, high, least = low - heal.gap, _at_most_one(high, heal), least - heal.gap
        most = most if heal.low > -np.inf else np.where(np.isneginf(most), -np.inf, np.inf)
    coverage = scoring.coverage_of(least) * (1 - _ROUNDED)
    searched = prepared.healing.log_heal(evaluation.edge_logp, evaluation.observed)[0]
    return BoundedJoints(
        logp=low,
        upper=high,
        scores=_by_rule(prepared, low, baseline, is_low=True),
        score_upper=_by_rule(prepared, high, baseline, is_low=False),
        coverage=coverage,
        log_heal=heal.low,
        heal_gap=heal.gap,
        bounds=ScoreBounds(
            *compared,
            coverage_high=max(coverage, _most_together(most, trie, prepared.terminator)),
            open_shift=(searched if searched > -np.inf else 0.0) - heal.shown,
            has_gap=not heal.is_known,
        ),
    )


def _heal(prepared: PreparedSelect, evaluation: scoring.TrieEvaluation, paths: scoring.PathScores | None) -> _Heal:
    """Return bounds on the log-probability of the healed bytes.

    `paths` are scored without it. All of them spell these bytes, so together they are
    at most as probable.
    """
    low, gap = prepared.healing.log_heal(evaluation.edge_logp, evaluation.observed)
    if evaluation.observed_high is None:
        return _Heal(low, gap, is_known=True)
    covered, total = prepared.healing.upper_bounds(evaluation.edge_logp, evaluation.observed_high)
    if covered == low:
        gap = max(0.0, total - low) if low > -np.inf else (np.inf if total > -np.inf else 0.0)
        return _Heal(low, gap, is_known=True)
    if paths is not None:
        chain = float(longest_chain(prepared.trie))
        low = max(low, numerics.logsumexp(paths.logp[~np.isnan(paths.logp)]) - float(np.log(chain)))
    (low,), (total,) = (one.tolist() for one in widened(np.array([low]), np.array([total])))
    return _Heal(low, total - low, is_known=False)


def _at_most_one(upper: FloatArray, heal: _Heal) -> FloatArray:
    """Return upper bounds on the joints of paths, which spell the healed bytes."""
    if heal.low == -np.inf:
        return np.where(np.isneginf(upper), -np.inf, 0.0)
    return np.minimum(upper, widened(np.zeros(1), np.zeros(1))[1])


def _most_together(logp: FloatArray, trie: TokenTrie, terminator: str) -> float:
    """Return an upper bound on the probability of paths with these upper bounds.

    Paths with a terminator exclude one another; without one, paths that begin with one
    another count the same mass.
    """
    at_most = float(longest_chain(trie)) if terminator in ("none", "text") else 1.0
    if np.isposinf(logp).any():
        return at_most
    return min(scoring.coverage_of(logp) * (1 + _ROUNDED), at_most * (1 + _ROUNDED))


def _compared(
    prepared: PreparedSelect, low: FloatArray, high: FloatArray, baseline: MeanBaseline | None, heal: _Heal
) -> tuple[FloatArray, FloatArray]:
    """Return bounds on the scores without what is added to all of them alike.

    Args:
        prepared: The request.
        low, high: float64[C], bounds on the joints, given that the log-probability of
            the healed bytes is `heal.shown`.
        baseline: Bounds on the baselines of the choices.
        heal: What is known of the healed bytes.
    """
    if not heal.is_known:
        low, high = widened(low, high)  # what is left out was added, and rounded, before
    low = _by_rule(prepared, low, baseline, is_low=True)
    high = _by_rule(prepared, high, baseline, is_low=False)
    return _moved_apart(prepared, low, high, heal.gap)


def moves_apart(prepared: PreparedSelect, heal_gap: float) -> bool:
    """Return whether what is not known of the healed bytes may change an order.

    It does not if the log-probability that is subtracted from all joints is divided by
    equal lengths.
    """
    lengths = prepared.lengths.for_rule(prepared.rule.name)
    return heal_gap > 0 and prepared.custom is None and bool((lengths != lengths[0]).any())


def heal_bounds(
    prepared: PreparedSelect, scores: FloatArray, upper: FloatArray, heal_gap: float, coverage: float
) -> ScoreBounds | None:
    """Return the bounds of scores whose rows were read in full; None if there are none.

    Args:
        prepared: The request.
        scores, upper: float64[C], the scores and upper bounds on them, by the lower
            bound on the log-probability of the healed bytes.
        heal_gap: The distance to its upper bound.
        coverage: The coverage.
    """
    if not moves_apart(prepared, heal_gap):
        return None
    low, high = _moved_apart(prepared, scores, upper, heal_gap)
    return ScoreBounds(low, high, coverage, 0.0, rows_known=True)


def _moved_apart(
    prepared: PreparedSelect, low: FloatArray, high: FloatArray, heal_gap: float
) -> tuple[FloatArray, FloatArray]:
    """Return bounds on scores, with what `heal_gap` may add to their differences."""
    share = 1 / prepared.lengths.for_rule(prepared.rule.name)
    share = share - (share.min() + share.max()) / 2  # a change of all scores alike is left out
    if not heal_gap or not share.any():
        return low, high
    with np.errstate(invalid="ignore"):  # 0 · inf
        moves = np.where(share == 0, 0.0, -heal_gap * share)
    moved_low = np.where(np.isneginf(low), -np.inf, low + np.minimum(moves, 0.0))
    return moved_low, np.where(np.isneginf(high), -np.inf, high + np.maximum(moves, 0.0))


def _by_rule(prepared: PreparedSelect, logp: FloatArray, baseline: MeanBaseline | None, *, is_low: bool) -> FloatArray:
    """Return the scores of joints that are bounds, float64[C].

    Every named rule increases with the joint and decreases with the baseline.
    """
    subtracted, unbounded = None, np.zeros(len(logp), dtype=np.bool_)
    if baseline is not None:
        subtracted = baseline.high if is_low else baseline.low
        unbounded = np.isneginf(subtracted) & (baseline.high > -np.inf) & (logp > -np.inf)
        subtracted = np.where(unbounded, 0.0, subtracted)
    scores = scoring.score_choices(
        prepared.rule, logp, prepared.lengths, baseline=subtracted, log_prior=prepared.log_prior
    )
    return np.where(unbounded & (scores > -np.inf), np.inf, scores)
