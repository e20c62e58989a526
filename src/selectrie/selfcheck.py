"""How far a model's numbers move with the layout of the work: measured once, stated in every signature.

The same paths are evaluated alone, each at the same cells of a small empty model, and in a crowd: behind a foreign
prompt, with the prompt itself cut into calls and foreign branches between its cells, all paths and others side by side.
The largest move of the log-probability of a path's token, times `MARGIN`, is the tolerance a row.

Attention sums in cell order, so what moves is the last bit of a sum. On quantised weights it is amplified where a rounded
activation falls into the next bucket. With 10^5 activations a row that happens in every row; with 10^3 (a tiny model)
in one row of hundreds, and then by 0.05 nats on q4_0. So small models, whose rows cost nothing, are checked longer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.errors import InternalError
from selectrie.model import Model
from selectrie.types import ROOT, FloatArray, IntArray

MARGIN = 4.0
"""Tolerance over the largest move seen: the check sees few layouts."""

LEAST_MOVE = 5e-7
"""Nats: the rounding of float32 logits of size 8, below which no two sums are told apart."""

GRANULES = (8, 16, 32, 64)

PROMPT_TOKENS = 24
PATHS = 4
PATH_TOKENS = 6
CROWD = 6
FOREIGN_TOKENS = 40

MOST_ROUNDS = 32
PARAMETERS_OF_A_ROUND = 10_000_000
"""A model of this size gets `MOST_ROUNDS`; twice the size, half as many; at least 2. A round is about 200 rows."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """granule: rows a call is padded to. moved: largest difference seen, nats a row. tolerance: `MARGIN` times that."""

    granule: int
    moved: float
    tolerance: float


def self_check(model: Model) -> SelfCheck:
    """Measure on an idle model, and set its row granule.

    The granule is the smallest at which cutting a run into calls moves its rows no further than the place of their cells
    does (on f32 weights 24 rows take another kernel than 48 do: 4e-6; padding to 16 would cost rows and gain nothing).
    A forking model has none.
    """
    if model.limits.kind.forks:
        return _checked(1, _moved(model))
    for granule in GRANULES:
        model.trim(0)
        model.granule = granule
        moved, cut = _moved(model), _cut_moved(model)
        if cut <= max(moved, LEAST_MOVE) or granule == GRANULES[-1]:
            return _checked(granule, max(moved, cut))
    raise InternalError("no row granule to try")


def _checked(granule: int, moved: float) -> SelfCheck:
    return SelfCheck(granule, moved, MARGIN * max(moved, LEAST_MOVE))


def _cut_moved(model: Model) -> float:
    """Largest difference between rows of one call of three granules (fewer where no call holds so many) and of calls of
    one; 0 where a call holds one."""
    granule = model.granule
    n_rows = min(3, model.limits.rows_per_call // granule) * granule
    if n_rows == granule:
        return 0.0
    tokens = _tokens(model, n_rows, seed=0)
    solo = model.solo(4 * granule)
    try:
        whole = _run(solo, tokens, n_rows)
        solo.trim(0)
        return float(np.abs(whole - _run(solo, tokens, granule)).max())
    finally:
        solo.close()


def _moved(model: Model) -> float:
    """Largest difference between paths evaluated alone and in a crowd, over some rounds of random tokens."""
    size = max(model.identity.n_parameters, 1)
    n_rounds = min(max(MOST_ROUNDS * PARAMETERS_OF_A_ROUND // size, 2), MOST_ROUNDS) if size > 1 else 2
    n_paths = PATHS + max(0, min(CROWD, model.limits.branches - PATHS - 4))
    alone = model.solo(PROMPT_TOKENS + PATH_TOKENS)
    try:
        crowd = model.solo(FOREIGN_TOKENS + PROMPT_TOKENS + n_paths * PATH_TOKENS)
        try:
            return max(_moved_in_round(alone, crowd, n_paths, seed) for seed in range(n_rounds))
        finally:
            crowd.close()
    finally:
        alone.close()


def _moved_in_round(alone: Model, crowd: Model, n_paths: int, seed: int) -> float:
    tokens = _tokens(alone, FOREIGN_TOKENS + PROMPT_TOKENS + n_paths * PATH_TOKENS, seed)
    foreign, prompt, rest = np.split(tokens, [FOREIGN_TOKENS, FOREIGN_TOKENS + PROMPT_TOKENS])
    paths = list(rest.reshape(n_paths, PATH_TOKENS))
    one_by_one = _alone(alone, prompt, paths[:PATHS])
    return float(np.abs(one_by_one - _crowded(crowd, foreign, prompt, paths)).max())


def _alone(solo: Model, prompt: IntArray, paths: list[IntArray]) -> FloatArray:
    """Log-probabilities of the tokens of each path behind its first, each path at the same cells."""
    end = _chain(solo, ROOT, prompt)
    rows = []
    for path in paths:
        nodes, logp = _branch(solo, end, [path])
        rows.append(logp)
        solo.release(nodes, forget=True)
    solo.release(_one(end))
    return np.concatenate(rows)


def _crowded(model: Model, foreign: IntArray, prompt: IntArray, paths: list[IntArray]) -> FloatArray:
    """The same of the first `PATHS` paths, with foreign cells before, between and after those of the prompt."""
    end, beside = ROOT, ROOT
    for piece, other in zip(np.array_split(prompt, 3), np.array_split(foreign, 3), strict=True):
        beside = _below(model, beside, other)
        end = _below(model, end, piece)
    others = _branch(model, end, paths[PATHS:])[0] if len(paths) > PATHS else _one(ROOT)[:0]
    nodes, rows = _branch(model, end, paths[:PATHS])
    for group in (nodes, others, _one(end), _one(beside)):
        model.release(group, forget=True)
    model.trim(0)
    return rows


def _below(model: Model, above: int, tokens: IntArray) -> int:
    """Evaluate a run below a node that is then held no longer by itself; the run's end."""
    end = _chain(model, above, tokens)
    if above != ROOT:
        model.release(_one(above))
    return end


