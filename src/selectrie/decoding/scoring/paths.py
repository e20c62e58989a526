"""From what was read off a trie to the log-probability of each path: joint, bounds, terminator, step-by-step choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.core.token_trie import TokenTrie
from selectrie.core.types import NO_NODE, NO_PATH, ROOT, BoolArray, FloatArray, IntArray
from selectrie.decoding.scoring.evaluation import TrieEvaluation
from selectrie.decoding.scoring.terminators import levels, owners

RESOLVED = 1e-4
"""Nats between the bounds of an end within which its middle stands for its value (only partial evaluation leaves any)."""


@dataclass(frozen=True, slots=True, eq=False)
class PathScores:
    """Log-probabilities of P distinct paths, healed bytes taken off.

    logp: float64[P], joint with the terminator's part; NaN where not resolved. -inf is probability 0, a result.
    logp_lower, logp_upper: float64[P], bounds; equal to logp where everything it needs was evaluated, else within
    `RESOLVED` of each other. logp_terminator: float64[P], part of logp; NaN where not resolved.
    logp_local: float64[P], under masked step-by-step choice; NaN where a row on the way was not evaluated.
    greedy_path: the path that masked greedy decoding picks, NO_PATH where a row on its way was not evaluated.
    """

    logp: FloatArray
    logp_lower: FloatArray
    logp_upper: FloatArray
    logp_terminator: FloatArray
    logp_local: FloatArray
    greedy_path: int

    def first_scored(
        self, trie: TokenTrie, evaluation: TrieEvaluation, first_scored: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """float64[C] twice, logp and logp_upper of each **choice** when tokens before first_scored[c] do not count.

        Choices with equal paths may count from different tokens. Nothing is subtracted, so a token of probability 0
        that does not count does no harm. For lm-eval's boundary, which heals nothing. first_scored: int32[C].
        """
        path = trie.path_of
        joint, upper = self.logp[path].copy(), self.logp_upper[path].copy()
        changed = np.flatnonzero(first_scored > 0)
        path, first = path[changed], first_scored[changed]
        node = trie.path_node[path].copy()
        sums, sums_upper = np.zeros(len(path)), np.zeros(len(path))
        while (counted := trie.depth[node] > first).any():
            edge = evaluation.edge_logp[node[counted]]
            sums[counted] += edge
            sums_upper[counted] += np.where(np.isnan(edge), 0.0, edge)
            node[counted] = trie.parent[node[counted]]
        term = self.logp_terminator[path]
        joint[changed] = sums + term
        upper[changed] = sums_upper + np.where(np.isnan(term), 0.0, term)
        return joint, upper


def prefix_logp(trie: TokenTrie, evaluation: TrieEvaluation) -> FloatArray:
    """float64[N]: sum of edges from the root; an edge not evaluated counts 0, so it is a bound from above."""
    return trie.accumulate(np.where(np.isnan(evaluation.edge_logp), 0.0, evaluation.edge_logp))


def path_scores(trie: TokenTrie, evaluation: TrieEvaluation, terminator: str, log_heal: float = 0.0) -> PathScores:
    """Score every path of a trie from what was evaluated of it.

    log_heal: log-probability of the healed bytes, taken off every logp (0 = nothing was healed); where it is -inf no path
    has any probability, and stays at -inf.
    """
    log_heal = 0.0 if log_heal == -np.inf else log_heal
    ends = trie.path_node
    prefix = prefix_logp(trie, evaluation)[ends]
    ends_known = np.isfinite(prefix) & ~_unknown_above(trie, evaluation)[ends]
    low, high = _terminator_bounds(trie, evaluation, terminator)
    upper = prefix + high
    lower = np.where(ends_known, prefix + low, -np.inf)
    with np.errstate(invalid="ignore"):
        resolved = np.isneginf(upper) | (upper - lower <= RESOLVED)
        middle = np.where(lower == upper, upper, (lower + upper) / 2)
        term = np.where(lower == upper, high, (low + high) / 2)
    local, greedy = _step_by_step(trie, evaluation, terminator)
    return PathScores(
        logp=np.where(resolved, middle, np.nan) - log_heal,
        logp_lower=lower - log_heal,
        logp_upper=upper - log_heal,
        logp_terminator=np.where(resolved, term, np.nan),
        logp_local=local,
        greedy_path=greedy,
    )


def _unknown_above(trie: TokenTrie, evaluation: TrieEvaluation) -> BoolArray:
    """bool[N]: some edge from the root to the node was not evaluated."""
    return np.asarray(trie.accumulate(np.isnan(evaluation.edge_logp).astype(np.float64)) > 0)


def _terminator_bounds(trie: TokenTrie, evaluation: TrieEvaluation, terminator: str) -> tuple[FloatArray, FloatArray]:
    """float64[P] twice: bounds on the terminator's log-probability after each path."""
    ends = trie.path_node
    if terminator == "eog":
        eog = evaluation.eog_logp[ends]
        return np.where(np.isnan(eog), -np.inf, eog), np.where(np.isnan(eog), 0.0, eog)
    if terminator == "unless-continued":
        low, high = not_continued(trie, evaluation)
        return low[ends], high[ends]
    return np.zeros(len(ends)), np.zeros(len(ends))


