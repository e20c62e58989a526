"""Computes a `Selection` from the rows that were evaluated for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from operator import itemgetter
from typing import Any

import numpy as np

from selectrie.core import numerics
from selectrie.core.numerics import ROUNDED_SUM, Interval, Numbers
from selectrie.core.types import Cost, FloatArray, IntArray
from selectrie.decoding.scoring.evaluation import TrieEvaluation
from selectrie.decoding.scoring.paths import coverages, path_scores
from selectrie.decoding.scoring.rules import Posterior, coverage_of, mean_joint, rounding_of, score_choices, score_with
from selectrie.decoding.trie.best_first import longest_chain
from selectrie.engine.requests.selection import PreparedSelect, group_starts
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
"""Nats of uncertainty of the healed bytes above which a note is added."""

_ROUNDED = 1e-11
"""Relative widening of bounds on a coverage, for the rounding of sums."""


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceScores:
    """Log-probabilities and scores of C choices.

    A choice is finished if its joint is known, or if only rows that the model gave in
    part keep the joint from being known. All arrays have a leading axis B if B
    evaluations were scored together.

    Attributes:
        logp: float64[C], joint log-probability; NaN where not finished.
        terminator: float64[C], log-probability of the terminator, or its lower bound;
            NaN where not finished.
        local: float64[C], log-probability under masked step-by-step choice; NaN where
            not evaluated.
        scores: float64[C], score by the rule; NaN where not finished. `is_known` if all
            rows that the scores depend on were given in full.
        compared: float64[C], `scores` minus terms that all choices share. `is_known` if
            the unknown part of `heal` cancels in their differences too.
        greedy_path: Index of the path that masked greedy decoding picks; NO_PATH if
            rows that were given in part leave it open.
        coverage: Total probability of the finished paths.
        heal: Log-probability of the healed bytes. Its lower bound was subtracted from
            each joint.
        lower_by: Nats by which each true log-probability may be below `logp`, because
            `heal` may be above its lower bound.
        path_logp: float64[P], the joint of each whole path; NaN where not finished.
        rounding: float64[C], nats by which rounding may move each score.
    """

    logp: Interval[FloatArray]
    terminator: FloatArray
    local: FloatArray
    scores: Interval[FloatArray]
    compared: Interval[FloatArray]
    greedy_path: IntArray
    coverage: Interval[float]
    heal: Interval[float]
    lower_by: float
    path_logp: FloatArray
    rounding: FloatArray

    def __getitem__(self, row: int) -> ChoiceScores:
        """Return the scores of one of the evaluations that were scored together."""
        values = [getattr(self, one.name) for one in fields(self)]
        rows: list[Any] = [one.map(itemgetter(row)) if isinstance(one, Interval) else one[row] for one in values]
        return ChoiceScores(*rows)

    @property
    def is_whole(self) -> bool:
        """Return whether `coverage` is known."""
        return self.scores.is_known and not self.lower_by

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes that say why scores are not known exactly."""
        bounds = () if self.scores.is_known else (BOUNDS_NOTE,)
        return (*bounds, HEAL_NOTE.format(self.lower_by)) if self.lower_by > NOTED_GAP else bounds


def joints(prepared: PreparedSelect, evaluation: TrieEvaluation, log_heal: float = 0.0) -> Interval[FloatArray]:
    """Return each choice's joint after the context of `evaluation`, float64[C].

    `log_heal`, the log-probability of the healed bytes, is subtracted.
    """
    paths = path_scores(prepared.trie, evaluation, prepared.terminator, log_heal)
    return paths.first_scored(prepared.trie, evaluation, prepared.encoded.first_scored)


def conditional_joints(prepared: PreparedSelect, evaluation: TrieEvaluation) -> Interval[FloatArray]:
    """Return each choice's joint after its prompt, float64[C].

    The joint is conditional on the text beginning with the healed bytes, as in
    `ChoiceScore`. The lower bound of their log-probability is subtracted: an error in
    it shifts all joints equally.
    """
    return joints(prepared, evaluation, prepared.healing.log_heal(evaluation.edge_logp, evaluation.observed).low)


