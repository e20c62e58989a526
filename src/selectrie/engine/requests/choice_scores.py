"""Turns the rows that were read for a selection into a `Selection`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b

import numpy as np

from selectrie.core import numerics
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import Cost, FloatArray, IntArray
from selectrie.decoding import scoring
from selectrie.decoding.scoring.paths import widened
from selectrie.decoding.trie.frontier import longest_chain
from selectrie.engine.requests.selection import PreparedSelect, starts_of
from selectrie.engine.requests.session import Session
from selectrie.errors import InternalError, OptionError
from selectrie.results import Certificate, ChoiceTable, Selection, Signature, TokenScore

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


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceScores:
    """Log-probabilities and scores of C choices.

    A choice is finished if its joint is known, or if only rows that were not read in
    full keep it from being known. Its `logp`, `terminator` and `scores` are then lower
    bounds.

    Attributes:
        logp: float64[C], joint log-probability; NaN where not finished.
        upper: float64[C], upper bound of `logp`, equal to it where it is known.
        terminator: float64[C], log-probability of the terminator; NaN where not
            finished.
        local: float64[C], log-probability under masked step-by-step choice; NaN where
            not evaluated.
        scores: float64[C], score by the rule; NaN where not finished.
        score_upper: float64[C], upper bound of `scores`, equal to it where it is known.
        greedy_path: The path that masked greedy decoding picks; NO_PATH if rows that
            were not read in full leave it open.
        coverage: Probability of the finished paths together.
        log_heal: Log-probability of the healed bytes.
        heal_gap: Bound on the error of `log_heal`, in nats; 0 if it is exact.
        path_logp: float64[P], the joint of each whole path; NaN where not finished.
        rounding: float64[C], nats by which rounding may move each score.
        bounds: Bounds on the scores for comparisons; None if all rows that the scores
            depend on were read in full, and `heal_gap` moves all scores alike.
    """

    logp: FloatArray
    upper: FloatArray
    terminator: FloatArray
    local: FloatArray
    scores: FloatArray
    score_upper: FloatArray
    greedy_path: int
    coverage: float
    log_heal: float
    heal_gap: float
    path_logp: FloatArray
    rounding: FloatArray
    bounds: ScoreBounds | None = None

    @property
    def gap_left(self) -> float:
        """Return by how much each log-probability may be lower than it is shown."""
        return 0.0 if self.bounds is not None and self.bounds.has_gap else self.heal_gap

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes about what keeps scores from being known."""
        heal = (HEAL_NOTE.format(self.gap_left),) if self.gap_left > NOTED_GAP else ()
        if self.bounds is None or self.bounds.rows_known:
            return heal
        return (BOUNDS_NOTE, *heal)