def not_continued(trie: TokenTrie, evaluation: TrieEvaluation) -> tuple[FloatArray, FloatArray]:
    """float64[N] twice: bounds on log q(n), the probability that the text after n reaches no end below n.

    q(n) = sum of p(t) over tokens that are no children + sum of p(m) q(m) over children m that end no path: positive
    terms only, where 1 - sum would cancel. A leaf has q = 1; a row that is missing leaves q in [0, 1].
    NaN above all ends, where nobody asks. From the deepest level up, vectorised.
    """
    inside = owners(trie) != NO_NODE
    inner = trie.inner
    rest = evaluation.rest_logp
    known = evaluation.evaluated & ~np.isnan(rest)
    low = np.where(inner, np.where(known, rest, -np.inf), 0.0)
    high = np.where(inner & known, rest, 0.0)
    passes = inside & (trie.end_path == NO_PATH)
    passes[ROOT] = False
    for level in reversed(levels(trie)):
        low[level], high[level] = np.minimum(low[level], 0.0), np.minimum(high[level], 0.0)
        nodes = level[passes[level]]
        nodes = nodes[known[trie.parent[nodes]]]
        parents = trie.parent[nodes]
        np.logaddexp.at(low, parents, evaluation.edge_logp[nodes] + low[nodes])
        np.logaddexp.at(high, parents, evaluation.edge_logp[nodes] + high[nodes])
    low[~inside], high[~inside] = np.nan, np.nan
    return low, high


def stop_logp(evaluation: TrieEvaluation, terminator: str) -> FloatArray:
    """float64[N]: weight of stopping where a path ends, for step-by-step choice; NaN where it was not read."""
    return evaluation.rest_logp if terminator == "unless-continued" else evaluation.eog_logp


def _step_by_step(trie: TokenTrie, evaluation: TrieEvaluation, terminator: str) -> tuple[FloatArray, int]:
    """float64[P]: log-probability of each path under mask, renormalise, multiply; and the path greedy decoding picks.

    At each node the options are its children and, where a path ends, stopping; the sum over them is taken to be one.
    Where nothing allowed has any probability, every option has none.
    """
    inner = np.flatnonzero(trie.inner & evaluation.evaluated)
    total = np.full(len(trie.token), np.nan)
    stops = trie.end_path[inner] != NO_PATH
    stop = np.where(stops, stop_logp(evaluation, terminator)[inner], -np.inf)
    if len(inner):
        edges = np.append(evaluation.edge_logp[trie.child], -np.inf)
        bounds = np.stack([trie.child_start[inner], trie.child_start[inner + 1]], axis=1).ravel()
        with np.errstate(invalid="ignore"):  # between two segments stand edges that were not evaluated
            total[inner] = np.logaddexp(np.logaddexp.reduceat(edges, bounds)[::2], stop)
    share = np.zeros(len(trie.token))
    with np.errstate(invalid="ignore"):
        share[1:] = evaluation.edge_logp[1:] - total[trie.parent[1:]]
        stop_share = np.zeros(len(trie.token))
        stop_share[inner] = stop - total[inner]
    dead = np.isneginf(total)
    share[1:][dead[trie.parent[1:]]] = -np.inf
    stop_share[dead] = -np.inf
    stop_share[trie.inner & ~evaluation.evaluated] = np.nan
    local = trie.accumulate(share)[trie.path_node] + stop_share[trie.path_node]
    return np.minimum(local, 0.0), greedy_path(trie, evaluation, terminator)


def greedy_path(trie: TokenTrie, evaluation: TrieEvaluation, terminator: str) -> int:
    """The path that masked greedy decoding picks; ties go to the smaller token, and on rather than to stopping."""
    stop = stop_logp(evaluation, terminator)
    node = ROOT
    while trie.n_nodes_below[node]:
        if not evaluation.evaluated[node]:
            return NO_PATH
        child = greedy_child(trie, evaluation.edge_logp, stop, node)
        if child == NO_NODE:
            break
        node = child
    return int(trie.end_path[node])


def greedy_child(trie: TokenTrie, edge_logp: FloatArray, stop: FloatArray, node: int) -> int:
    """The child that masked greedy decoding goes to from an evaluated inner node; NO_NODE = it stops here."""
    children = trie.children(node)
    best = int(children[np.argmax(edge_logp[children])])
    return NO_NODE if trie.end_path[node] != NO_PATH and stop[node] > edge_logp[best] else best
