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
from selectrie.engine.requests.unproved import bounds_touch, too_close


def settled(
    session: Session, evaluated: EvaluatedSelect, scored: ChoiceScores
) -> tuple[ChoiceScores, SearchReport, scoring.Posterior | None]:
    """Return final scores, what is proved about them, and the decision if it is made.

    Args:
        session: The session of the request.
        evaluated: The evaluated request.
        scored: The scores of its choices.
    """
    if scored.bounds is None and session.model.identity.precision != REMOTE:
        return *rescore_near_ties(session, evaluated, scored), None
    prepared, report = evaluated.prepared, evaluated.report
    tolerances = prepared.tolerances(session.tolerance or 0.0)
    decision = _decision(prepared, scored, report, tolerances)
    reason = _doubt(prepared, scored, tolerances, session.tolerance or 0.0)
    certificate = replace(report.certificate, rescored=not reason)
    if reason:
        certificate = replace(certificate, proved=False, reason=reason)
    return scored, replace(report, certificate=certificate), decision


def _decision(
    prepared: PreparedSelect, scored: ChoiceScores, report: SearchReport, tolerances: FloatArray
) -> scoring.Posterior:
    """Return what scores or their bounds decide."""
    path_of, bounds = prepared.trie.path_of, scored.bounds
    if bounds is None:
        decision = scoring.posterior(
            scored.scores, path_of, upper=scored.score_upper, log_open=report.log_open, rounding=scored.rounding
        )
        low, high = scored.scores, scored.score_upper
        is_tie = decision.is_tie or scoring.has_near_tie(low, high, path_of, tolerances, decision.winner)
        return replace(decision, is_tie=is_tie)
    log_open = report.log_open + bounds.open_shift
    left = scoring.best_of_paths(bounds.high, path_of)[np.isnan(scoring.best_of_paths(bounds.low, path_of))]
    own = numerics.logsumexp(left)
    # A shift moves all log-probabilities alike, but not what is divided by lengths.
    log_open = own if prepared.lengths.divides(prepared.rule.name) else min(log_open, own)
    return scoring.bounded_posterior(
        bounds.low,
        bounds.high,
        path_of,
        np.maximum(tolerances, scored.rounding),
        ranking=scored.scores,
        log_open=log_open,
    )


def _doubt(prepared: PreparedSelect, scored: ChoiceScores, tolerances: FloatArray, tolerance: float) -> str:
    """Return why the order of the first k is not certain; "" if it is."""
    low, high = scored.scores, scored.score_upper
    if scored.bounds is not None:
        low, high = scored.bounds.low, scored.bounds.high
    k = len(low) if prepared.search.stop == "all" else prepared.search.k
    path_of = prepared.trie.path_of
    if not scoring.is_certain(low, high, path_of, np.zeros(len(low)), k):
        return bounds_touch()
    if prepared.custom is not None and tolerance:
        return "a callable rule does not say by how much the tolerance of the model may move a score"
    return "" if scoring.is_certain(low, high, path_of, tolerances, k) else too_close(tolerance)
