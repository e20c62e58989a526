"""Decides requests that differ in their prompts alone with a few numpy calls for all.

The results are those of each request alone, to the last bit. Requests of one
`SelectPlan` share a trie, so their scores are rows of one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from selectrie.decoding import scoring
from selectrie.engine.requests import choice_scores
from selectrie.engine.requests.bounded_scores import moves_apart
from selectrie.engine.requests.choice_scores import ChoiceScores, SearchReport
from selectrie.engine.requests.near_ties import EvaluatedSelect
from selectrie.engine.requests.selection import PreparedSelect
from selectrie.engine.requests.session import Session
from selectrie.results import Selection, Signature

_MIN_TOGETHER = 2
"""Number of requests that are alike from which scoring them together is faster."""
_MAX_GROUPS = 64
"""Number of groups with which a request is compared."""
_APART = ("pmi", "calibrated", "batch")
"""Rules whose scores depend on more than the prompt's own evaluation."""


class Signatures:
    """The signatures of requests, each of equal ones made once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._made: dict[tuple[object, ...], Signature] = {}

    def of(self, prepared: PreparedSelect) -> Signature:
        """Return the signature of a request."""
        encoded = prepared.encoded
        if prepared.custom is not None:
            return choice_scores.signature(prepared, self._session)
        premises = tuple(one.tobytes() for one in prepared.premises)
        key = (prepared.rule.name, premises, prepared.terminator, encoded.following_bytes, encoded.boundary)
        if key not in self._made:
            self._made[key] = choice_scores.signature(prepared, self._session)
        return self._made[key]


def decided_together(
    session: Session, evaluated: Sequence[EvaluatedSelect], signatures: Signatures
) -> dict[int, Selection]:
    """Return the selections of requests that differ in their prompts alone, by index.

    Their scores are computed together. Those with a near tie are left out.
    """
    groups: list[list[int]] = []
    for index, one in enumerate(evaluated):
        if one.baseline is not None or one.prepared.method != "exhaustive":
            continue
        group = next((own for own in groups[-_MAX_GROUPS:] if _alike(evaluated[own[0]], one)), None)
        if group is None:
            groups.append(group := [])
        group.append(index)
    made: dict[int, Selection] = {}
    for group in groups:
        if len(group) >= _MIN_TOGETHER:
            made |= _decided_alike(session, {index: evaluated[index] for index in group}, signatures)
    return made


def _alike(one: EvaluatedSelect, other: EvaluatedSelect) -> bool:
    return is_alike(one.prepared, other.prepared)


def _decided_alike(session: Session, group: dict[int, EvaluatedSelect], signatures: Signatures) -> dict[int, Selection]:
    requests = [one.prepared for one in group.values()]
    together = score_together(requests, [one.evaluation for one in group.values()])
    if together is None:
        return {}
    scored, decisions, evaluation = together
    first = requests[0]
    clear, margins = [True] * len(group), np.zeros(len(group))
    if session.tolerance is not None:
        scores = np.stack([one.scores for one in scored])
        scores, tolerances, path_of = first.compared(scores, first.tolerances(session.tolerance, evaluation))
        asks_one = first.search.k == 1 and first.search.stop != "all"
        is_clear = scoring.are_clear(scores, tolerances, path_of)
        clear = is_clear.tolist() if asks_one else [False] * len(group)
        margins = scoring.near_margins(scores, tolerances, path_of)
    made = {}
    for row, (index, one) in enumerate(group.items()):
        if clear[row]:
            report = one.report
            if session.tolerance is not None:
                certificate = replace(report.certificate, rescored=True, near_margin=float(margins[row]))
                report = SearchReport(certificate, report.cost, report.log_open)
            made[index] = choice_scores.selection(
                one.prepared, one.evaluation, scored[row], report, signatures.of(one.prepared), decision=decisions[row]
            )
    return made


def is_alike(one: PreparedSelect, other: PreparedSelect) -> bool:
    """Return whether two requests differ in their prompts alone (`SelectPlan`)."""
    return (
        one.trie is other.trie
        and one.healing is other.healing
        and one.encoded.first_scored is other.encoded.first_scored
        and one.log_prior is other.log_prior
        and one.search is other.search
        and (one.rule, one.terminator) == (other.rule, other.terminator)
    )


def score_together(
    requests: Sequence[PreparedSelect], evaluations: Sequence[scoring.TrieEvaluation]
) -> tuple[list[ChoiceScores], scoring.Posteriors, scoring.TrieEvaluation] | None:
    """Return what `score` and `scoring.posterior` return for requests that are alike.

    The third value is all evaluations as one.

    None if their scores cannot be computed together: for a callable rule, a baseline,
    rows that were not all evaluated, or scores that have bounds.
    """
    first = requests[0]
    if first.custom is not None or first.rule.name in _APART or first.encoded.first_scored.any():
        return None
    evaluation = scoring.stacked(evaluations)
    if evaluation is None:
        return None
    heals = [
        one.healing.log_heal(each.edge_logp, each.observed) for one, each in zip(requests, evaluations, strict=True)
    ]
    if any(moves_apart(first, gap) for _, gap in heals):
        return None
    paths = scoring.path_scores(first.trie, evaluation, first.terminator, np.array([heal for heal, _ in heals]))
    if np.isnan(paths.logp).any():
        return None
    path_of = first.trie.path_of
    logp, upper, terminator, local = (
        np.ascontiguousarray(one[:, path_of])
        for one in (paths.logp, paths.logp_upper, paths.logp_terminator, paths.logp_local)
    )
    scores, score_upper = (
        scoring.score_choices(first.rule, one, first.lengths, log_prior=first.log_prior) for one in (logp, upper)
    )
    rounding = scoring.rounding_of(first.rule, logp, first.lengths, log_prior=first.log_prior)
    coverage, greedy = scoring.coverages(paths.logp).tolist(), paths.greedy_path.tolist()
    scored = [
        ChoiceScores(
            logp=logp[row],
            upper=upper[row],
            terminator=terminator[row],
            local=local[row],
            scores=scores[row],
            score_upper=score_upper[row],
            greedy_path=greedy[row],
            coverage=coverage[row],
            path_logp=paths.logp[row],
            rounding=rounding[row],
            log_heal=heal,
            heal_gap=gap,
        )
        for row, (heal, gap) in enumerate(heals)
    ]
    return scored, scoring.posteriors(scores, path_of, rounding), evaluation