def joints(
    prepared: PreparedSelect, evaluation: scoring.TrieEvaluation, log_heal: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Return each choice's joint after the context of `evaluation`, float64[C].

    Its upper bound comes second. `log_heal`, the log-probability of the healed bytes,
    is subtracted.
    """
    paths = scoring.path_scores(prepared.trie, evaluation, prepared.terminator, log_heal)
    return paths.first_scored(prepared.trie, evaluation, prepared.encoded.first_scored)


def conditional_joints(prepared: PreparedSelect, evaluation: scoring.TrieEvaluation) -> tuple[FloatArray, FloatArray]:
    """Return each choice's joint after its prompt, and its upper bound, float64[C].

    It is conditional on the text beginning with the healed bytes, as in `ChoiceScore`.
    What is not known of their log-probability is added to all joints alike, so it is
    left out.
    """
    return joints(prepared, evaluation, prepared.healing.log_heal(evaluation.edge_logp, evaluation.observed)[0])


def grouped(logp: FloatArray, groups: IntArray | None) -> FloatArray:
    """Return for each choice the log-probability of its group, float64[C].

    `groups` are numbers that rise (`PreparedSelect.groups`), or None.
    """
    if groups is None:
        return logp
    starts = starts_of(groups)
    return np.repeat(np.logaddexp.reduceat(logp, starts), np.diff(starts, append=len(groups)))


def mean_baseline(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> MeanBaseline:
    """Return the mean of joints after several prompts, given with upper bounds."""
    low = scoring.mean_joint([one for one, _ in pairs])
    if all(np.array_equal(one, upper) for one, upper in pairs):
        return MeanBaseline(low, low)
    return MeanBaseline(low, scoring.mean_joint([upper for _, upper in pairs]))


def score(prepared: PreparedSelect, evaluation: scoring.TrieEvaluation, baseline: MeanBaseline | None) -> ChoiceScores:
    """Return the log-probabilities and scores of all choices.

    Raises `OptionError` for a callable rule if rows were not read in full.
    """
    log_heal, gap = prepared.healing.log_heal(evaluation.edge_logp, evaluation.observed)
    paths = scoring.path_scores(prepared.trie, evaluation, prepared.terminator, log_heal)
    logp, upper = paths.first_scored(prepared.trie, evaluation, prepared.encoded.first_scored)
    path_of = prepared.trie.path_of
    scored = ChoiceScores(
        logp=logp,
        upper=upper,
        terminator=paths.logp_terminator[path_of],
        local=paths.logp_local[path_of],
        scores=logp,
        score_upper=upper,
        greedy_path=int(paths.greedy_path),
        coverage=scoring.coverage_of(paths.logp),
        log_heal=log_heal,
        heal_gap=gap,
        path_logp=paths.logp,
        rounding=_rounding(prepared, logp, None if baseline is None else baseline.low),
    )
    known_gap = known_heal_gap(prepared, evaluation) if evaluation.is_bounded else gap
    if known_gap is None or (baseline is not None and not baseline.is_known):
        joint = bounded_joints(prepared, evaluation, baseline)
        return replace(scored, **{one.name: getattr(joint, one.name) for one in fields(joint)})
    scored = replace(scored, heal_gap=known_gap)
    return rescore(prepared, evaluation, scored, None if baseline is None else baseline.low)


def _rounding(prepared: PreparedSelect, logp: FloatArray, baseline: FloatArray | None) -> FloatArray:
    """Return by how many nats rounding may move each score; 0 for a callable rule."""
    if prepared.custom is not None:
        return np.zeros(len(logp))
    return scoring.rounding_of(prepared.rule, logp, prepared.lengths, baseline=baseline, log_prior=prepared.log_prior)


def rescore(
    prepared: PreparedSelect, evaluation: scoring.TrieEvaluation, scored: ChoiceScores, baseline: FloatArray | None
) -> ChoiceScores:
    """Return `scored` with scores computed anew from its `logp` and `upper`."""

    def by_rule(logp: FloatArray) -> FloatArray:
        return scoring.score_choices(
            prepared.rule, logp, prepared.lengths, baseline=baseline, log_prior=prepared.log_prior
        )

    if prepared.custom is None:
        # Every rule increases with logp, so a bound on one gives a bound on the other.
        scores, upper = by_rule(scored.logp), by_rule(scored.upper)
        bounds = heal_bounds(prepared, scores, upper, scored.heal_gap, scored.coverage)
        return replace(scored, scores=scores, score_upper=upper, bounds=bounds)
    blank = np.full(len(prepared.texts), np.nan)
    table = _table(prepared, evaluation, replace(scored, scores=scored.logp), (blank, blank, blank))
    scores = scoring.score_by(prepared.custom, table, prepared.log_prior)
    return replace(scored, scores=scores, score_upper=scores)


def _table(
    prepared: PreparedSelect,
    evaluation: scoring.TrieEvaluation,
    scored: ChoiceScores,
    probability: tuple[FloatArray, FloatArray, FloatArray],
) -> ChoiceTable:
    return ChoiceTable(
        texts=prepared.texts,
        trie=prepared.trie,
        edge_logp=evaluation.edge_logp,
        pieces=prepared.vocabulary.pieces,
        logp=scored.logp,
        logp_upper=scored.upper,
        logp_terminator=scored.terminator,
        score=scored.scores,
        probability=probability[0],
        probability_low=probability[1],
        probability_high=probability[2],
        logp_local=scored.local,
        boundary_shift=prepared.encoded.boundary_shift,
        heal_gap=scored.gap_left,
        has_unread=scored.bounds is not None and not scored.bounds.rows_known,
    )


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The certificate and the cost of an evaluation.

    Attributes:
        certificate: What the evaluation proves.
        cost: The model work that it took.
        log_open: Log of a bound on the summed exp(score) of all paths without a score.
    """

    certificate: Certificate
    cost: Cost
    log_open: float = -np.inf


def selection(
    prepared: PreparedSelect,
    evaluation: scoring.TrieEvaluation,
    scored: ChoiceScores,
    report: SearchReport,
    signature: Signature,
    *,
    decision: scoring.Posterior | None = None,
) -> Selection:
    """Return the `Selection` of a request that was scored.

    `decision` is what the scores decide, if that is known.
    """
    path_of, bounds = prepared.trie.path_of, scored.bounds
    if bounds is not None and bounds.rows_known:
        bounds = None
    if decision is None:
        decision = scoring.posterior(
            scored.scores, path_of, upper=scored.score_upper, log_open=report.log_open, rounding=scored.rounding
        )
    table = _table(
        prepared,
        evaluation,
        scored,
        (decision.probability, decision.probability_low, decision.probability_high),
    )
    on_greedy = int((path_of == scored.greedy_path).argmax())
    has_greedy = bool(path_of[on_greedy] == scored.greedy_path)
    if bounds is None and not has_greedy:
        raise InternalError("the path of masked greedy decoding was not evaluated")
    coverage, coverage_high = given_heal_gap(scored.coverage, scored.gap_left)
    if bounds is not None:
        coverage_high = bounds.coverage_high
    return Selection(
        index=decision.winner,
        margin=decision.margin,
        is_tie=decision.is_tie,
        coverage=coverage,
        coverage_high=None if coverage_high is None else coverage_high + report.certificate.open_mass,
        top_tokens=TokenScore.along(prepared.vocabulary, evaluation.top_ids, evaluation.top_logp),
        greedy_index=on_greedy if has_greedy else None,
        choices=table,
        rule=rule_name(prepared),
        terminator=prepared.terminator,
        healed=prepared.encoded.healed,
        log_heal=scored.log_heal,
        heal_gap=scored.heal_gap,
        certificate=report.certificate,
        cost=report.cost,
        signature=signature,
        notes=(*prepared.notes, *scored.notes),
        values=prepared.values,
        skips_template=prepared.skips_template,
    )


def given_heal_gap(coverage: float, heal_gap: float) -> tuple[float, float | None]:
    """Return bounds on a coverage by the lower bound on the healed bytes' probability.

    `heal_gap` is the distance to its upper bound, in nats. The upper bound on the
    coverage is None if that is 0.
    """
    return (coverage * float(np.exp(-heal_gap)), coverage) if heal_gap else (coverage, None)


def rule_name(prepared: PreparedSelect) -> str:
    """Return the name of the rule; for a callable, its qualified name."""
    if prepared.custom is None:
        return prepared.rule.name
    return str(getattr(prepared.custom, "__qualname__", type(prepared.custom).__qualname__))


def signature(prepared: PreparedSelect, session: Session) -> Signature:
    """Return the signature of the scores of a request."""
    return Signature.of(
        session.model.identity,
        session.check,
        rule=rule_name(prepared),
        premise="" if not prepared.premises else _digest(prepared.premises),
        terminator=prepared.terminator,
        following_bytes=prepared.encoded.following_bytes,
        boundary=prepared.encoded.boundary,
        time=prepared.time,
    )


def _digest(contexts: Sequence[IntArray]) -> str:
    return "blake2b:" + blake2b(b"|".join(c.tobytes() for c in contexts), digest_size=8).hexdigest()
