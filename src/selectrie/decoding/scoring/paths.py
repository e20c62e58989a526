"""Computes the log-probability of each path of a trie, for one or many evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selectrie.core import numerics
from selectrie.core.numerics import Interval
from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, NO_PATH, ROOT, BoolArray, FloatArray, IntArray
from selectrie.decoding.scoring.evaluation import TrieEvaluation, levels, longest_prefix_owner
from selectrie.decoding.scoring.rules import Posterior

RESOLVED = 1e-4
"""Largest width in nats of a joint's bounds at which their middle counts as its value.

Only rows that were not evaluated leave such a width. Rows that the model gave in part
leave bounds of any width; the lower bound then counts as the value.
"""


@dataclass(frozen=True, slots=True, eq=False)
class PathScores:
    """Log-probabilities of P distinct paths, given the healed bytes.

    All are conditional on the text beginning with the healed bytes. A path is resolved
    if rows that were not evaluated leave its joint open by at most `RESOLVED`. Arrays
    have a leading axis B for B evaluations that were scored together.

    Attributes:
        logp: float64[P], the joint, including the terminator; NaN where not resolved.
            -inf means probability 0 and is a result. `is_known` if all rows that the
            joints depend on were given in full. `high` is an upper bound in any case.
        terminator: float64[P], the terminator's part of `logp`; NaN where not resolved,
            and on a path of probability 0 whose end was not evaluated. `high` is an
            upper bound in any case.
        logp_local: float64[P], the local log-probability (masked step-by-step choice);
            NaN where a row on the path was not evaluated, or given in part.
        greedy_path: int32[], the path that masked greedy decoding picks; NO_PATH where
            a row on its way was not evaluated, or given in part.
    """

    logp: Interval[FloatArray]
    terminator: Interval[FloatArray]
    logp_local: FloatArray
    greedy_path: IntArray

    def first_scored(self, trie: TokenTrie, evaluation: TrieEvaluation, first_scored: IntArray) -> Interval[FloatArray]:
        """Return `logp` of each **choice**, float64[C], from its first scored token on.

        Choices with equal paths may have different first scored tokens. Earlier tokens
        are left out of the sums instead of being subtracted, so that a token of
        probability 0 among them does no harm. This serves lm-eval's boundary, which
        heals nothing.

        Args:
            first_scored: int32[C], index of each choice's first scored token.
        """
        joints = self.logp.map(lambda logp: np.take(logp, trie.path_of, axis=-1))
        changed = np.flatnonzero(first_scored > 0)
        if not len(changed):
            return joints
        path, first = trie.path_of[changed], first_scored[changed]
        node = trie.path_node[path].copy()
        sums, highest = np.zeros(len(path)), np.zeros(len(path))
        while (counted := trie.depth[node] > first).any():
            edge = evaluation.edge_logp[node[counted]]
            sums[counted] += edge
            highest[counted] += np.where(np.isnan(edge), 0.0, edge)
            node[counted] = trie.parent[node[counted]]
        low, high = joints.low.copy(), joints.high.copy()
        low[changed] = sums + self.terminator.low[path]
        high[changed] = highest + self.terminator.high[path]
        return Interval(low, high, joints.is_known)


def prefix_logp(trie: TokenTrie, evaluation: TrieEvaluation) -> FloatArray:
    """Return an upper bound on the log-probability of each prefix, float64[..., N].

    It is the sum of the edges' log-probabilities from the root. An edge that was not
    evaluated counts as 0.
    """
    return trie.accumulate(np.where(np.isnan(evaluation.edge_logp), 0.0, evaluation.edge_logp))


def path_scores(
    trie: TokenTrie, evaluation: TrieEvaluation, terminator: str, log_heal: float | FloatArray = 0.0
) -> PathScores:
    """Return the log-probabilities of every path of a trie from its evaluated rows.

    Several evaluations of one trie are scored together if their arrays are stacked:
    float64[B, N] for the log-probabilities, and bool[N] for the nodes that all of them
    evaluated. The results are then stacked as well, with the same bits as from each
    evaluation alone.

    Args:
        trie: The trie.
        evaluation: The numbers read from its rows.
        terminator: The terminator.
        log_heal: Log-probability of the healed bytes, subtracted from every logp (0 if
            nothing was healed); float64[B] for B evaluations. If it is -inf, every path
            has the log-probability -inf.
    """
    healed = np.asarray(log_heal)[..., None]
    healed = np.where(np.isneginf(healed), 0.0, healed)
    rest, prefix = evaluation.rest, prefix_logp(trie, evaluation)[..., trie.path_node]
    end = _terminator_bounds(trie, evaluation, terminator)
    logp, term = _resolve_joints(prefix, end, ~_has_unknown_above(trie, evaluation)[..., trie.path_node])
    if rest.is_known or terminator != "unless-continued":
        local, greedy = _local_logp(trie, evaluation, terminator), greedy_path(trie, evaluation, terminator)
    else:
        # A row given in part may let the decoding stop at its upper bound and go on at
        # its lower one. A greedy path is certain only if both give it.
        most = replace(evaluation, rest=Interval.point(rest.high))
        logp, term = _widen_joints(prefix, end, _terminator_bounds(trie, most, terminator).high, logp, term)
        told = replace(evaluation, rest=Interval.point(np.where(rest.low == rest.high, rest.low, np.nan)))
        local = _local_logp(trie, told, terminator)
        greedy, stops_early = (greedy_path(trie, one, terminator) for one in (evaluation, most))
        greedy = np.where(greedy == stops_early, greedy, NO_PATH).astype(np.int32)
    return PathScores(logp.map(lambda one: one - healed), term, local, greedy)


def _resolve_joints(
    prefix: FloatArray, end: Interval[FloatArray], is_read: BoolArray
) -> tuple[Interval[FloatArray], Interval[FloatArray]]:
    """Return the joints and terminators of all paths, from rows given in full.

    Args:
        prefix: float64[..., P], upper bounds on the log-probability of each path's
            tokens.
        end: float64[..., P], bounds on the log-probability of its terminator.
        is_read: bool[..., P], whether the edges of all its tokens were evaluated.
    """
    upper = prefix + end.high
    lower = np.where(np.isfinite(prefix) & is_read, prefix + end.low, -np.inf)
    if (lower == upper).all() and (end.low == end.high).all():
        return Interval.point(upper), Interval.point(end.high)
    with np.errstate(invalid="ignore"):
        # Bounds that are this close count as one value, their middle.
        is_resolved = np.isneginf(upper) | (upper - lower <= RESOLVED)
        has_end = is_resolved & ((end.low == end.high) | (end.high - end.low <= RESOLVED))
        middle = np.where(lower == upper, upper, (lower + upper) / 2)
        term = np.where(end.low == end.high, end.high, (end.low + end.high) / 2)
    joint, term = np.where(is_resolved, middle, np.nan), np.where(has_end, term, np.nan)
    return Interval(joint, upper, is_known=True), Interval(term, end.high, is_known=True)


def _widen_joints(
    prefix: FloatArray,
    end: Interval[FloatArray],
    most: FloatArray,
    joint: Interval[FloatArray],
    term: Interval[FloatArray],
) -> tuple[Interval[FloatArray], Interval[FloatArray]]:
    """Widen joints and terminators to the bounds of rows that were given in part.

    Args:
        prefix, end: The arguments of `_resolve_joints`, computed with the lower bounds.
        most: float64[..., P], upper bounds on the terminators. Values stay as they are
            where these are not above `end.low`.
        joint, term: The results of `_resolve_joints`.
    """
    is_bounded = most > end.low
    has_joint, has_end = (is_bounded & ~np.isnan(one.low) for one in (joint, term))
    sums, ends = Interval(prefix + end.low, prefix + most).widened(), Interval(end.low, most).widened()
    return (
        Interval(np.where(has_joint, sums.low, joint.low), np.where(is_bounded, sums.high, joint.high)),
        Interval(np.where(has_end, ends.low, term.low), np.where(is_bounded, ends.high, term.high)),
    )


def _has_unknown_above(trie: TokenTrie, evaluation: TrieEvaluation) -> BoolArray:
    """Return bool[..., N], whether an edge above each node was not evaluated."""
    return np.asarray(trie.accumulate(np.isnan(evaluation.edge_logp).astype(np.float64)) > 0)


def _terminator_bounds(trie: TokenTrie, evaluation: TrieEvaluation, terminator: str) -> Interval[FloatArray]:
    """Return bounds on the log-probability of each path's terminator, float64[..., P].

    Rows that were given in part count with their lower bounds.
    """
    ends = trie.path_node
    if terminator == "eog":
        eog = evaluation.eog_logp[..., ends]
        return Interval(np.where(np.isnan(eog), -np.inf, eog), np.where(np.isnan(eog), 0.0, eog))
    if terminator == "unless-continued":
        return bound_uncontinued(trie, evaluation).map(lambda bound: bound[..., ends])
    return Interval.point(np.zeros((*evaluation.edge_logp.shape[:-1], len(ends))))


def bound_uncontinued(trie: TokenTrie, evaluation: TrieEvaluation) -> Interval[FloatArray]:
    """Return bounds on log q(n) of each node n, float64[..., N].

    q(n) is the probability that the text after n reaches none of the ends below n. It
    is the sum of p(t) over tokens t that are not children, plus the sum of p(m) q(m)
    over children m that end no path. All terms are positive, whereas 1 - sum would
    cancel. A leaf has q = 1; a missing row leaves q in [0, 1]. A row that was given in
    part counts with its lower bound. Nodes above all ends are NaN, since they are never
    needed.
    """
    inside = longest_prefix_owner(trie) != NO_NODE
    inner = trie.inner
    rest = evaluation.rest.low
    read = ~np.isnan(rest)
    known = evaluation.evaluated & (read if read.ndim == 1 else read.all(axis=0))
    low = np.where(inner, np.where(known, rest, -np.inf), 0.0)
    high = np.where(inner & known, rest, 0.0)
    passes = inside & (trie.end_path == NO_PATH)
    passes[ROOT] = False
    for level in reversed(levels(trie)):
        low[..., level] = np.minimum(low[..., level], 0.0)
        high[..., level] = np.minimum(high[..., level], 0.0)
        nodes = level[passes[level]]
        nodes = nodes[known[trie.parent[nodes]]]
        parents = trie.parent[nodes]
        for bound in (low, high):
            np.logaddexp.at(bound.T, parents, (evaluation.edge_logp[..., nodes] + bound[..., nodes]).T)
    low[..., ~inside], high[..., ~inside] = np.nan, np.nan
    return Interval(low, high)


def stop_logp(evaluation: TrieEvaluation, terminator: str) -> FloatArray:
    """Return the log-weight of stopping at each node where a path ends, float64[N].

    Step-by-step choice compares it with the children. NaN where it was not read.
    """
    return evaluation.rest.low if terminator == "unless-continued" else evaluation.eog_logp


def _local_logp(trie: TokenTrie, evaluation: TrieEvaluation, terminator: str) -> FloatArray:
    """Return each path's local log-probability, float64[..., P].

    The options at a node are its children and, where a path ends, stopping. Their
    probabilities are scaled to sum to one and multiplied along the path. If no option
    of a node has a positive probability, all of them keep probability 0.
    """
    inner = np.flatnonzero(trie.inner & evaluation.evaluated)
    edge_logp = evaluation.edge_logp
    total = np.full(edge_logp.shape, np.nan)
    stops = trie.end_path[inner] != NO_PATH
    stop = np.where(stops, stop_logp(evaluation, terminator)[..., inner], -np.inf)
    if len(inner):
        edges = np.full((*edge_logp.shape[:-1], len(trie.child) + 1), -np.inf)
        edges[..., :-1] = edge_logp[..., trie.child]
        bounds = np.stack([trie.child_start[inner], trie.child_start[inner + 1]], axis=1).ravel()
        # Between two segments lie edges that were not evaluated.
        with np.errstate(invalid="ignore"):
            total[..., inner] = np.logaddexp(np.logaddexp.reduceat(edges, bounds, axis=-1)[..., ::2], stop)
    share = np.zeros(edge_logp.shape)
    with np.errstate(invalid="ignore"):
        share[..., 1:] = edge_logp[..., 1:] - total[..., trie.parent[1:]]
        stop_share = np.zeros(edge_logp.shape)
        stop_share[..., inner] = stop - total[..., inner]
    dead = np.isneginf(total)
    share[..., 1:][dead[..., trie.parent[1:]]] = -np.inf
    stop_share[dead] = -np.inf
    stop_share[..., trie.inner & ~evaluation.evaluated] = np.nan
    local = trie.accumulate(share)[..., trie.path_node] + stop_share[..., trie.path_node]
    return np.asarray(np.minimum(local, 0.0), dtype=np.float64)


def greedy_path(trie: TokenTrie, evaluation: TrieEvaluation, terminator: str) -> IntArray:
    """Return the path that masked greedy decoding picks, as int32[...].

    Ties go to the smaller token, and to continuing rather than stopping.
    """
    stop = stop_logp(evaluation, terminator)
    if stop.ndim > 1:
        return _greedy_paths(trie, evaluation, stop)
    node = ROOT
    while trie.n_nodes_below[node]:
        if not evaluation.evaluated[node]:
            return np.array(NO_PATH, dtype=np.int32)
        child = greedy_child(trie, evaluation.edge_logp, stop, node)
        if child == NO_NODE:
            break
        node = child
    return np.array(trie.end_path[node], dtype=np.int32)


def _greedy_paths(trie: TokenTrie, evaluation: TrieEvaluation, stop: FloatArray) -> IntArray:
    """Return `greedy_path` for each of B evaluations, int32[B].

    The best step from every inner node is computed first; then all evaluations follow
    the steps together, level by level.
    """
    n_rows = len(stop)
    step = np.tile(np.arange(len(trie), dtype=np.int32), (n_rows, 1))
    inner = np.flatnonzero(trie.inner & evaluation.evaluated)
    if len(inner):
        starts = trie.child_start[inner]
        # In `child`, the children of one node follow those of the inner node before it.
        children = trie.child[np.isin(trie.parent[trie.child], inner)]
        n_children = trie.child_start[inner + 1] - starts
        first = np.cumsum(n_children) - n_children
        edges = evaluation.edge_logp[:, children]
        best = np.maximum.reduceat(edges, first, axis=1)
        is_best = edges == np.repeat(best, n_children, axis=1)
        position = np.where(is_best, np.arange(len(children)), len(children))
        child = children[np.minimum.reduceat(position, first, axis=1)]
        stops = (trie.end_path[inner] != NO_PATH) & (stop[:, inner] > best)
        step[:, inner] = np.where(stops, inner, child)
    node = np.zeros(n_rows, dtype=np.int32)
    row = np.arange(n_rows)
    for _ in range(int(trie.depth.max(initial=0))):
        node = step[row, node]
    unread = trie.inner & ~evaluation.evaluated
    return np.where(unread[node], NO_PATH, trie.end_path[node]).astype(np.int32)


def greedy_child(trie: TokenTrie, edge_logp: FloatArray, stop: FloatArray, node: int) -> int:
    """Return the child that masked greedy decoding goes to, or NO_NODE if it stops.

    `node` is an evaluated inner node.
    """
    children = trie.children(node)
    best = int(children[np.argmax(edge_logp[children])])
    return NO_NODE if trie.end_path[node] != NO_PATH and stop[node] > edge_logp[best] else best


def stack_evaluations(evaluations: Sequence[TrieEvaluation]) -> TrieEvaluation | None:
    """Stack evaluations of one trie into one, whose arrays have a leading axis.

    Return None if they did not evaluate the same nodes, or if one has intervals. The
    most probable tokens are those of the first evaluation.
    """
    first = evaluations[0]
    if not all(one.rest.is_known and one.observed.is_known for one in evaluations):
        return None
    if any(not np.array_equal(one.evaluated, first.evaluated) for one in evaluations[1:]):
        return None
    return replace(
        first,
        edge_logp=np.stack([one.edge_logp for one in evaluations]),
        eog_logp=np.stack([one.eog_logp for one in evaluations]),
        rest=Interval.point(np.stack([one.rest.low for one in evaluations])),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """Decisions over the same C choices by B rows of scores; see `Posterior`.

    Attributes:
        probability: float64[B, C].
        winner: int64[B].
        is_tie: bool[B].
        margin: float64[B].
    """

    probability: FloatArray
    winner: IntArray
    is_tie: BoolArray
    margin: FloatArray

    def __getitem__(self, row: int) -> Posterior:
        """Return one of the decisions."""
        p = self.probability[row]
        return Posterior(p, Interval.point(p), self.winner.item(row), self.is_tie.item(row), self.margin.item(row))


def posteriors(scores: FloatArray, path_of: IntArray, rounding: FloatArray | None = None) -> Posteriors:
    """Decide among C choices by each row of scores, all of which are exact.

    Args:
        scores: float64[B, C], without NaN.
        path_of: int32[C]; equal paths count once, by their best score.
        rounding: float64[B, C], nats by which rounding may move each score; None for 0.
    """
    n_rows, n_paths = len(scores), int(path_of.max()) + 1
    rows = np.arange(n_rows)
    best = np.full((n_rows, n_paths), -np.inf)
    np.maximum.at(best.T, path_of, scores.T)
    winner = np.argmax(scores, axis=1)
    top = scores[rows, winner]
    others = best.copy()
    others[rows, path_of[winner]] = -np.inf
    rival = others.max(axis=1)
    with np.errstate(invalid="ignore"):
        margin = np.where(rival > -np.inf, top - rival, np.where(top > -np.inf, np.inf, 0.0))
    slack = np.zeros(scores.shape) if rounding is None else rounding
    near = scores + slack >= (top - slack[rows, winner])[:, None]
    total = _logsumexp_rows(best)[:, None]
    share = np.where(np.isneginf(best), -np.inf, best - np.where(np.isneginf(total), 0.0, total))
    return Posteriors(
        probability=numerics.exp(share)[:, path_of],
        winner=winner,
        is_tie=(near & (path_of != path_of[winner][:, None])).any(axis=1),
        margin=margin if n_paths > 1 else np.full(n_rows, np.inf),
    )


def coverages(logp: FloatArray) -> FloatArray:
    """Return `coverage_of` for each row of float64[B, P] without NaN."""
    return numerics.exp(_logsumexp_rows(logp))


def _logsumexp_rows(x: FloatArray) -> FloatArray:
    """Return `numerics.logsumexp` of each row of float64[B, n], n > 0."""
    x = np.ascontiguousarray(x)  # numpy sums the rows of other arrays in another order
    peak = x.max(axis=1)
    shift = np.where(np.isneginf(peak), 0.0, peak)
    with np.errstate(divide="ignore"):
        total: FloatArray = np.log(numerics.exp(x - shift[:, None]).sum(axis=1))
    return np.where(np.isneginf(peak), -np.inf, peak + total)
