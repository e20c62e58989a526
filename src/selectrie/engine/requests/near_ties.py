"""Scores near ties again, each path by itself in a fixed ("canonical") layout.

Each path is scored in a small empty model, after the prompt alone and at the same
memory cells. The scores therefore depend on the prompt and the path alone. The order of
the first k choices does not depend on the other choices, their order or batches, or on
the cache.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from selectrie.core.numerics import Interval
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import ROOT, BoolArray, Cost, FloatArray, IntArray
from selectrie.decoding.scoring.evaluation import TrieEvaluation, row_needs, row_owner
from selectrie.decoding.scoring.paths import path_scores
from selectrie.decoding.scoring.rules import coverage_of
from selectrie.decoding.scoring.tolerance import near_choices, near_margins, rows_alone
from selectrie.decoding.trie.exhaustive import ScoreTask
from selectrie.engine.requests import choice_scores
from selectrie.engine.requests.canonical_memory import CanonicalMemory, Claim
from selectrie.engine.requests.choice_scores import ChoiceScores, SearchReport
from selectrie.engine.requests.selection import PreparedSelect
from selectrie.engine.requests.session import Session
from selectrie.errors import DecodeInterrupted, MissingRowError, ModelError

logger = logging.getLogger(__name__)

ALWAYS_RESCORED = 16
"""Maximum number of near ties that are scored again regardless of the cost."""

MAX_ROWS = 2048
"""Maximum rows below the prompt for scoring one choice again.

A choice that many other choices continue would need more. Its request keeps the scores
of the first evaluation.
"""
_ROOM = 256
"""Granularity, in nodes, of path memories for models with fixed batch sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class EvaluatedSelect:
    """A selection whose rows were evaluated.

    Attributes:
        prepared: The request.
        evaluation: The log-probabilities that were read from the rows of its trie.
        baseline: The baseline of each choice, or None if the rule has none.
        report: Certificate and cost of the evaluation.
    """

    prepared: PreparedSelect
    evaluation: TrieEvaluation
    baseline: Interval[FloatArray] | None
    report: SearchReport


def rescore_near_ties(
    session: Session, evaluated: EvaluatedSelect, scored: ChoiceScores
) -> tuple[ChoiceScores, SearchReport]:
    """Score the near ties among the first k again; return the new scores and report.

    Args:
        session: The session of the request. Without a tolerance, nothing is changed.
        evaluated: The evaluated request.
        scored: The scores of its choices.
    """
    prepared, report, tolerance = evaluated.prepared, evaluated.report, session.tolerance
    # A callable rule, and a baseline over a batch, depend on other contexts too.
    if tolerance is None or prepared.custom is not None or prepared.rule.name == "batch":
        return scored, report
    k = prepared.n_first
    contexts = (prepared.encoded.context, *prepared.premises)
    tolerances = prepared.tolerances(tolerance, evaluated.evaluation)
    scores, widths, path_of = prepared.items_to_compare(scored.scores, tolerances)
    margin = near_margins(scores.low[None], widths[None], path_of)[0]
    if not session.rescores:  # unread choices may be near ties too, of about the same tolerance
        scale = 2**0.5 * float(widths[np.nanargmax(scores.low)])
        return scored, replace(report, certificate=replace(report.certificate, near_margin=max(float(margin), scale)))
    certificate = replace(report.certificate, near_margin=float(margin))
    report = replace(report, certificate=certificate)
    finalists = near_choices(scores.low, widths, path_of, k)
    if prepared.groups is not None:
        finalists = np.flatnonzero(np.isin(prepared.groups, finalists)).astype(np.int32)
    # Both evaluations need every context once, and these rows below each context.
    n_rows = int(rows_alone(prepared.trie, prepared.terminator)[prepared.trie.path_of[finalists]].sum())
    is_cheap = len(finalists) <= ALWAYS_RESCORED or n_rows <= report.certificate.nodes_evaluated
    if not len(finalists) or not is_cheap:
        return scored, replace(report, certificate=replace(certificate, rescored=is_cheap))
    try:
        joints, spent = _score_in_turns(session, prepared, contexts, finalists)
    except (DecodeInterrupted, MissingRowError):
        raise
    except ModelError as error:  # e.g. no memory for a second context: the scores stay
        logger.debug("%d near ties are not scored again: %s", len(finalists), error)
        return scored, report
    values = [value for value, _ in joints if value is not None]
    report = replace(report, cost=sum((cost for _, cost in joints), report.cost + spent))
    if len(values) < len(contexts):
        return scored, report
    certificate = replace(certificate, rescored=True, n_rescored=len(finalists))
    return _merge_joints(evaluated, scored, finalists, values), replace(report, certificate=certificate)