def _chain(model: Model, parent: int, tokens: IntArray) -> int:
    """Evaluate a run below a node, as many rows a call as there may be. Its end, the one node that is held: a forking
    model may have room for few states."""
    end, most = parent, model.limits.rows_per_call
    for start in range(0, len(tokens), most):
        n = len(tokens[start : start + most])
        parents = ~np.arange(-1, n - 1, dtype=np.int32)
        parents[0] = end
        is_last = np.arange(n) == n - 1
        nodes = model.extend(parents, tokens[start : start + n], np.zeros(n, dtype=bool), is_last).nodes
        model.release(nodes[:-1])
        if end != parent:
            model.release(_one(end))
        end = int(nodes[-1])
    return end


def _one(node: int) -> IntArray:
    return np.array([node], dtype=np.int32)


def _branch(model: Model, parent: int, paths: list[IntArray]) -> tuple[IntArray, FloatArray]:
    """Evaluate paths below a node side by side in one call, or as few as there may be; their nodes, and log p of every
    token but first ones."""
    most = max(1, model.limits.rows_per_call // PATH_TOKENS)
    if len(paths) > most:
        parts = [_branch(model, parent, paths[i : i + most]) for i in range(0, len(paths), most)]
        return np.concatenate([nodes for nodes, _ in parts]), np.concatenate([logp for _, logp in parts])
    parents: list[int] = []
    for path in paths:
        parents += [parent, *(~i for i in range(len(parents), len(parents) + len(path) - 1))]
    at = np.array(parents, dtype=np.int32)
    tokens = np.concatenate(paths).astype(np.int32)
    is_inner = np.ones((len(paths), PATH_TOKENS), dtype=bool)
    is_inner[:, -1] = False
    extension = model.extend(at, tokens, is_inner.ravel(), np.zeros(len(at), dtype=bool))
    following = np.concatenate([path[1:] for path in paths])
    return extension.nodes, extension.rows.logp(np.arange(len(following)), following)


def _run(model: Model, tokens: IntArray, rows_per_call: int) -> FloatArray:
    """Logits of a run evaluated so many rows at a time."""
    parent, result, held = 0, [], []
    for start in range(0, len(tokens), rows_per_call):
        piece = tokens[start : start + rows_per_call]
        n = len(piece)
        parents = ~np.arange(-1, n - 1, dtype=np.int32)
        parents[0] = parent
        extension = model.extend(parents, piece, np.ones(n, dtype=bool), np.arange(n) == n - 1)
        held.append(extension.nodes)
        result += [extension.rows.logits(i).copy() for i in range(n)]
        parent = int(extension.nodes[-1])
    model.release(np.concatenate(held))
    return np.stack(result)


def _tokens(model: Model, n: int, seed: int) -> IntArray:
    """Ordinary tokens in a fixed pseudo-random order, none twice where the vocabulary is large enough."""
    plain = np.array([i for i, piece in enumerate(model.vocabulary.pieces) if piece], dtype=np.int32)
    return np.resize(np.random.default_rng(seed).permutation(plain), n)
