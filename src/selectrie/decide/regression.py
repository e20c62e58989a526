"""Fits multinomial logistic regressions with a ridge penalty, by Newton's method."""

from __future__ import annotations

import numpy as np

from selectrie.core.types import FloatArray, IntArray
from selectrie.errors import InternalError

_MAX_STEPS = 200
_SIZES = tuple(2.0**-n for n in range(40))
"""Sizes of a step that are tried, as parts of Newton's step."""
_TOLERANCE = 1e-12
"""Largest slope of the objective at the result, for each row and unit of a feature."""


def fit_ridge(
    features: FloatArray,
    fixed: FloatArray,
    gold: IntArray,
    *,
    start: FloatArray,
    lowest: FloatArray,
    penalty: FloatArray,
) -> FloatArray:
    """Return the parameters that minimise the penalised log loss.

    The logit of option k in row n is `fixed[n, k] + features[n, k] @ parameters`. The
    objective is the sum over rows of the negative log-probability of the right option,
    plus half of d @ penalty @ d for the distance d of the parameters from `start`. It
    is strictly convex, so the minimum is unique. Steps are projected on the lower
    bounds (Bertsekas 1982). The slope at the result is at most 1e-12 for each row, in
    units of the largest feature. The distance from the minimum is at most the slope
    divided by the least eigenvalue of `penalty`.

    Args:
        features: float64[N, K, M].
        fixed: float64[N, K], the part of each logit without parameters.
        gold: int64[N], the index of the right option.
        start: float64[M], parameters without a penalty; at least `lowest`.
        lowest: float64[M], lower bounds of the parameters, maybe -inf.
        penalty: float64[M, M], positive definite.

    Returns:
        float64[M].
    """
    rows = np.arange(len(gold))
    scale = max(1.0, float(np.abs(features).max(initial=0.0))) * max(1, len(gold))
    right = features[rows, gold]

    def evaluate(parameters: FloatArray) -> tuple[float, FloatArray]:
        """Return the objective, and the probability of each option in each row."""
        logits = fixed + features @ parameters
        top = logits.max(axis=1, keepdims=True)
        log_sums = top[:, 0] + np.log(np.exp(logits - top).sum(axis=1))
        loss = float((log_sums - logits[rows, gold]).sum())
        distance = parameters - start
        return loss + float(distance @ penalty @ distance) / 2, np.exp(logits - log_sums[:, None])

    parameters = np.maximum(start, lowest)
    value, shares = evaluate(parameters)
    for _ in range(_MAX_STEPS):
        means = np.einsum("nk,nkm->nm", shares, features)
        slope = (means - right).sum(axis=0) + penalty @ (parameters - start)
        is_free = (parameters > lowest) | (slope < 0)
        if np.abs(slope[is_free]).max(initial=0.0) <= _TOLERANCE * scale:
            return parameters
        weighted = (features * np.sqrt(shares)[:, :, None]).reshape(-1, len(parameters))
        curvature = weighted.T @ weighted - means.T @ means
        free = (curvature + penalty)[np.ix_(is_free, is_free)]
        step = np.zeros_like(parameters)
        step[is_free] = np.linalg.solve(free, slope[is_free])
        moved, new_value, new_shares = parameters, value, shares
        for size in _SIZES:
            moved = np.maximum(parameters - size * step, lowest)
            new_value, new_shares = evaluate(moved)
            # Near the minimum, a full step may not lower the objective beyond rounding.
            if new_value <= value - 1e-4 * float(slope @ (parameters - moved)) + 1e-13 * scale:
                break
        parameters, value, shares = moved, new_value, new_shares
    raise InternalError(f"the regression did not converge on {len(gold)} rows")


def softmax(logits: FloatArray) -> FloatArray:
    """Return probabilities of logits, float64[…, K], with sum 1 over the last axis."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    total: FloatArray = shares / shares.sum(axis=-1, keepdims=True)
    return total
