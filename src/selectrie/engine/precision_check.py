"""Measures how far a model's log-probabilities change with the layout of calls.

The result is part of every signature. The same paths are evaluated on a small empty
model in the layouts of selection, healing, pages, generation and evaluation
(`row_layouts`), and as llama.cpp does it by itself. The move of a row is the difference
between the largest and the smallest log-probability that the layouts give to the path's
next token. The largest move, times `MARGIN` or `MARGIN_RARE`, is the tolerance per row.
It is a measured bound: a row that was not compared may move further.

Attention sums in cell order, and kernels change with the number of rows, so the last
bit of a sum changes. Where products are computed on rounded activations, the change is
amplified whenever a bit carries an activation into the next bucket. With 10^5
activations per row that happens in every row. With 10^3 (a tiny model) it happens in
one row of thousands, and then by 0.1 nats on q8_0. Rows of small models cost nothing,
so these are checked longest.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle

import numpy as np

from selectrie.core.model import Model, chain
from selectrie.core.reads import Reads
from selectrie.core.types import ROOT, FloatArray, IntArray, Limits, SelfCheck
from selectrie.engine.row_layouts import Layout, Passage, alone, beside, drawn, drawn_alone, reopened, unit, unpadded
from selectrie.errors import NonFiniteLogitsError, UnsupportedModelError

MARGIN, MARGIN_RARE = 4.0, 8.0
"""Factors from the largest move seen to the tolerance, since the check sees few rows.

The second is used if moves near the largest are rare and fewer than `MAX_ROWS` rows
were compared. Where every row moves (embedded model), 500 rows show 0.8 of what 8 000
show. With random f16 weights (starcoder, falcon, gpt-2), nine rows in ten move by 6e-8
nats, one in a thousand by 3e-4, and the largest of 8 000 by 8e-4: three to eight times
the largest of 500 rows.
"""

RARE_SHARE, RARE_BELOW = 0.1, 0.1
"""Share of rows, and share of the largest move, that define rare large moves.

Moves near the largest are rare if at most the first share of rows moves by more than
the second share of the largest move.
"""

MIN_MOVE = 5e-7
"""Nats: the rounding of float32 logits of size 8; smaller moves are noise."""

MAX_MOVE = 100.0
"""Nats: no model with meaningful numbers moves further.

Coupled sequences that answer wrongly are 7 nats off.
"""

BATCH_MULTIPLES = (8, 16, 32, 64)
"""Batch multiples that are tried, as far as a call has as many rows.

If a call has fewer rows than the smallest, all of them are the multiple.
"""
FIXED_SIZES = 0
"""`SelfCheck.batch_multiple` of a model whose batch sizes are fixed."""

CUT_ROWS = 96
PROMPT_TOKENS = 24
FOREIGN_TOKENS = 40
PATHS = 8
SHORT_PATH, LONG_PATH = 6, 48
MIN_ROUNDS = 2
"""Minimum number of rounds, each of which tries half of the layouts."""

MIN_STATES = 3
"""States that a recurrent-state model needs at once.

They are those after a prompt, after a token that continues it, and after the next one.
"""

MIN_ROWS, MAX_ROWS = 80, 10_000
ROWS_TIMES_PARAMETERS = 10_000_000_000
"""Product of rows compared and parameters, for quantised models.

Models of up to a million weights compare `MAX_ROWS`, one ten times as large a tenth,
and every model at least `MIN_ROWS`.
"""

MIN_ROWS_FLOAT, MAX_ROWS_FLOAT = 160, 2_000
FLOAT_ROWS_TIMES_PARAMETERS = 2_000_000_000
"""Product of rows compared and parameters that limits models that are not quantised.

With f32 weights every row moves a little, and few rows show by how much. f16 weights
round activations, so on tiny models one row in a hundred moves. A row takes 1 to 2 ms:
565 rows of the embedded model stay below a second.
"""

_ATTEMPTS = 3
"""Number of times that tokens which give NaN are looked for and left out."""

VERSION = 3
"""Version of the check, raised when it measures something else.

