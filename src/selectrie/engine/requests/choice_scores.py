"""Turns the rows that were read for a selection into a `Selection`.

No model is called here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b

import numpy as np

from selectrie.core.types import Cost, FloatArray, IntArray
from selectrie.decoding import scoring
from selectrie.engine.requests.bounded_scores import (
    BOUNDS_NOTE,
    HEAL_NOTE,
    NOTED_GAP,
    MeanBaseline,
    ScoreBounds,
    bounded_joints,
    heal_bounds,
    known_heal_gap,
)
from selectrie.engine.requests.selection import PreparedSelect, starts_of
from selectrie.engine.requests.session import Session
from selectrie.errors import InternalError
from selectrie.results import Certificate, ChoiceTable, Selection, Signature, TokenScore


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
