"""The notation of figures in reports: digits, signs, intervals, p-values."""

from __future__ import annotations

import math
from collections.abc import Mapping


def number(value: float | None, sign: str = "") -> str:
    """Return a number with four decimals, or with one decimal from 100 on.

    Args:
        sign: "+" to write the sign of positive numbers too.
    """
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:{sign}.4f}" if abs(value) < 100 else f"{value:{sign}.1f}"


def signed(value: float | None) -> str:
    """Return a number as text with its sign, + or -."""
    return number(value, "+")


def between(low: float | None, high: float | None) -> str:
    """Return an interval as text; "" if an end is missing."""
    if low is None or high is None or not math.isfinite(low + high):
        return ""
    return f"{number(low)} {'to' if low < 0 else '–'} {number(high)}"


def p_value(p: float | None) -> str:
    """Return a p-value with three digits."""
    return "" if p is None else f"{p:.3g}"


def signed_interval(interval: Mapping[str, float | None]) -> str:
    """Return the interval of a difference as text, given its JSON form."""
    return " to ".join(filter(None, map(signed, interval.values())))