def _score_in_turns(
    session: Session, prepared: PreparedSelect, contexts: Sequence[IntArray], finalists: IntArray
) -> tuple[list[tuple[FloatArray | None, Cost]], Cost]:
    """Return `_canonical_joints` after each context, and the cost of earlier turns.

    Long contexts are evaluated in several turns, between which the model serves other
    work.
    """
    claim, spent = Claim(), Cost()

    def turn() -> list[tuple[FloatArray | None, Cost]] | Cost:
        done: list[tuple[FloatArray | None, Cost]] = []
        try:
            done.extend(_canonical_joints(session, prepared, context, finalists, claim) for context in contexts)
        except _CallsRemain as more:
            return sum((cost for _, cost in done), more.cost)
        return done

    # A turn that could not finish returns what it cost.
    while isinstance(joints := session.group.call(turn), Cost):
        spent += joints
    return joints, spent


def _merge_joints(
    evaluated: EvaluatedSelect, scored: ChoiceScores, finalists: IntArray, values: list[FloatArray]
) -> ChoiceScores:
    """Return the scores with the finalists' joints replaced by canonical ones.

    The coverage is summed again.

    Args:
        evaluated: The evaluated request.
        scored: The scores before.
        finalists: int32[n], indices of choices.
        values: The joints from `_canonical_joints`, float64[2, n], after the prompt and
            then after each premise.
    """
    prepared, baseline = evaluated.prepared, evaluated.baseline
    if baseline is not None:
        groups = None if prepared.groups is None else prepared.groups[finalists]
        own = [choice_scores.sum_groups(value[0], groups) for value in values[1:]]
        baseline = Interval.point(_replace_values(baseline.low, prepared, finalists, np.mean(np.stack(own), axis=0)))
    joints, whole = values[0]
    path_logp = scored.path_logp.copy()
    path_logp[prepared.trie.path_of[finalists]] = whole
    logp = _replace_values(scored.logp.low, prepared, finalists, joints)
    scored = replace(
        scored,
        logp=Interval(logp, _replace_values(scored.logp.high, prepared, finalists, joints), is_known=True),
        path_logp=path_logp,
        coverage=choice_scores.bound_coverage(Interval.point(coverage_of(path_logp)), scored.lower_by),
    )
    return choice_scores.rescore(prepared, evaluated.evaluation, scored, baseline)


def _replace_values(values: FloatArray, prepared: PreparedSelect, choices: IntArray, new: FloatArray) -> FloatArray:
    """Return `values`, float64[C], with those of `choices` replaced by `new`.

    Choices with the same path that are scored from the same token get the same value.
    """
    path_of, first = prepared.trie.path_of, prepared.encoded.first_scored
    result: FloatArray = values.copy()
    for choice, value in zip(choices, new, strict=True):
        result[(path_of == path_of[choice]) & (first == first[choice])] = value
    return result


class _CallsRemain(Exception):
    """Raised when a long context needs another turn before its paths can be scored.

    Attributes:
        cost: The cost of this turn.
    """

    def __init__(self, cost: Cost) -> None:
        super().__init__()
        self.cost = cost


def _canonical_joints(
    session: Session, prepared: PreparedSelect, context: IntArray, choices: IntArray, claim: Claim | None = None
) -> tuple[FloatArray | None, Cost]:
    """Return the joints of some choices after a context in the canonical layout.

    Args:
        session: The session, with the model whose `new_context` scores them.
        prepared: The request.
        context: int32[T], the context.
        choices: int32[n], indices of the choices.
        claim: The claim of the request on its memory. None evaluates a context in one
            turn.

    Returns:
        The joints of the choices and of their whole paths, float64[2, n], with the
        log-probability of the healed bytes subtracted, and the cost. The joints are
        None if a choice needs more than `MAX_ROWS` rows. Joints in the session's cache
        are not evaluated again.

    Raises:
        _CallsRemain: If a long context needs another turn. The next call continues it.
    """
    owner = row_owner(prepared.trie, prepared.terminator)
    subs = [_isolate_path(prepared, int(path), owner) for path in prepared.trie.path_of[choices]]
    if max(int(np.count_nonzero(sub.inner)) for sub, _ in subs) > MAX_ROWS:
        return None, Cost()
    keys = [_joints_key(prepared, context, int(choice), *sub) for choice, sub in zip(choices, subs, strict=True)]
    cached, cost = session.cached_joints, Cost()
    found = {key: joints for key in keys if (joints := cached.get(key)) is not None}
    new = [i for i, key in enumerate(keys) if key not in found]
    if new:
        paths = [(int(choices[i]), *subs[i]) for i in new]
        evaluated, cost = _evaluate_joints(session, prepared, context, paths, claim)
        for i, joints in zip(new, evaluated, strict=True):
            found[keys[i]] = joints
            cached.put(keys[i], joints)
    return np.array([found[key] for key in keys]).T, cost