Checks kept by earlier versions then do not count.
"""


class _Tokens:
    """Draws tokens, and remembers which.

    Attributes:
        usable: int32[n], the tokens that may be drawn.
    """

    def __init__(self, usable: IntArray) -> None:
        self.usable = usable
        self._drawn: set[int] = set()

    @classmethod
    def of(cls, model: Model) -> _Tokens:
        """Return the tokens of a model that have bytes."""
        return cls(np.array([i for i, piece in enumerate(model.vocabulary.pieces) if piece], dtype=np.int32))

    @property
    def drawn(self) -> IntArray:
        """Return the tokens drawn so far, each once."""
        return np.array(sorted(self._drawn), dtype=np.int32)

    def draw(self, n: int, seed: int) -> IntArray:
        """Return n tokens, in a pseudo-random order that `seed` fixes.

        No token comes twice if there are enough.
        """
        rng = np.random.default_rng(seed)
        n_times = -(-n // len(self.usable))
        tokens = np.concatenate([rng.permutation(self.usable) for _ in range(n_times)])[:n]
        self._drawn.update(tokens.tolist())
        return tokens

    def without(self, tokens: IntArray) -> _Tokens:
        """Return these tokens but for some."""
        return _Tokens(self.usable[~np.isin(self.usable, tokens)])


def self_check(model: Model) -> SelfCheck:
    """Return the self-check of an idle model, and set the model's `batch_multiple`.

    The batch multiple is the smallest at which dividing a run into calls moves its rows
    no further than the position of their cells does. (On f32 weights 24 rows take
    another kernel than 48 do, which moves them by 4e-6; padding to 16 would cost rows
    and gain nothing.) A recurrent-state model has no multiple and is not changed. For a
    model whose batch sizes are fixed, no multiple is looked for, and the check says
    `FIXED_SIZES`.

    One row a call and one sequence are enough, or three states. With one sequence, no
    cells of another request lie among those of the paths.

    Tokens for which the model computes NaN, as where their embeddings are damaged, are
    left out.

    Raises:
        UnsupportedModelError: If a recurrent-state model has fewer than three states,
            or if a token has probability 0 in one layout only.
        NonFiniteLogitsError: If NaN does not come from single tokens.
    """
    tokens = _Tokens.of(model)
    for _ in range(_ATTEMPTS):
        try:
            return _checked(model, tokens)
        except NonFiniteLogitsError:  # noqa: PERF203 - hardly ever
            model.trim(0)
            left = tokens.without(_not_finite(model, tokens.drawn))
            if len(left.usable) in {0, len(tokens.usable)}:
                raise
            tokens = left
    return _checked(model, tokens)


def _checked(model: Model, tokens: _Tokens) -> SelfCheck:
    """Return the self-check made with these tokens."""
    cut = 0.0
    limits = model.limits
    for batch_multiple in _batch_multiples(limits):
        model.trim(0)
        model.set_batch_multiple(batch_multiple)
        cut = _cut_moved(model, tokens)
        if cut <= MIN_MOVE or cut <= _moved_by_cells(model, tokens):
            break
    moves = _moved(model, tokens)
    moved = max(float(moves.max()), cut)
    return SelfCheck(_batch_multiple(model.limits), moved, _margin(moves) * max(moved, MIN_MOVE), len(moves))


def is_plausible(check: SelfCheck, limits: Limits) -> bool:
    """Return whether `self_check` could have found this on a model with these limits.

    A stored check that is not plausible is made again.
    """
    if limits.batch_sizes.is_fixed:
        batch_multiples: tuple[int, ...] = (FIXED_SIZES,)
    else:
        batch_multiples = _batch_multiples(limits) or (1,)
    fits = check.batch_multiple in batch_multiples
    is_finite = 0 <= check.moved <= MAX_MOVE and check.n_rows >= 1
    base = max(check.moved, MIN_MOVE)
    return fits and is_finite and check.tolerance in (MARGIN * base, MARGIN_RARE * base)


def _batch_multiples(limits: Limits) -> tuple[int, ...]:
    """Return the batch multiples to try on a model with these limits, smallest first.

    Empty if the model has no multiple, or if its batch sizes are fixed.
    """
    if limits.kind.is_recurrent or limits.batch_sizes.is_fixed:
        return ()
    max_rows = max(limits.rows_per_call, 1)
    return tuple(value for value in BATCH_MULTIPLES if value <= max_rows) or (max_rows,)


def _batch_multiple(limits: Limits) -> int:
    """Return the `SelfCheck.batch_multiple` of a check made with these limits."""
    if limits.batch_sizes.is_fixed:
        return FIXED_SIZES
    return 1 if limits.kind.is_recurrent else limits.batch_sizes.multiple


def _margin(moves: FloatArray) -> float:
    """Return the factor that turns the largest move into the tolerance."""
    near = moves > max(RARE_BELOW * float(moves.max()), MIN_MOVE)
    is_rare = near.any() and near.mean() <= RARE_SHARE and len(moves) < MAX_ROWS
    return MARGIN_RARE if is_rare else MARGIN


def _cut_moved(model: Model, source: _Tokens) -> float:
    """Return the largest difference of logits between one large call and small calls.

    The small calls alternate between one and three batch multiples of rows. The large
    call has `CUT_ROWS` rows, beyond where BLAS and GPU kernels switch (32 rows in
    ggml-blas and ggml-cuda), or as many as a call holds.
    """
    batch_multiple, max_rows = model.limits.batch_sizes.multiple, model.limits.rows_per_call
    n_rows = min(max(CUT_ROWS, 4 * batch_multiple), max_rows) // batch_multiple * batch_multiple
    tokens = source.draw(n_rows, seed=0)
    solo = model.new_context(n_rows)
    try:
        whole = _run(solo, tokens, (n_rows,))
        solo.trim(0)
        parts = _run(solo, tokens, (batch_multiple, min(3 * batch_multiple, max_rows)))
        return float(_distance(model, np.maximum(whole, parts), np.minimum(whole, parts)).max())
    finally:
        solo.close()


def _moved_by_cells(model: Model, tokens: _Tokens) -> float:
    """Return the largest move between layouts that differ in cells and row order."""
    return max(
        float(_moves(model, _passage(model, tokens, seed), (beside, reopened)).max()) for seed in range(MIN_ROUNDS)
    )


def _moved(model: Model, tokens: _Tokens) -> FloatArray:
    """Return how far each row of random tokens moves between layouts, float64[rows]."""
    n, length = _shape(model)
    n_rounds = max(MIN_ROUNDS, -(-_n_rows(model) // (n * (length - 1))))
    return np.concatenate(
        [_moves(model, _passage(model, tokens, seed), _layouts(model, seed)).ravel() for seed in range(n_rounds)]
    )


def _layouts(model: Model, seed: int) -> tuple[Layout, ...]:
    """Return the layouts that the round with this seed compares.

    A recurrent-state model is not padded, so the layouts need no unpadded forms.
    Kernels change with the number of sequences, so rounds draw `PATHS`, a half and a
    quarter of them at a time. If batch sizes are fixed, no layout goes without padding.
    """
    if seed % 2 == 0:
        return beside, reopened, alone, drawn_alone
    plain = () if model.limits.batch_sizes.multiple == 1 else (unpadded(alone), unpadded(drawn_alone))
    width = max(2, PATHS >> seed // 2 % 3)
    return (beside, unit, lambda solo, passage: drawn(solo, passage, width), *plain)


def _moves(model: Model, passage: Passage, layouts: tuple[Layout, ...]) -> FloatArray:
    """Return the move of each row of the passage between the layouts, float64[N, L-1].

    It is the difference between the largest and the smallest log-probability of the
    token.
    """
    solo = model.new_context(passage.n_nodes, 2 * len(passage.paths) + 4)
    try:
        n_states = solo.limits.sequences
        if solo.limits.kind.is_recurrent and n_states < MIN_STATES:
            reason = f"the self-check holds {MIN_STATES} states at once, and limits.sequences is {n_states}"
            raise UnsupportedModelError(model.identity.name, reason)
        values = np.stack([layout(solo, passage) for layout in layouts])
    finally:
        solo.close()
    return _distance(model, np.nanmax(values, axis=0), np.nanmin(values, axis=0))


def _distance(model: Model, high: FloatArray, low: FloatArray) -> FloatArray:
    """Return how far values lie apart; tokens of probability 0 in both are no distance.

    `high` and `low` have one shape, which is that of the result.

    Raises:
        UnsupportedModelError: If a token has probability 0 in one of them only.
    """
    is_possible = low > -np.inf
    if (high[~is_possible] > -np.inf).any():
        reason = "the self-check found a token with probability 0 in one layout of calls and not in another"
        raise UnsupportedModelError(model.identity.name, reason)
    result = np.zeros(high.shape)
    np.subtract(high, low, out=result, where=is_possible, dtype=np.float64)
    return result


def _passage(model: Model, source: _Tokens, seed: int) -> Passage:
    n, length = _shape(model)
    n_foreign = FOREIGN_TOKENS if model.limits.sequences > 1 else 0
    tokens = source.draw(n_foreign + PROMPT_TOKENS + n * length, seed)
    foreign, prompt, rest = np.split(tokens, [n_foreign, n_foreign + PROMPT_TOKENS])
    return Passage(foreign, prompt, rest.reshape(n, length))


def _shape(model: Model) -> tuple[int, int]:
    """Return the number of paths of a round, and the number of tokens of each.

    Both are at least what a move can be measured on: one path of two tokens.
    """
    n_rows, limits = _n_rows(model), model.limits
    branches = limits.sequences // 2 if limits.kind.is_recurrent else limits.sequences
    n = max(1, min(PATHS, branches - 4))
    length = LONG_PATH if n_rows > n * LONG_PATH else SHORT_PATH
    if not model.identity.quantised:  # fewer prompts for the same rows, since only the paths' rows count
        length = min(max(SHORT_PATH, 1 - (-n_rows // (MIN_ROUNDS * n))), LONG_PATH)
    return n, min(length, max(2, limits.rows_per_call))


def _n_rows(model: Model) -> int:
    """Return the number of rows that the check compares.

    A model without weights, as a fake is, has few sums that could be rounded.
    """
    n_parameters = model.identity.n_parameters
    if not n_parameters:
        return MIN_ROWS_FLOAT
    n_rows = max(ROWS_TIMES_PARAMETERS // n_parameters, MIN_ROWS)
    if model.identity.quantised:
        return min(n_rows, MAX_ROWS)
    return min(n_rows, max(FLOAT_ROWS_TIMES_PARAMETERS // n_parameters, MIN_ROWS_FLOAT), MAX_ROWS_FLOAT)


def _run(model: Model, tokens: IntArray, sizes: tuple[int, ...]) -> FloatArray:
    """Return the logits of a run, evaluated in calls of alternating `sizes`."""
    parent, start, result, held = 0, 0, [], []
    for size in cycle(sizes):
        piece = tokens[start : start + size]
        n = len(piece)
        if not n:
            break
        parents = chain(parent, n)
        extension = model.extend(parents, piece, np.ones(n, dtype=bool), np.arange(n) == n - 1)
        held.append(extension.nodes)
        rows = extension.rows.fetch(partial(Reads.everything, n))
        result += [rows.logits(i).copy() for i in range(n)]
        parent, start = int(extension.nodes[-1]), start + n
    model.release(np.concatenate(held))
    return np.stack(result)


def _not_finite(model: Model, tokens: IntArray) -> IntArray:
    """Return which of these tokens give NaN when they stand alone."""
    solo = model.new_context(model.limits.rows_per_call)
    try:
        step = min(solo.limits.rows_per_call, solo.limits.sequences)
        bad: list[int] = []
        for start in range(0, len(tokens), step):
            part = tokens[start : start + step]
            every = np.ones(len(part), dtype=np.bool_)
            extension = solo.extend(np.full(len(part), ROOT, dtype=np.int32), part, every, ~every)
            rows = extension.rows.fetch(partial(Reads.everything, len(part)))
            bad += [int(token) for i, token in enumerate(part) if not np.isfinite(rows.logits(i).max())]
            solo.release(extension.nodes, forget=True)
        return np.array(bad, dtype=np.int32)
    finally:
        solo.close()
