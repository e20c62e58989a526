"""How far a model's numbers move with the layout of the work: measured once, stated in every signature.

The same paths are evaluated alone, each at the same cells of a small empty model, and in a crowd: behind a foreign
prompt, with the prompt itself cut into calls and foreign branches between its cells, all paths and others in one call.
The largest difference of any log-probability of any row, times `MARGIN`, is the tolerance a row.
Attention sums in cell order and kernels round activations, so what moves is the last bit of a sum, at times amplified
by a quantised activation that falls into the next bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selectrie.model import Model
from selectrie.types import FloatArray, IntArray

MARGIN = 4.0
"""Tolerance over the largest move seen: the check sees few layouts."""

LEAST_MOVE = 5e-7
"""Nats: the rounding of float32 logits of size 8, below which no two sums are told apart."""

GRANULES = (8, 16, 32, 64)

PROMPT_TOKENS = 24
PATHS = 4
PATH_TOKENS = 6
CROWD = 12
FOREIGN_TOKENS = 40


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """granule: rows a call is padded to. moved: largest difference seen, nats a row. tolerance: `MARGIN` times that."""

    granule: int
    moved: float
    tolerance: float


def self_check(model: Model) -> SelfCheck:
    """Measure on an idle model, and set its row granule: about 400 rows.

    The granule is the smallest at which cutting a run into calls moves its rows no further than the place of their cells
    does (on f32 weights 24 rows take another kernel than 48 do: 4e-6; padding to 16 would cost rows and gain nothing).
    A forking model has none.
    """
    if model.limits.kind.forks:
        moved = max(_move(model, seed) for seed in range(2))
        return SelfCheck(1, moved, MARGIN * max(moved, LEAST_MOVE))
    for granule in GRANULES:
        model.trim(0)
        model.granule = granule
        moved = max(_move(model, seed) for seed in range(2))
        cut = _cut_move(model)
        if cut <= max(moved, LEAST_MOVE):
            break
    moved = max(moved, cut)
    return SelfCheck(granule, moved, MARGIN * max(moved, LEAST_MOVE))


def _cut_move(model: Model) -> float:
    """Largest difference between rows of one call of three granules and of three calls of one."""
    granule = model.granule
    tokens = _tokens(model, 3 * granule, seed=0)
    solo = model.solo(4 * granule)
    try:
        whole = _run(solo, tokens, 3 * granule)
        solo.trim(0)
        return float(np.abs(whole - _run(solo, tokens, granule)).max())
    finally:
        solo.close()


def _move(model: Model, seed: int) -> float:
    """Largest difference between rows evaluated alone and in a crowd."""
    tokens = _tokens(model, FOREIGN_TOKENS + PROMPT_TOKENS + (PATHS + CROWD) * PATH_TOKENS, seed)
    foreign, prompt, rest = np.split(tokens, [FOREIGN_TOKENS, FOREIGN_TOKENS + PROMPT_TOKENS])
    paths = list(rest.reshape(PATHS + CROWD, PATH_TOKENS))
    alone = _alone(model, prompt, paths[:PATHS])
    crowded = _crowded(model, foreign, prompt, paths)
    return float(np.abs(alone - crowded).max())


def _alone(model: Model, prompt: IntArray, paths: list[IntArray]) -> FloatArray:
    solo = model.solo(PROMPT_TOKENS + PATH_TOKENS)
    try:
        end = _chain(solo, 0, prompt)
        rows = []
        for path in paths:
            nodes, logp = _branch(solo, int(end[-1]), [path])
            rows.append(logp)
            solo.release(nodes, forget=True)
        return np.concatenate(rows)
    finally:
        solo.close()


def _crowded(model: Model, foreign: IntArray, prompt: IntArray, paths: list[IntArray]) -> FloatArray:
    """The rows of the first `PATHS` paths, with foreign cells before, between and after those of the prompt."""
    held: list[IntArray] = []
    parent = 0
    for piece, other in zip(np.array_split(prompt, 3), np.array_split(foreign, 3), strict=True):
        held.append(_chain(model, 0, other))
        nodes = _chain(model, parent, piece)
        held.append(nodes)
        parent = int(nodes[-1])
    crowd = _branch(model, parent, paths[PATHS:])[0]
    nodes, rows = _branch(model, parent, paths[:PATHS])
    for group in (nodes, crowd, *reversed(held)):
        model.release(group, forget=True)
    return rows


def _chain(model: Model, parent: int, tokens: IntArray) -> IntArray:
    """Evaluate a run below a node; its nodes."""
    n = len(tokens)
    parents = ~np.arange(-1, n - 1, dtype=np.int32)
    parents[0] = parent
    keep = np.zeros(n, dtype=bool)
    keep[-1] = True
    return model.extend(parents, tokens, np.zeros(n, dtype=bool), keep).nodes


def _branch(model: Model, parent: int, paths: list[IntArray]) -> tuple[IntArray, FloatArray]:
    """Evaluate paths below a node side by side in one call; their nodes and all log-probabilities of every row."""
    parents: list[int] = []
    for path in paths:
        parents += [parent, *(~i for i in range(len(parents), len(parents) + len(path) - 1))]
    at = np.array(parents, dtype=np.int32)
    tokens = np.concatenate(paths).astype(np.int32)
    extension = model.extend(at, tokens, np.ones(len(at), dtype=bool), np.zeros(len(at), dtype=bool))
    rows = extension.rows
    logp = [rows.logits(i).astype(np.float64) - rows.logsumexp(i) for i in range(len(rows))]
    return extension.nodes, np.stack(logp)


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
