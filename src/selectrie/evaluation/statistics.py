"""Statistics of figures over n items, in plain numpy.

The module computes standard errors, intervals, paired tests and calibration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from selectrie.core.types import BoolArray, FloatArray
from selectrie.errors import OptionError

Z_95 = 1.959963984540054
"""97.5 % quantile of the normal distribution."""
BOOTSTRAP_SAMPLES = 1_000
BOOTSTRAP_SEED = 1234


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval."""

    low: float
    high: float


def finite_or_none(value: Any) -> Any:
    """Return a value ready for JSON, with None for numbers that are not finite.

    Lists and mappings are converted too.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite_or_none(one) for name, one in value.items()}
    return [finite_or_none(one) for one in value] if isinstance(value, tuple | list) else value


def standard_error(values: FloatArray) -> float:
    """Return the standard error of the mean of n values.

    It is the sample standard deviation (n - 1) over √n, as in lm-evaluation-harness.
    NaN for fewer than two values, or if any is infinite.
    """
    n = len(values)
    with np.errstate(invalid="ignore"):
        return float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan


def wilson(n_right: float, n: int) -> Interval:
    """Return the interval of a proportion n_right / n; (0, 1) if n is 0.

    It is the score interval without continuity correction (Wilson 1927), and holds the
    proportion whatever rounding does.
    """
    if n == 0:
        return Interval(0.0, 1.0)
    p, z2 = n_right / n, Z_95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return Interval(min(p, max(0.0, centre - half)), max(p, min(1.0, centre + half)))


def bootstrap(
    n: int, statistic: Callable[[np.ndarray], float], *, samples: int = BOOTSTRAP_SAMPLES, seed: int = BOOTSTRAP_SEED
) -> tuple[float, Interval]:
    """Return the standard error and percentile interval of a statistic of n items.

    They come from `samples` draws of n items with replacement (Efron 1979). The same
    seed gives the same figures.

    Args:
        statistic: Maps int64[n], indices of the drawn items, to a number.
    """
    if n == 0:
        return math.nan, Interval(math.nan, math.nan)
    generator = np.random.default_rng(seed)
    # A figure may be infinite; an interval of such figures is NaN.
    with np.errstate(invalid="ignore"):
        values = np.array([statistic(generator.integers(0, n, size=n)) for _ in range(samples)])
        low, high = np.quantile(values, [0.025, 0.975])
        return float(values.std(ddof=1)), Interval(float(low), float(high))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided exact p-value for equal error rates of two classifiers.

    It is computed from the numbers of items that only one of them gets right (McNemar
    1947), as the binomial tail at 1/2, doubled. It is 1 if both numbers are 0.
    """
    n = only_first + only_second
    if n == 0:
        return 1.0
    k = min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, float(2 * tail / 2**n))


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Items whose confidence lies in (low, high].

    Attributes:
        n: Number of items.
        confidence, accuracy: Their mean confidence and accuracy, NaN if there are none.
    """

    low: float
    high: float
    n: int
    confidence: float
    accuracy: float


def calibration_table(confidence: FloatArray, right: BoolArray, n_bins: int = 10) -> tuple[CalibrationBin, ...]:
    """Return calibration in bins of equal width from 0 to 1 (Guo et al. 2017).

    Args:
        confidence: float64[n], probability of each item's predicted choice.
        right: bool[n], whether that choice is right.
        n_bins: Number of bins.
    """
    if n_bins < 1:
        raise OptionError("n_bins", n_bins, "at least 1")
    bin_of = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    table = []
    for i in range(n_bins):
        is_inside = bin_of == i
        n = int(np.count_nonzero(is_inside))
        means = (float(confidence[is_inside].mean()), float(right[is_inside].mean())) if n else (math.nan, math.nan)
        table.append(CalibrationBin(i / n_bins, (i + 1) / n_bins, n, *means))
    return tuple(table)


def expected_calibration_error(table: tuple[CalibrationBin, ...]) -> float:
    """Return the mean distance between accuracy and confidence over bins.

    Bins are weighted by their items. NaN if there are none.
    """
    n = sum(one.n for one in table)
    return sum(one.n * abs(one.accuracy - one.confidence) for one in table if one.n) / n if n else math.nan
