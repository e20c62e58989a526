"""How far a figure over n items may be trusted: standard errors, intervals, paired tests, calibration. Plain numpy, no exp of logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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


def standard_error(values: FloatArray) -> float:
    """Of the mean of n values: sample standard deviation (n - 1) over √n, as lm-evaluation-harness has it; NaN below two, and of infinite ones."""
    n = len(values)
    with np.errstate(invalid="ignore"):
        return float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan


def wilson(n_right: float, n: int) -> Interval:
    """Of a proportion n_right / n (Wilson 1927, score interval without continuity correction); (0, 1) of nothing."""
    if n == 0:
        return Interval(0.0, 1.0)
    p, z2 = n_right / n, Z_95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def bootstrap(
    n: int, statistic: Callable[[np.ndarray], float], *, samples: int = BOOTSTRAP_SAMPLES, seed: int = BOOTSTRAP_SEED
) -> tuple[float, Interval]:
    """Standard error and percentile interval of a statistic of n items (Efron 1979): of `samples` draws of n with replacement.

    statistic: from int64[n], places of the drawn items, to a number. The same seed gives the same figures.
    """
    if n == 0:
        return math.nan, Interval(math.nan, math.nan)
    generator = np.random.default_rng(seed)
    with np.errstate(invalid="ignore"):  # a figure may be infinite; an interval of such is NaN
        values = np.array([statistic(generator.integers(0, n, size=n)) for _ in range(samples)])
        low, high = np.quantile(values, [0.025, 0.975])
        return float(values.std(ddof=1)), Interval(float(low), float(high))


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided exact p-value that two classifiers err alike, from the items that one alone has right (McNemar 1947): the
    binomial tail at 1/2, doubled. 1 where they never differ."""
    n = only_first + only_second
    if n == 0:
        return 1.0
    k = min(only_first, only_second)
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, float(2 * tail / 2**n))


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Items whose confidence lies in (low, high]. n: how many; confidence, accuracy: their means, NaN of none."""

    low: float
    high: float
    n: int
    confidence: float
    accuracy: float


def calibration_table(confidence: FloatArray, right: BoolArray, n_bins: int = 10) -> tuple[CalibrationBin, ...]:
    """Equal bins of confidence from 0 to 1 (Guo et al. 2017). confidence: float64[n], probability of what was chosen."""
    if n_bins < 1:
        raise OptionError("n_bins", n_bins, "at least 1")
    place = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    table = []
    for i in range(n_bins):
        here = place == i
        n = int(np.count_nonzero(here))
        means = (float(confidence[here].mean()), float(right[here].mean())) if n else (math.nan, math.nan)
        table.append(CalibrationBin(i / n_bins, (i + 1) / n_bins, n, *means))
    return tuple(table)


def expected_calibration_error(table: tuple[CalibrationBin, ...]) -> float:
    """Mean distance of accuracy from confidence over bins, weighted by their items; NaN of none."""
    n = sum(one.n for one in table)
    return sum(one.n * abs(one.accuracy - one.confidence) for one in table if one.n) / n if n else math.nan
