"""Expresses bounds of numbers so that llguidance allows all numbers within them.

llguidance 1.9 describes the numbers between two bounds by their digits, and misses
some. These are the proper prefixes of an upper bound with a fraction (0.9 and 0.90
under 0.905), that bound with further zeros (0.950 under 0.95), and, if the bounds
include zero, every negative number that ends in a zero. Missed numbers are added by
further schemas.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

MIN_POSITIVE = 1e-12
"""The smallest number above 0 that bounds distinguish from 0.

The smallest double would take 324 digits.
"""
MAX_DECIMALS = 6
"""Decimal places up to which every spelling of a number inside the bounds is a text.

That includes spellings with zeros at the end.
"""


def ranged(low: float | None, high: float | None, max_decimals: int = MAX_DECIMALS) -> list[dict[str, Any]]:
    """Return schemas that together are the numbers from `low` to `high`, both included.

    All schemas are of type number. The first one is the range as llguidance reads it.
    Each number with at most `max_decimals` decimal places is allowed by one of them.
    Longer numbers are allowed only by the first one.
    """
    whole = {"type": "number", **_bounds(low, high)}
    pieces = [whole]
    if low is None or low < 0:
        min_magnitude = max(MIN_POSITIVE, 0 if high is None else -high)
        max_magnitude = None if low is None else -low
        if max_magnitude is None or max_magnitude >= min_magnitude:
            if high is None or high >= 0:
                pieces.append({"type": "number", **_bounds(low, -min_magnitude)})
            pieces += [_negated(piece) for piece in _lost(min_magnitude, max_magnitude, max_decimals)]
    if high is None or high >= 0:
        pieces += _lost(max(0, low or 0), high, max_decimals)
    return pieces


def _bounds(low: float | None, high: float | None) -> dict[str, Any]:
    return {key: value for key, value in (("minimum", low), ("maximum", high)) if value is not None}


def _lost(low: float, high: float | None, max_decimals: int) -> list[dict[str, Any]]:
    """Return schemas of the numbers that llguidance misses between two bounds.

    The bounds are not negative. There is at most one schema for each number n of
    decimal places. The largest number with n places is `high` cut to n places. The
    schema allows the multiples of the step 10^-n up to that number; its exclusive upper
    bound is one step higher. That bound has n places too, so llguidance also misses its
    prefixes, which the schemas of fewer places allow. A single number becomes the only
    multiple of five steps around it, or a constant: llguidance counts multiples in
    rounded doubles, and may find none.
    """
    if high is None:
        return []
    bound, minimum = Decimal(repr(high)), Decimal(repr(low))
    n_decimals = max(0, -int(bound.normalize().as_tuple().exponent))
    if not n_decimals and bound != minimum:
        return []
    pieces: list[dict[str, Any]] = []
    for n in range(1, max(n_decimals, max_decimals + 1)):
        step = Decimal(1).scaleb(-n)
        first = minimum.quantize(step, rounding=ROUND_CEILING)
        last = bound.quantize(step, rounding=ROUND_FLOOR)
        ends_in_zero = last == last.quantize(step.scaleb(1), rounding=ROUND_FLOOR)
        if last < first:
            continue
        if n <= max_decimals and first < last:
            piece = _multiples(first, last + step, step)
        elif ends_in_zero:
            piece = (
                _multiples(max(last - 4 * step, Decimal()), last + 4 * step, 5 * step) if n <= max_decimals else None
            )
        else:
            piece = {"type": "number", "enum": [float(last)]}
        if piece and pieces and _holds(piece, pieces[-1]):
            pieces[-1] = piece
        elif piece:
            pieces.append(piece)
    return pieces


def _multiples(low: Decimal, above: Decimal, step: Decimal) -> dict[str, Any] | None:
    """Return a schema of the multiples of a step from `low` to `above` (excluded).

    Returns None if a double does not represent one of these numbers exactly.
    """
    named = {"minimum": low, "exclusiveMaximum": above, "multipleOf": step}
    doubles = {key: float(value) for key, value in named.items()}
    if any(Decimal(repr(doubles[key])) != value for key, value in named.items()):
        return None
    return {"type": "number", **doubles}


def _holds(finer: dict[str, Any], coarser: dict[str, Any]) -> bool:
    """Return whether the schema `finer` allows all multiples that `coarser` allows.

    Both must have the same upper bound.
    """
    if "enum" in finer or "enum" in coarser or finer["exclusiveMaximum"] != coarser["exclusiveMaximum"]:
        return False
    steps = [Decimal(repr(piece["multipleOf"])) for piece in (coarser, finer)]
    return steps[0] % steps[1] == 0 and bool(finer["minimum"] <= coarser["minimum"])


def _negated(piece: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the numbers of a schema with the opposite sign."""
    if "enum" in piece:
        return {**piece, "enum": [-value for value in piece["enum"]]}
    return {
        "type": "number",
        "exclusiveMinimum": -piece["exclusiveMaximum"],
        "maximum": -piece["minimum"],
        "multipleOf": piece["multipleOf"],
    }
