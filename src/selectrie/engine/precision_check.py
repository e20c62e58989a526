"""Says how far a model's log-probabilities move with the layout of calls.

Attention sums in cell order, and kernels change with the number of rows, so the last
bits of a sum depend on what else is evaluated. Where products are computed on
activations rounded to 8 bits, as on quantised weights, a changed bit carries some of
them into the next bucket, and every row moves by as much as that rounding.

A row that gives its token the probability p moves by sigma * (1 - p): tokens that are
sure do not move. Sigma is assumed by the type of the weights (`assumed`), so that no
answer waits for it, and measured on a text later (`measure`). It decides which choices
are scored again, and no score.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Iterator
from functools import partial

import numpy as np

from selectrie.core.model import Model, chain
from selectrie.core.rows import Reads, Rows
from selectrie.core.types import ROOT, FloatArray, IntArray, Limits, ModelIdentity, SelfCheck
from selectrie.errors import ModelError, TextError

logger = logging.getLogger(__name__)

STANDARD_ERRORS = 4.0
"""Factor from the root mean square of the moves to the tolerance of a row.

In 2 072 trials on two models with Q4_K_M weights, pairs of layouts changed no winner
that was ahead by more. With a factor of 3, one was. It is no bound: of pairs of random
words behind 12 prompts (Gemma 3 270M), one in 10 000 moves further, up to 6 sigma.
"""

ASSUMED = {"f32": 1e-5, "f16": 0.0025, "quantised": 0.15}
"""Sigma in nats by type of the weights.

Measured on CPUs with real text: 0.12 (AVX-512) and 0.15 (AVX2) for Gemma 3 270M, 0.07
and 0.06 for Qwen2.5-Coder-0.5B, both Q4_K_M; 0.0025 for f16 weights. f32 weights move
by 1e-6 to 3e-5, whatever the text.
"""

CONFIDENCE = 1.645
"""Standard errors of sigma that are added to a measurement: 95 % are below."""

MIN_MOVE = 5e-7
"""Nats: the rounding of float32 logits of size 8; smaller moves are noise."""

MAX_MOVE = 100.0
"""Nats: no model with meaningful numbers moves further."""

LEAST_OF_ASSUMED = 0.5
"""Share of the assumed sigma below which no measurement goes.

Small quantised models move rarely, in one row of thousands, and then by 0.1 nats. So
few rows do not show it.
"""

BATCH_MULTIPLE = 8
"""Calls are padded to a multiple of this number of rows, if they may have as many.

