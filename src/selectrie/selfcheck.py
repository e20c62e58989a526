"""How far a model's numbers move with the layout of the work: measured once, stated in every signature.

The same paths are evaluated twice on small empty models: right behind their prompt, and in a crowd: with a foreign
prompt before and between the prompt's cells, which come in several calls, and the paths in another order. The largest move
of the log-probability of a path's token, times `MARGIN`, is the tolerance a row.

Attention sums in cell order, so what moves is the last bit of a sum. On quantised weights it is amplified where a rounded
activation falls into the next bucket. With 10^5 activations a row that happens in every row; with 10^3 (a tiny model) in
one row of thousands, and then by 0.1 nats on q8_0. So small quantised models, whose rows cost nothing, are checked longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import numpy as np

from selectrie.errors import InternalError
from selectrie.model import Model, chain
from selectrie.types import ROOT, FloatArray, IntArray

MARGIN = 4.0
"""Tolerance over the largest move seen: the check sees few layouts."""

LEAST_MOVE = 5e-7
"""Nats: the rounding of float32 logits of size 8, below which no two sums are told apart."""

GRANULES = (8, 16, 32, 64)

CUT_ROWS = 96
PROMPT_TOKENS = 24
FOREIGN_TOKENS = 40
PATHS = 8
SHORT_PATH, LONG_PATH = 6, 48
FLOAT_ROUNDS = 2

LEAST_ROWS, MOST_ROWS = 80, 10_000
ROWS_TIMES_PARAMETERS = 10_000_000_000
"""Rows compared: on quantised models of up to a million weights `MOST_ROWS`, a tenth on one ten times as large; at least
`LEAST_ROWS`."""

LEAST_ROWS_FLOAT, MOST_ROWS_FLOAT = 112, 800
FLOAT_ROWS_TIMES_PARAMETERS = 350_000_000
"""At most so many rows where weights are not quantised: from a million weights on every row moves a little, and few rows
show by how much. Measured on f16 models of 0.26 to 12 million weights: `MARGIN` times the largest move of so many rows is
at least 1.5 times the largest of 4 000 to 16 000."""


VERSION = 1
"""Of the check; raised when it measures something else, so that checks kept by earlier versions do not count."""


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
    """Largest difference between rows of one large call and of calls of one and of three granules by turns.

    Large: `CUT_ROWS`, beyond where BLAS and GPU kernels switch (32 rows in ggml-blas and ggml-cuda), or what a call holds.
    """
    granule, most = model.granule, model.limits.rows_per_call
    n_rows = min(max(CUT_ROWS, 4 * granule), most) // granule * granule
    tokens = _tokens(model, n_rows, seed=0)
    solo = model.solo(n_rows)
    try:
        whole = _run(solo, tokens, (n_rows,))
        solo.trim(0)
        return float(np.abs(whole - _run(solo, tokens, (granule, min(3 * granule, most)))).max())
    finally:
        solo.close()


def _moved(model: Model) -> float:
    """Largest difference between rows of one layout and of another, over some rounds of random tokens."""
    n_rows = _n_rows(model)
    n_paths = max(1, min(PATHS, model.limits.branches - 4))
    length = LONG_PATH if n_rows > n_paths * LONG_PATH else SHORT_PATH
    if not model.identity.quantised:  # fewer prompts for the same rows: these are evaluated for the paths' sake
        length = min(max(SHORT_PATH, 1 - (-n_rows // (FLOAT_ROUNDS * n_paths))), LONG_PATH)
    length = min(length, max(2, model.limits.rows_per_call))
    n_rounds = -(-n_rows // (n_paths * (length - 1)))
    plain = model.solo(PROMPT_TOKENS + n_paths * length)
    try:
        crowd = model.solo(FOREIGN_TOKENS + PROMPT_TOKENS + n_paths * length)
        try:
            return max(_moved_in_round(plain, crowd, (n_paths, length), seed) for seed in range(n_rounds))
        finally:
            crowd.close()
    finally:
        plain.close()


def _n_rows(model: Model) -> int:
    """Rows to compare."""
    n_parameters = max(model.identity.n_parameters, 1)
    n_rows = max(ROWS_TIMES_PARAMETERS // n_parameters, LEAST_ROWS)
    if model.identity.quantised:
        return min(n_rows, MOST_ROWS)
    return min(n_rows, max(FLOAT_ROWS_TIMES_PARAMETERS // n_parameters, LEAST_ROWS_FLOAT), MOST_ROWS_FLOAT)


def _moved_in_round(plain: Model, crowd: Model, shape: tuple[int, int], seed: int) -> float:
    tokens = _tokens(plain, FOREIGN_TOKENS + PROMPT_TOKENS + shape[0] * shape[1], seed)
    foreign, prompt, rest = np.split(tokens, [FOREIGN_TOKENS, FOREIGN_TOKENS + PROMPT_TOKENS])
    paths = list(rest.reshape(shape))
    end = _chain(plain, ROOT, prompt)
    one = _branch(plain, end, paths)
    plain.release(_one(end), forget=True)
    plain.trim(0)
    other = _crowded(crowd, foreign, prompt, paths[::-1]).reshape(len(paths), -1)[::-1]
    return float(np.abs(one - other.ravel()).max())


def _crowded(model: Model, foreign: IntArray, prompt: IntArray, paths: list[IntArray]) -> FloatArray:
    """Log-probabilities of the paths with foreign cells before and between those of the prompt."""
    end, beside = ROOT, ROOT
    for piece, other in zip(np.array_split(prompt, 3), np.array_split(foreign, 3), strict=True):
        beside = _below(model, beside, other)
        end = _below(model, end, piece)
    rows = _branch(model, end, paths)
    for node in (end, beside):
        model.release(_one(node), forget=True)
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
        parents = chain(end, n)
        is_last = np.arange(n) == n - 1
        nodes = model.extend(parents, tokens[start : start + n], np.zeros(n, dtype=bool), is_last).nodes
        model.release(nodes[:-1])
        if end != parent:
            model.release(_one(end))
        end = int(nodes[-1])
    return end


def _one(node: int) -> IntArray:
    return np.array([node], dtype=np.int32)


def _branch(model: Model, parent: int, paths: list[IntArray]) -> FloatArray:
    """Log-probability of every token of some paths below a node but first ones, evaluated side by side in one call, or
    in as few as there may be, and dropped."""
    length = len(paths[0])
    most = max(1, model.limits.rows_per_call // length)
    if len(paths) > most:
        return np.concatenate([_branch(model, parent, paths[i : i + most]) for i in range(0, len(paths), most)])
    parents: list[int] = []
    for path in paths:
        parents += [parent, *(~i for i in range(len(parents), len(parents) + len(path) - 1))]
    at = np.array(parents, dtype=np.int32)
    tokens = np.concatenate(paths).astype(np.int32)
    is_inner = np.ones((len(paths), length), dtype=bool)
    is_inner[:, -1] = False
    extension = model.extend(at, tokens, is_inner.ravel(), np.zeros(len(at), dtype=bool))
    following = np.concatenate([path[1:] for path in paths])
    logp = extension.rows.logp(np.arange(len(following)), following)
    model.release(extension.nodes, forget=True)
    return logp


def _run(model: Model, tokens: IntArray, sizes: tuple[int, ...]) -> FloatArray:
    """Logits of a run evaluated in calls of these sizes, by turns."""
    parent, start, result, held = 0, 0, [], []
    for size in cycle(sizes):
        piece = tokens[start : start + size]
        n = len(piece)
        if not n:
            break
        parents = chain(parent, n)
        extension = model.extend(parents, piece, np.ones(n, dtype=bool), np.arange(n) == n - 1)
        held.append(extension.nodes)
        result += [extension.rows.logits(i).copy() for i in range(n)]
        parent, start = int(extension.nodes[-1]), start + n
    model.release(np.concatenate(held))
    return np.stack(result)


def _tokens(model: Model, n: int, seed: int) -> IntArray:
    """Ordinary tokens in a fixed pseudo-random order, none twice where the vocabulary is large enough."""
    plain = np.array([i for i, piece in enumerate(model.vocabulary.pieces) if piece], dtype=np.int32)
    return np.resize(np.random.default_rng(seed).permutation(plain), n)