def sum_groups(logp: FloatArray, groups: IntArray | None) -> FloatArray:
    """Return for each choice the log-probability of its group, float64[C].

    `groups` holds ascending group numbers (`PreparedSelect.groups`); None for no
    groups.
    """
    if groups is None:
        return logp
    starts = group_starts(groups)
    return np.repeat(np.logaddexp.reduceat(logp, starts), np.diff(starts, append=len(groups)))


def mean_baseline(joints: Sequence[Interval[FloatArray]]) -> Interval[FloatArray]:
    """Return the mean of the joints after several prompts, float64[C]."""
    low = mean_joint([one.low for one in joints])
    if all(np.array_equal(one.low, one.high) for one in joints):
        return Interval.point(low)
    return Interval(low, mean_joint([one.high for one in joints]))


def score(prepared: PreparedSelect, evaluation: TrieEvaluation, baseline: Interval[FloatArray] | None) -> ChoiceScores:
    """Return the log-probabilities and scores of all choices.

    Raises `OptionError` for a callable rule if the model gave some rows in part.
    """
    healing, edge_logp, observed = prepared.healing, evaluation.edge_logp, evaluation.observed
    return _score(
        prepared,
        evaluation,
        baseline,
        heal=healing.log_heal(edge_logp, observed),
        is_low_exact=healing.is_low_exact(edge_logp, observed),
    )


def score_together(
    prepared: PreparedSelect, evaluation: TrieEvaluation, heals: Sequence[Interval[float]]
) -> ChoiceScores:
    """Return the scores of B requests at once, from their stacked evaluations.

    Args:
        prepared: One of the requests, which differ in their prompts alone.
        evaluation: The result of `stack_evaluations`, all rows given in full.
        heals: The log-probability of the healed bytes of each prompt.
    """
    heal = Interval(np.array([one.low for one in heals]), np.array([one.high for one in heals]))
    return _score(prepared, evaluation, None, heal=heal, is_low_exact=True)


def _score(
    prepared: PreparedSelect,
    evaluation: TrieEvaluation,
    baseline: Interval[FloatArray] | None,
    *,
    heal: Interval[Any],  # of numbers, or of arrays for several evaluations
    is_low_exact: bool,
) -> ChoiceScores:
    """Return the scores, given the log-probability of the healed bytes.

    Args:
        heal: The log-probability of the healed bytes, float64[...].
        is_low_exact: Whether the lower bound of `heal` is exact (see `HealPlan`). It is
            then subtracted as a constant. Otherwise the paths give a better lower
            bound, and each joint becomes an interval.
    """
    trie, path_of = prepared.trie, prepared.trie.path_of
    paths = path_scores(trie, evaluation, prepared.terminator)
    joint = paths.first_scored(trie, evaluation, prepared.encoded.first_scored)
    is_known = is_low_exact and joint.is_known and (baseline is None or baseline.is_known)
    if prepared.custom is not None and not is_known:
        expected = "the name of a rule: this model gives bounds on some probabilities, and a callable has none"
        raise OptionError("rule", prepared.custom, expected)
    if not is_low_exact:
        heal = _bound_by_paths(prepared, heal, paths.logp.low)
    shown = np.where(np.isneginf(heal.low), 0.0, heal.low)[..., None]
    joint, path_logp = (one.map(lambda logp: logp - shown) for one in (joint, paths.logp))
    logp, given, whole = joint, None, path_logp
    if not is_low_exact:
        given = Interval(joint.low, joint.high).widened()  # what is left out was added, and rounded, before
        logp, whole = (_bound_conditional(one, heal) for one in (joint, path_logp))
        logp = Interval(logp.low, np.minimum(logp.high, ROUNDED_SUM))
    lower_by = heal.width if is_low_exact else 0.0
    scored = ChoiceScores(
        logp=logp,
        terminator=np.take(paths.terminator.low, path_of, axis=-1),
        local=np.take(paths.logp_local, path_of, axis=-1),
        scores=logp,
        compared=logp,
        greedy_path=paths.greedy_path,
        coverage=bound_coverage(_compute_coverage(prepared, whole, is_known=is_known), lower_by),
        heal=heal,
        lower_by=lower_by,
        path_logp=path_logp.low,
        rounding=_rounding_errors(prepared, joint.low, baseline),
    )
    return rescore(prepared, evaluation, scored, baseline, given)