def _evaluate_joints(
    session: Session,
    prepared: PreparedSelect,
    context: IntArray,
    paths: Sequence[tuple[int, TokenTrie, int]],
    claim: Claim | None,
) -> tuple[list[tuple[float, float]], Cost]:
    """Return the two joints of each path (see `_canonical_joints`), and the cost.

    `paths` has for each choice its index and the result of `_isolate_path`.
    """
    limits = session.model.limits
    n_nodes = len(context) + len(prepared.healing.nodes) + np.array([len(sub.token) for _, sub, _ in paths])
    if limits.batch_sizes.is_fixed:
        # The length of a memory must not depend on other paths, as programs for other
        # lengths sum in another order. Nor is it longer than the model's own memory,
        # for which there may be no programs yet.
        rounded = len(context) + -(-(n_nodes - len(context)) // _ROOM) * _ROOM
        n_nodes = np.maximum(n_nodes, np.minimum(rounded, limits.nodes))
    else:
        n_nodes[:] = n_nodes.max()
        advanced = session.advance_memory(context, int(n_nodes[0]), claim)
        if advanced is not None:
            raise _CallsRemain(advanced)
    result, cost = np.empty((len(paths), 2)), Cost()
    for n in np.unique(n_nodes):
        picked = np.flatnonzero(n_nodes == n)
        with session.canonical_memory(context, int(n), claim) as memory:
            result[picked], more = _score_paths(memory, prepared, context, [paths[i] for i in picked.tolist()])
            cost += more
    return [(joint, whole) for joint, whole in result.tolist()], cost


def _joints_key(prepared: PreparedSelect, context: IntArray, choice: int, sub: TokenTrie, end: int) -> bytes:
    """Return a cache key of all inputs of the canonical joints of a choice."""
    healing, first = prepared.healing, int(prepared.encoded.first_scored[choice])
    parts = [context, sub.token, sub.parent, np.array([end, first])]
    if context is prepared.encoded.context and len(healing.nodes):
        parts += [prepared.trie.token[healing.nodes], healing.parent_index, *(ids for _, ids in healing.observations)]
    state = blake2b(prepared.terminator.encode(), digest_size=16)
    for part in parts:
        state.update(b"%d:" % part.nbytes)
        state.update(np.ascontiguousarray(part).data)
    return state.digest()


def _score_paths(
    memory: CanonicalMemory, prepared: PreparedSelect, context: IntArray, paths: Sequence[tuple[int, TokenTrie, int]]
) -> tuple[FloatArray, Cost]:
    """Score paths in a canonical memory.

    Returns both joints of each path, float64[n, 2], and the cost.
    """
    healed, more = _evaluate_log_heal(memory, prepared, context)
    cost = memory.spent + more
    result = np.empty((len(paths), 2))
    for i, (choice, sub, end) in enumerate(paths):
        needs = row_needs(sub, prepared.terminator, (), prepared.needs.eog_ids)
        evaluation, more = memory.work(ScoreTask(context, sub, needs))
        cost += more
        first = np.full(len(sub.path_of), prepared.encoded.first_scored[choice], dtype=np.int32)
        scores = path_scores(sub, evaluation, prepared.terminator, healed)
        own = sub.end_path[end]
        result[i] = scores.first_scored(sub, evaluation, first).low[own], scores.logp.low[own]
    return result, cost


def _isolate_path(prepared: PreparedSelect, path: int, owner: IntArray | None) -> tuple[TokenTrie, int]:
    """Return the trie of one path, and the path's end node in it.

    The trie includes the nodes below the end that the terminator depends on, by
    `owner`, which is `row_owner` of the whole trie.
    """
    trie = prepared.trie
    end = int(trie.path_node[path])
    marked: BoolArray = np.zeros(len(trie.token), dtype=np.bool_)
    marked[end] = True
    if owner is not None:
        owned = owner == end
        marked |= owned
        marked[1:] |= owned[trie.parent[1:]]
    sub, old = trie.restrict(marked)
    return sub, int(np.searchsorted(old, end))


def _evaluate_log_heal(memory: CanonicalMemory, prepared: PreparedSelect, context: IntArray) -> tuple[float, Cost]:
    """Return the log-probability of the healed bytes after the context, and its cost.

    It is 0 if nothing was healed or if `context` is that of a premise.
    """
    healing = prepared.healing
    if not len(healing.nodes) or context is not prepared.encoded.context:
        return 0.0, Cost()
    marked: BoolArray = np.zeros(len(prepared.trie.token), dtype=np.bool_)
    marked[healing.nodes] = True
    sub, old = prepared.trie.restrict(marked)
    observe = [(int(np.searchsorted(old, node)), ids) for node, ids in healing.observations]
    needs = row_needs(sub, "none", observe, prepared.needs.eog_ids)
    evaluation, cost = memory.work(ScoreTask(context, sub, needs))
    edges = np.full(len(prepared.trie.token), np.nan)
    edges[old] = evaluation.edge_logp
    edges[ROOT] = 0.0
    return healing.log_heal(edges, evaluation.observed).low, cost