With fewer rows, or with a remainder, kernels for single rows sum in another order.
"""
FIXED_SIZES = 0
"""`SelfCheck.batch_multiple` of a model whose batch sizes are fixed."""

TEXT = (
    "The old lighthouse keeper wrote a short report every evening. On Monday he noted "
    'three ships, a broken window and 12 letters from the mainland. "Nothing else '
    'happened," he added, because the storm that everyone expected had turned south '
    "before noon. His daughter read the page aloud, laughed, and asked him why he never "
    "mentioned the birds. He answered that birds are not ships."
)
"""What the moves are measured on: plain text, since random tokens are none."""

MAX_ROWS = 70
"""Maximum number of rows that are compared; each is evaluated twice."""
ROWS_PER_CALL = 32
"""Maximum number of rows in a call, so that requests do not wait long."""
FOREIGN_ROWS = 37
"""Rows of another sequence, beside which the text is evaluated the second time."""

VERSION = 4
"""Version of the check. Checks kept by earlier versions do not count."""


def assumed(identity: ModelIdentity, limits: Limits) -> SelfCheck:
    """Return the self-check of a model of which nothing was measured.

    A model without weights, as a fake is, has nothing to round.
    """
    return _check(ASSUMED[identity.weights] if identity.n_parameters else 0.0, limits, n_rows=0)


def _check(moved: float, limits: Limits, n_rows: int) -> SelfCheck:
    return SelfCheck(batch_multiple(limits), moved, STANDARD_ERRORS * max(moved, MIN_MOVE), n_rows)


def batch_multiple(limits: Limits) -> int:
    """Return the `SelfCheck.batch_multiple` of a model with these limits."""
    if limits.batch_sizes.is_fixed:
        return FIXED_SIZES
    return 1 if limits.kind.is_recurrent else min(BATCH_MULTIPLE, max(limits.rows_per_call, 1))


def is_plausible(check: SelfCheck, identity: ModelIdentity, limits: Limits) -> bool:
    """Return whether `measure` could have found this on a model with these limits.

    A stored check that is not plausible does not count.
    """
    if check.moved > MAX_MOVE or check.n_rows < 1:
        return False
    least = LEAST_OF_ASSUMED * assumed(identity, limits).moved
    return check.moved >= least and check == _check(check.moved, limits, check.n_rows)


def measure(model: Model) -> Iterator[SelfCheck | None]:
    """Measure how far rows of a text move; a step is a few calls on a small context.

    The text is evaluated alone, and again beside rows of another sequence in calls of
    other sizes.

    Yields:
        None after every step, and at last the self-check. If the model cannot tell it,
        as where logits are NaN or the text has no two tokens, that is what `assumed`
        returns.
    """
    identity, limits = model.identity, model.limits
    known = assumed(identity, limits)
    n_tokens = min(MAX_ROWS, limits.nodes - FOREIGN_ROWS) if identity.n_parameters else 0
    if n_tokens < 2:
        yield known
        return
    try:
        tokens = model.vocabulary.encode(TEXT.encode())[:n_tokens]
        if len(tokens) < 2:
            yield known
            return
        # Only large calls of a model with fixed batch sizes use its large programs.
        step = len(tokens) if limits.batch_sizes.is_fixed else ROWS_PER_CALL
        alone = yield from _evaluated(model, tokens, n_foreign=0, step=step)
        beside = yield from _evaluated(model, tokens, n_foreign=FOREIGN_ROWS, step=ROWS_PER_CALL // 2)
    except (ModelError, TextError) as error:
        logger.debug("the self-check could not be made: %s", error)
        yield known
        return
    moved = _sigma(alone, beside)
    if moved is None:
        yield known
        return
    moved *= 1.0 + CONFIDENCE / math.sqrt(2 * len(alone))  # the upper bound of a standard deviation
    yield _check(min(max(moved, LEAST_OF_ASSUMED * known.moved), MAX_MOVE), limits, len(alone))


def _sigma(alone: FloatArray, beside: FloatArray) -> float | None:
    """Return the sigma of log-probabilities in two layouts; None if it has none."""
    if not (np.isfinite(alone).all() and np.isfinite(beside).all()):
        return None
    total = float(((1.0 - np.exp(np.minimum(alone, 0.0))) ** 2).sum())
    return float(np.sqrt(((beside - alone) ** 2).sum() / total)) if total > 0 else 0.0


def _evaluated(model: Model, tokens: IntArray, *, n_foreign: int, step: int) -> Generator[None, None, FloatArray]:
    """Evaluate a run of tokens on a small context, `step` of them in each call.

    Args:
        n_foreign: Number of tokens of another run, of which some are evaluated before
            each call; none if the model holds one sequence.

    Returns the log-probability of each token but the first, float64[T-1].
    """
    solo = model.new_context(len(tokens) + n_foreign)
    try:
        max_rows = solo.limits.rows_per_call
        n_calls = -(-len(tokens) // min(step, max_rows))
        # A recurrent model needs a state for the end of a run before and after a call.
        n_needed = 3 if solo.limits.kind.is_recurrent else 2
        n_foreign = min(n_foreign, n_calls * max_rows) if solo.limits.sequences >= n_needed else 0
        foreign = np.array_split(np.resize(tokens[::-1], n_foreign), n_calls)
        other = end = ROOT
        result: list[FloatArray] = []
        for before, part, following in zip(
            foreign, np.array_split(tokens, n_calls), np.array_split(np.roll(tokens, -1), n_calls), strict=True
        ):
            if len(before):
                other, _ = _run(solo, other, before)
            end, rows = _run(solo, end, part)
            n = len(part)
            reads = partial(Reads, n, np.arange(n), following)
            result.append(rows.fetch(reads).logp(np.arange(n), following))
            yield None
        return np.concatenate(result)[:-1]
    finally:
        solo.close()


def _run(model: Model, parent: int, tokens: IntArray) -> tuple[int, Rows]:
    """Evaluate a run of tokens below a node in one call; return its end and its rows.

    The end is held instead of the node.
    """
    n = len(tokens)
    extension = model.extend(chain(parent, n), tokens, np.ones(n, dtype=np.bool_), np.arange(n) == n - 1)
    model.release(np.append(extension.nodes[:-1], [] if parent == ROOT else parent).astype(np.int32))
    return int(extension.nodes[-1]), extension.rows