def _bound_by_paths(prepared: PreparedSelect, heal: Interval[float], path_logp: FloatArray) -> Interval[float]:
    """Return bounds on the log-probability of healed bytes, tightened by the paths.

    All paths spell these bytes, so together they are at most as probable.
    """
    at_least = numerics.logsumexp(path_logp[~np.isnan(path_logp)]) - float(np.log(longest_chain(prepared.trie)))
    return Interval(max(heal.low, at_least), heal.high).widened()


def _bound_conditional(joint: Interval[FloatArray], heal: Interval[float]) -> Interval[FloatArray]:
    """Return the joints as intervals that cover all values of `heal`.

    `joint` has the lower bound of `heal` subtracted already.
    """
    high = joint.high if heal.low > -np.inf else np.where(np.isneginf(joint.high), -np.inf, 0.0)
    return Interval(joint.low - heal.width, high)


def _compute_coverage(prepared: PreparedSelect, path_logp: Interval[FloatArray], *, is_known: bool) -> Interval[Any]:
    """Return the total probability of the finished paths.

    Paths with a terminator exclude one another. Without a terminator, a path and a
    prefix of it count the same mass twice.
    """
    if is_known:
        return Interval.point((coverages if path_logp.low.ndim > 1 else coverage_of)(path_logp.low))
    done = ~np.isnan(path_logp.low)
    at_most = longest_chain(prepared.trie) if prepared.terminator in ("none", "text") else 1
    low = coverage_of(path_logp.low[done]) * (1 - _ROUNDED)
    high = min(coverage_of(path_logp.high[done]), float(at_most)) * (1 + _ROUNDED)
    return Interval(low, max(low, high))


def bound_coverage(coverage: Interval[Numbers], width: Numbers) -> Interval[Numbers]:
    """Return bounds on a coverage that was computed with the lower bound of `heal`.

    `width` is the distance of the bounds on the healed bytes' log-probability, in nats.
    """
    return Interval(coverage.low * np.exp(-width), coverage.high)


def _widen_for_lengths(prepared: PreparedSelect, scores: Interval[FloatArray], width: float) -> Interval[FloatArray]:
    """Widen scores by what an inexact probability of the healed bytes may change.

    Its log-probability is subtracted from all joints. That cancels in comparisons
    unless a rule divides the joints by different lengths. `width` is the width of its
    interval in nats.
    """
    share = 1 / prepared.lengths.for_rule(prepared.rule.name)
    share = share - (share.min() + share.max()) / 2  # a change of all scores alike is left out
    gap = np.asarray(width)[..., None]
    if not gap.any() or not share.any():
        return scores
    with np.errstate(invalid="ignore"):  # 0 · inf, -inf + inf
        moves = np.where(share == 0, 0.0, -gap * share)
        high = np.where(np.isneginf(scores.high), -np.inf, scores.high + np.maximum(moves, 0.0))
    return Interval(scores.low + np.minimum(moves, 0.0), high).widened()


def _score_by_rule(
    prepared: PreparedSelect, logp: Interval[FloatArray], baseline: Interval[FloatArray] | None
) -> Interval[FloatArray]:
    """Return the scores of joints, float64[C].

    Every named rule increases with the joint and decreases with the baseline, so bounds
    are computed from opposite ends.
    """

    def scores(logp: FloatArray, subtracted: FloatArray | None) -> FloatArray:
        return score_choices(prepared.rule, logp, prepared.lengths, baseline=subtracted, log_prior=prepared.log_prior)

    if baseline is None or baseline.is_known:
        return logp.map(lambda one: scores(one, None if baseline is None else baseline.low))
    unbounded = np.isneginf(baseline.low) & (baseline.high > -np.inf) & (logp.high > -np.inf)
    high = scores(logp.high, np.where(unbounded, 0.0, baseline.low))
    high = np.where(unbounded & (high > -np.inf), np.inf, high)
    return Interval(scores(logp.low, baseline.high), high)


def _rounding_errors(prepared: PreparedSelect, logp: FloatArray, baseline: Interval[FloatArray] | None) -> FloatArray:
    """Return by how many nats rounding may move each score; 0 for a callable rule."""
    if prepared.custom is not None:
        return np.zeros(len(logp))
    subtracted = None if baseline is None else baseline.low
    return rounding_of(prepared.rule, logp, prepared.lengths, baseline=subtracted, log_prior=prepared.log_prior)


