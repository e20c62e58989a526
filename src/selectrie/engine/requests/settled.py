"""Decides among scores: near ties are scored again, or flagged where they cannot be.

A model that others serve answers within its tolerance, and may not say everything. Its
choices are not scored again: their order is certain only where bounds and tolerances
leave no other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.path_model import REMOTE
from selectrie.core.types import FloatArray
from selectrie.decoding import scoring
from selectrie.engine.requests.choice_scores import ChoiceScores, SearchReport
from selectrie.engine.requests.near_ties import EvaluatedSelect, rescore_near_ties
from selectrie.engine.requests.selection import PreparedSelect
from selectrie.engine.requests.session import Session
from selectrie.engine.requests.unproved import bounds_touch, heal_in_callable, heal_unknown, too_close


def settled(
    session: Session, evaluated: EvaluatedSelect, scored: ChoiceScores
) -> tuple[ChoiceScores, SearchReport, scoring.Posterior | None]:
    """Return final scores, what is proved about them, and the decision if it is made.

    Args:
        session: The session of the request.
        evaluated: The evaluated request.
        scored: The scores of its choices.
    """
    prepared = evaluated.prepared
    rows_known = scored.bounds is None or scored.bounds.rows_known
    if session.model.identity.precision != REMOTE and rows_known:
        return _rescored(session, evaluated, scored)
    report, tolerances = evaluated.report, _tolerances(session, evaluated)
    decision = _decision(prepared, scored, report, tolerances)
    reason = _doubt(prepared, scored, tolerances, session.tolerance or 0.0)
    certificate = replace(report.certificate, rescored=not reason)
    if reason:
        certificate = replace(certificate, proved=False, reason=reason)
    return scored, replace(report, certificate=certificate), decision


def _rescored(
    session: Session, evaluated: EvaluatedSelect, scored: ChoiceScores
) -> tuple[ChoiceScores, SearchReport, scoring.Posterior | None]:
    """Return what `settled` does for a model that runs here.

    Near ties are scored again. Then only the probability of the healed bytes may be
    known within bounds, which matters to means and callable rules.
    """
    prepared, before = evaluated.prepared, scored
    scored, report = rescore_near_ties(session, evaluated, scored)
    certificate = report.certificate
    if scored.bounds is None:
        if prepared.custom is not None and scored.heal_gap > 0 and certificate.proved:
            reason = heal_in_callable(scored.heal_gap)
            report = replace(report, certificate=replace(certificate, proved=False, reason=reason))
        return scored, report, None
    tolerances, path_of = _tolerances(session, evaluated), prepared.trie.path_of
    near = scoring.finalists(before.scores, tolerances, path_of, prepared.n_first)
    tolerances = np.where(np.isin(path_of, path_of[near]), 0.0, tolerances)  # `rescored` speaks of these
    if certificate.proved and not scoring.is_certain(
        scored.bounds.low, scored.bounds.high, path_of, tolerances, prepared.n_first
    ):
        certificate = replace(certificate, proved=False, reason=heal_unknown(scored.heal_gap))
    return scored, replace(report, certificate=certificate), _decision(prepared, scored, report, tolerances)


def _tolerances(session: Session, evaluated: EvaluatedSelect) -> FloatArray:
    """Return the tolerance of each score, float64[C]."""
    served = session.is_served
    evaluation = None if served else evaluated.evaluation
    return evaluated.prepared.tolerances(session.tolerance or 0.0, evaluation, adds_up=served)


def _decision(
    prepared: PreparedSelect, scored: ChoiceScores, report: SearchReport, tolerances: FloatArray
) -> scoring.Posterior:
    """Return what scores or their bounds decide."""
    path_of, bounds = prepared.trie.path_of, scored.bounds
    if bounds is None:
        decision = _by_scores(prepared, scored, report)
        low, high = scored.scores, scored.score_upper
        is_tie = decision.is_tie or scoring.has_near_tie(low, high, path_of, tolerances, decision.winner)
        return replace(decision, is_tie=is_tie)
    log_open = report.log_open + bounds.open_shift
    left = scoring.best_of_paths(bounds.high, path_of)[np.isnan(scoring.best_of_paths(bounds.low, path_of))]
    own = numerics.logsumexp(left)
    # A shift moves all log-probabilities alike, but not what is divided by lengths.
    log_open = own if prepared.lengths.divides(prepared.rule.name) else min(log_open, own)
    slack = np.maximum(tolerances, scored.rounding)
    bounded = scoring.bounded_posterior(
        bounds.low, bounds.high, path_of, slack, ranking=scored.scores, log_open=log_open
    )
    if not bounds.rows_known:
        return bounded
    shown = _by_scores(prepared, scored, report)
    return replace(
        bounded,
        probability=shown.probability,
        probability_low=np.minimum(shown.probability_low, bounded.probability_low),
        probability_high=np.maximum(shown.probability_high, bounded.probability_high),
    )


def _by_scores(prepared: PreparedSelect, scored: ChoiceScores, report: SearchReport) -> scoring.Posterior:
    """Return what the scores decide, without their bounds."""
    return scoring.posterior(
        scored.scores,
        prepared.trie.path_of,
        upper=scored.score_upper,
        log_open=report.log_open,
        rounding=scored.rounding,
    )


def _doubt(prepared: PreparedSelect, scored: ChoiceScores, tolerances: FloatArray, tolerance: float) -> str:
    """Return why the order of the first k is not certain; "" if it is."""
    low, high, bounds = scored.scores, scored.score_upper, scored.bounds
    if bounds is not None:
        low, high = bounds.low, bounds.high
    k, high = prepared.n_first, prepared.compared(high, tolerances)[0]
    low, tolerances, path_of = prepared.compared(low, tolerances)
    if not scoring.is_certain(low, high, path_of, np.zeros(len(low)), k):
        return bounds_touch() if bounds is None or not bounds.rows_known else heal_unknown(scored.heal_gap)
    if prepared.custom is not None and scored.heal_gap > 0:
        return heal_in_callable(scored.heal_gap)
    if prepared.custom is not None and tolerance:
        return "a callable rule does not say by how much the tolerance of the model may move a score"
    return "" if scoring.is_certain(low, high, path_of, tolerances, k) else too_close(tolerance)