def rescore(
    prepared: PreparedSelect,
    evaluation: TrieEvaluation,
    scored: ChoiceScores,
    baseline: Interval[FloatArray] | None,
    given: Interval[FloatArray] | None = None,
) -> ChoiceScores:
    """Return `scored` with its scores recomputed from `logp`.

    `given` holds the joints without terms that all choices share; None for `logp`.
    """
    if prepared.custom is None:
        scores = _score_by_rule(prepared, scored.logp, baseline)
        compared = scores if given is None else _score_by_rule(prepared, given, baseline)
        compared = _widen_for_lengths(prepared, compared, scored.heal.width)
        return replace(scored, scores=scores, compared=compared)
    table = _choice_table(prepared, evaluation, scored, None)
    scores = Interval.point(score_with(prepared.custom, table, prepared.log_prior))
    return replace(scored, scores=scores, compared=scores)


def _choice_table(
    prepared: PreparedSelect,
    evaluation: TrieEvaluation,
    scored: ChoiceScores,
    decision: Posterior | None,
) -> ChoiceTable:
    """Return the table of choices of a `Selection`.

    Without a decision, its probabilities are NaN.
    """
    blank = np.full(len(prepared.texts), np.nan)
    return ChoiceTable(
        texts=prepared.texts,
        trie=prepared.trie,
        edge_logp=evaluation.edge_logp,
        pieces=prepared.vocabulary.pieces,
        logp=scored.logp.low,
        logp_upper=scored.logp.high,
        logp_terminator=scored.terminator,
        score=scored.scores.low,
        probability=blank if decision is None else decision.probability,
        probability_low=blank if decision is None else decision.bounds.low,
        probability_high=blank if decision is None else decision.bounds.high,
        logp_local=scored.local,
        boundary_shift=prepared.encoded.boundary_shift,
        heal_gap=float(scored.lower_by),
        has_unread=not scored.scores.is_known,
    )


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The certificate and the cost of an evaluation.

    Attributes:
        certificate: The proof of the result, as far as there is one.
        cost: The model work of the evaluation.
        log_open: Log of an upper bound on the summed exp(score) of all paths without a
            score, with the search's own value of `HealPlan.log_heal` subtracted.
    """

    certificate: Certificate
    cost: Cost
    log_open: float = -np.inf


def selection(
    prepared: PreparedSelect,
    evaluation: TrieEvaluation,
    scored: ChoiceScores,
    report: SearchReport,
    signature: Signature,
    *,
    decision: Posterior,
) -> Selection:
    """Return the `Selection` of a request from its scores.

    `decision` is the result of `posterior` for these scores.
    """
    path_of = prepared.trie.path_of
    on_greedy = int((path_of == scored.greedy_path).argmax())
    has_greedy = bool(path_of[on_greedy] == scored.greedy_path)
    if scored.scores.is_known and not has_greedy:
        raise InternalError("the path of masked greedy decoding was not evaluated")
    return Selection(
        index=decision.winner,
        margin=decision.margin,
        is_tie=decision.is_tie,
        coverage=float(scored.coverage.low),
        coverage_high=None if scored.is_whole else float(scored.coverage.high) + report.certificate.open_mass,
        top_tokens=TokenScore.along(prepared.vocabulary, evaluation.top_ids, evaluation.top_logp),
        greedy_index=on_greedy if has_greedy else None,
        choices=_choice_table(prepared, evaluation, scored, decision),
        rule=rule_name(prepared),
        terminator=prepared.terminator,
        healed=prepared.encoded.healed,
        log_heal=float(scored.heal.low),
        heal_gap=float(scored.heal.width),
        certificate=replace(report.certificate, bound_gap=min(report.certificate.bound_gap, decision.bound_gap)),
        cost=report.cost,
        signature=signature,
        notes=(*prepared.notes, *scored.notes),
        values=prepared.values,
        skips_template=prepared.skips_template,
    )


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
    """Return a short hash of the contexts of a baseline."""
    return "blake2b:" + blake2b(b"|".join(c.tobytes() for c in contexts), digest_size=8).hexdigest()
