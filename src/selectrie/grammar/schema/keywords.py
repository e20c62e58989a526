"""Checks JSON Schema keywords for numbers and strings, and makes them exact."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Any, TypeGuard

from selectrie.errors import GrammarError
from selectrie.grammar.readers.model_schemas import UNSUPPORTED_FORMATS, format_pattern
from selectrie.grammar.schema.patterns import PatternError, RewrittenPattern, is_spelled, rewrite_pattern

MIN_POSITIVE = 1e-12
"""The smallest number above 0 that bounds distinguish from 0.

The smallest double would take 324 digits.
"""
RANGE_DECIMALS = 6
"""Decimal places up to which every spelling of a number inside the bounds is a text.

That includes spellings with zeros at the end.
"""


def range_schemas(low: float | None, high: float | None, max_decimals: int = RANGE_DECIMALS) -> list[dict[str, Any]]:
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
            pieces += [_negate(piece) for piece in _missed_numbers(min_magnitude, max_magnitude, max_decimals)]
    if high is None or high >= 0:
        pieces += _missed_numbers(max(0, low or 0), high, max_decimals)
    return pieces


def _bounds(low: float | None, high: float | None) -> dict[str, Any]:
    return {key: value for key, value in (("minimum", low), ("maximum", high)) if value is not None}


def _missed_numbers(low: float, high: float | None, max_decimals: int) -> list[dict[str, Any]]:
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
            piece = _multiples_between(first, last + step, step)
        elif ends_in_zero:
            piece = (
                _multiples_between(max(last - 4 * step, Decimal()), last + 4 * step, 5 * step)
                if n <= max_decimals
                else None
            )
        else:
            piece = {"type": "number", "enum": [float(last)]}
        if piece and pieces and _includes(piece, pieces[-1]):
            pieces[-1] = piece
        elif piece:
            pieces.append(piece)
    return pieces


def _multiples_between(low: Decimal, above: Decimal, step: Decimal) -> dict[str, Any] | None:
    """Return a schema of the multiples of a step from `low` to `above` (excluded).

    Returns None if a double does not represent one of these numbers exactly.
    """
    named = {"minimum": low, "exclusiveMaximum": above, "multipleOf": step}
    doubles = {key: float(value) for key, value in named.items()}
    if any(Decimal(repr(doubles[key])) != value for key, value in named.items()):
        return None
    return {"type": "number", **doubles}


def _includes(finer: dict[str, Any], coarser: dict[str, Any]) -> bool:
    """Return whether the multiples of `finer` include those of `coarser`.

    Both must have the same upper bound.
    """
    if "enum" in finer or "enum" in coarser or finer["exclusiveMaximum"] != coarser["exclusiveMaximum"]:
        return False
    steps = [Decimal(repr(piece["multipleOf"])) for piece in (coarser, finer)]
    return steps[0] % steps[1] == 0 and bool(finer["minimum"] <= coarser["minimum"])


def _negate(piece: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the numbers of a schema with the opposite sign."""
    if "enum" in piece:
        return {**piece, "enum": [-value for value in piece["enum"]]}
    return {
        "type": "number",
        "exclusiveMinimum": -piece["exclusiveMaximum"],
        "maximum": -piece["minimum"],
        "multipleOf": piece["multipleOf"],
    }


TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
APPLICATORS = ("const", "enum", "allOf", "anyOf", "oneOf", "$ref")
NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
TEXTUAL = ("minLength", "maxLength", "pattern", "format")
LISTED = ("items", "additionalItems", "prefixItems", "minItems", "maxItems")
NAMED = ("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties")
REWRITTEN = ("not", "if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "uniqueItems")
_UNSUPPORTED = ("contains", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef")
_FORMER = ("divisibleBy", "disallow", "extends")
REFUSED = (*_UNSUPPORTED, *_FORMER, "x-guidance")
"""Keywords that restrict texts but are not supported.

Any keyword that is in none of these groups has no effect in any draft.
"""
DECIDING = frozenset(("type", "then", "else", "minContains", "maxContains")).union(
    APPLICATORS, NUMERIC, TEXTUAL, LISTED, NAMED, REWRITTEN, _UNSUPPORTED, _FORMER
)
"""Keywords that refuse values in some draft."""
MAX_CHARACTERS = 20_000
"""Maximum of `minLength` and `maxLength`, which a grammar spells out."""
MAX_MULTIPLE = 100_000
"""Maximum of `multipleOf`.

llguidance has a state for each remainder, and takes minutes for millions.
"""
MAX_STEP_DECIMALS = 6
"""Maximum decimal places of `multipleOf`: llguidance multiplies digits in 32 bits."""
EXACT = 2**53
"""Largest whole number that a double represents exactly, with all smaller ones.

See RFC 8259, section 6.
"""
MAX_WHOLE = 2**63 - 1
"""The greatest integer of llguidance, which first converts a bound to a double."""
MAX_INWARD = 10**17
"""Largest bound whose allowed numbers are further from zero.

llguidance spells these numbers up to the next power of ten, which must be one of its
integers.
"""
DIGITS, MAX_DECIMALS = 15, 22
"""Digits and decimal places of fractions that become doubles with one rounding.

The digits are below 2**53, and the powers of ten are exact doubles (Clinger 1990).
"""
_BOUNDS = (("minimum", "exclusiveMinimum", math.inf), ("maximum", "exclusiveMaximum", -math.inf))


def keyword_error(pointer: str, keyword: str, reason: str) -> GrammarError:
    """Return the error about a keyword of the schema at a JSON pointer."""
    return GrammarError(f"{keyword} at {pointer}: {reason}", pointer=f"{pointer}/{keyword}")


def schema_error(pointer: str, reason: str) -> GrammarError:
    """Return the error about the schema at a JSON pointer as a whole."""
    return GrammarError(f"{pointer}: {reason}", pointer=pointer)


def clip_repr(value: object, max_length: int = 60) -> str:
    """Return a value's `repr` for a message, clipped to `max_length` characters."""
    text = repr(value)
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def types_of(schema: Mapping[str, Any], pointer: str) -> tuple[str, ...]:
    """Return the types that a schema allows by its `type`, or all types without one.

    "number" includes "integer".
    """
    value = schema.get("type", list(TYPES))
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name in TYPES for name in names):
        raise keyword_error(pointer, "type", f"{clip_repr(value)}; expected one or several of {', '.join(TYPES)}")
    return tuple(name for name in TYPES if name in names and not (name == "integer" and "number" in names))


def kind_of(value: object) -> str:
    """Return the JSON type of a value; whole numbers are "number"."""
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: object) -> TypeGuard[int | float]:
    """Return whether a JSON value is a whole number from 0 on."""
    return is_number(value) and value >= 0 and value == value // 1


def key_of(value: Any) -> Hashable:
    """Return a key that is equal for equal JSON values.

    1 and 1.0 are equal, 1 and true are not. The order of the keys of an object does not
    matter.
    """
    if isinstance(value, dict):
        return frozenset((name, key_of(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(map(key_of, value))
    return (bool, value) if isinstance(value, bool) else value  # Python's True equals 1


def count_of(schema: Mapping[str, Any], keyword: str, pointer: str, max_count: int) -> int | None:
    """Return a count of characters, items or properties, or None without the keyword.

    Args:
        schema: The schema.
        keyword: The keyword.
        pointer: JSON pointer of the schema.
        max_count: The largest count that a grammar spells out. A larger upper bound
            (`max…`) is reduced to it; a larger lower bound raises an error.
    """
    value = schema.get(keyword)
    if value is None and keyword not in schema:
        return None
    if not is_count(value):
        raise keyword_error(pointer, keyword, f"{clip_repr(value)}; expected a whole number of at least 0")
    if value > max_count and not keyword.startswith("max"):
        raise keyword_error(pointer, keyword, f"{clip_repr(value)} is more than a grammar can spell out ({max_count})")
    return int(min(value, max_count))


def normalize_numbers(
    schema: Mapping[str, Any],
    types: tuple[str, ...],
    pointer: str,
    *,
    draft: int,
    max_decimals: int,
    listed_only: list[GrammarError],
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return keywords that bound a schema's numbers exactly, and the schema's types.

    Multiples of a whole number become integers. An exclusive bound becomes the next
    whole number or double, so that no JSON parser rounds a number onto it. A bound with
    many digits is moved inwards to one of `DIGITS` digits. Bounds of integers do not
    change. Numbers within the bounds that llguidance would not allow are added again
    (see `range_schemas`).

    Args:
        schema: The schema.
        types: Its types.
        pointer: JSON pointer of the schema.
        draft: The draft of JSON Schema.
        max_decimals: Maximum decimal places of the numbers that are added again.
        listed_only: Receives errors about bounds that llguidance cannot represent.
    """
    copy: dict[str, Any] = {}
    steps: list[dict[str, Any]] = []
    if "multipleOf" in schema:
        steps, types = _multiples(schema, types, pointer)
        if len(steps) == 1:
            copy["multipleOf"] = steps.pop()["multipleOf"]
    for keyword, exclusive, outward in _BOUNDS:
        whole = "number" not in types
        bound = _tightest_bound(schema, (keyword, exclusive), pointer, draft=draft, inward=outward, whole=whole)
        if bound is not None:
            copy[keyword] = bound
        if bound is not None and not _is_exact(bound, outward, whole=whole):
            listed_only.append(_too_wide_error(pointer, exclusive if keyword not in schema else keyword, bound))
    low, high = copy.get("minimum"), copy.get("maximum")
    ways = [steps] if steps else []
    is_wide = max(abs(low or 0), abs(high or 0)) > MAX_INWARD  # only a list supports such bounds
    if "number" in types and not is_wide and not low == high is None and (low is None or high is None or low <= high):
        pieces = range_schemas(low, high, max_decimals)
        if len(pieces) > 1:
            copy = {key: value for key, value in copy.items() if key == "multipleOf"}
            ways.append(pieces)
    others = [{"type": name} for name in types if name != "number"]
    return copy | ({"allOf": [{"anyOf": [*way, *others]} for way in ways]} if ways else {}), types


def _multiples(
    schema: Mapping[str, Any], types: tuple[str, ...], pointer: str
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return schemas that together allow the multiples of `multipleOf`, and the types.

    Multiples of a whole number are integers. Multiples are those of the decimal as
    written: 0.07 is a multiple of 0.01, though not in doubles. llguidance does not
    accept a number with fewer decimal places than the step, so each number of decimal
    places has a separate step.
    """
    number = Decimal(repr(_number(schema, "multipleOf", pointer))).normalize()
    n_decimals = max(0, -int(number.as_tuple().exponent))
    coefficient = int(number.scaleb(n_decimals))
    if (
        number <= 0
        or n_decimals > MAX_STEP_DECIMALS
        or (n_decimals and "number" not in types and "integer" not in types)
    ):
        reason = f"expected a number above 0 with at most {MAX_STEP_DECIMALS} decimal places"
        raise keyword_error(pointer, "multipleOf", f"{clip_repr(schema['multipleOf'])}; {reason}")
    if coefficient > MAX_MULTIPLE:
        reason = f"{clip_repr(schema['multipleOf'])} is more than a grammar can spell out ({MAX_MULTIPLE})"
        raise keyword_error(pointer, "multipleOf", reason)
    if not n_decimals or "number" not in types:
        whole = math.lcm(coefficient, 10**n_decimals) // 10**n_decimals
        return [{"multipleOf": whole}], tuple("integer" if name == "number" else name for name in types)
    steps: dict[Decimal, None] = {}
    for n in range(n_decimals + 1):
        step = Decimal(math.lcm(coefficient, 10 ** (n_decimals - n))).scaleb(-n_decimals).normalize()
        if _decimal_in_llguidance(float(step)) != step:
            raise keyword_error(pointer, "multipleOf", f"{clip_repr(schema['multipleOf'])} is not exact in llguidance")
        steps[step] = None
    return [
        {
            "type": "integer" if step == int(step) else "number",
            "multipleOf": int(step) if step == int(step) else float(step),
        }
        for step in steps
    ], types


def _decimal_in_llguidance(number: float) -> Decimal:
    """Return the decimal number that llguidance computes from a double.

    It multiplies the double by ten until no fraction is left.
    """
    n_decimals = 0
    while number % 1 and n_decimals <= 2 * MAX_STEP_DECIMALS:
        number *= 10
        n_decimals += 1
    return Decimal(number).scaleb(-n_decimals).normalize()


def _tightest_bound(
    schema: Mapping[str, Any], keywords: tuple[str, str], pointer: str, *, draft: int, inward: float, whole: bool
) -> int | float | None:
    """Return the tighter of the inclusive and the exclusive bound, as an inclusive one.

    Args:
        schema: The schema.
        keywords: The inclusive and the exclusive keyword.
        pointer: JSON pointer of the schema.
        draft: The draft of JSON Schema.
        inward: The infinity on the allowed side.
        whole: Whether only integers are allowed.
    """
    keyword, exclusive = keywords
    sign = 1 if inward > 0 else -1
    bounds: list[int | float] = []
    excluded = schema.get(exclusive)
    if keyword in schema and not (draft == 4 and excluded is True):
        bounds.append(_number(schema, keyword, pointer))
    if draft == 4 and excluded is not None:
        if not isinstance(excluded, bool) or (excluded and keyword not in schema):
            raise keyword_error(
                pointer, exclusive, f"{clip_repr(excluded)}; in draft 4 this must be a bool next to {keyword}"
            )
        limits = [_number(schema, keyword, pointer)] if excluded else []
    else:
        limits = [_number(schema, exclusive, pointer)] if exclusive in schema else []
    for limit in limits:
        if whole:
            bounds.append(math.floor(limit) + 1 if sign > 0 else math.ceil(limit) - 1)
        elif abs(limit) > EXACT:
            raise _too_wide_error(
                pointer, exclusive, limit
            )  # the next double is further away than the next whole number
        else:
            bounds.append(sign * MIN_POSITIVE if limit == 0 else math.nextafter(float(limit), inward))
    if not bounds:
        return None
    bound = max(bounds) if sign > 0 else min(bounds)
    if whole:
        return math.ceil(bound) if sign > 0 else math.floor(bound)
    if abs(bound) > EXACT:
        return int(bound)  # doubles have no fraction there; `_is_exact` checks the digits
    return bound if isinstance(bound, int) else _shorten(bound, ROUND_CEILING if sign > 0 else ROUND_FLOOR)


def _is_exact(bound: float, inward: float, *, whole: bool) -> bool:
    """Return whether llguidance represents a bound exactly.

    It converts the bound to a double, and spells the digits of that.
    """
    if abs(bound) <= EXACT or (whole and bound == MAX_WHOLE and inward < 0):
        return True
    max_magnitude = MAX_INWARD if (bound > 0) == (inward > 0) or not whole else MAX_WHOLE
    return abs(bound) <= max_magnitude and float(bound) == bound and (whole or _n_digits(bound) <= DIGITS)


def _n_digits(number: float) -> int:
    return len(Decimal(repr(number)).normalize().as_tuple().digits)


def _too_wide_error(pointer: str, keyword: str, bound: float) -> GrammarError:
    """Return the error for a bound beyond 2**53."""
    reason = f"{clip_repr(bound)} is beyond 2**53, where bounds are not exact; use at most 2**53, or no bound"
    return keyword_error(pointer, keyword, reason)


def _shorten(number: float, rounding: str) -> int | float:
    """Return the nearest number with few digits, on the side that `rounding` gives.

    It has at most `DIGITS` digits and `MAX_DECIMALS` decimal places, or is the nearest
    whole number if that many digits cannot hold all of its digits.
    """
    exact = Decimal(repr(number))
    exponent = min(0, max(exact.adjusted() + 1 - DIGITS, -MAX_DECIMALS))
    short = exact if is_short(number) else exact.quantize(Decimal(1).scaleb(exponent), rounding=rounding)
    return int(short) if short == int(short) else float(short)


def is_short(number: float) -> bool:
    """Return whether all JSON parsers read a number's spelling as the same double.

    llguidance's conversion is slightly wrong from the 16th digit on.
    """
    digits = Decimal(repr(number)).normalize().as_tuple()
    return len(digits.digits) <= DIGITS and -MAX_DECIMALS <= int(digits.exponent) <= 0


def _number(schema: Mapping[str, Any], keyword: str, pointer: str) -> int | float:
    """Return the number under a keyword, as an int if it is whole."""
    value = schema[keyword]
    if not is_number(value) or not -math.inf < value < math.inf:
        raise keyword_error(pointer, keyword, f"{clip_repr(value)}; expected a number")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def normalize_strings(schema: Mapping[str, Any], pointer: str, notes: list[str]) -> dict[str, Any]:
    """Return keywords for the lengths and patterns of a schema's strings.

    A format becomes its pattern, and a second pattern goes into `allOf`. An unknown
    format has no effect and is added to `notes`.
    """
    copy: dict[str, Any] = {}
    for keyword in ("minLength", "maxLength"):
        count = count_of(schema, keyword, pointer, MAX_CHARACTERS)
        if count is not None:
            copy[keyword] = count
    patterns = []
    if "pattern" in schema:
        patterns.append(pattern_of(schema["pattern"], "pattern", pointer).pattern)
    if "format" in schema:
        name = schema["format"]
        if not isinstance(name, str) or name in UNSUPPORTED_FORMATS:
            raise keyword_error(pointer, "format", f"{clip_repr(name)} is not supported; remove it, or give a pattern")
        pattern = format_pattern(name)
        if pattern is None:
            notes.append(f"format at {pointer}: {clip_repr(name)} is unknown and has no effect")
        else:
            patterns.append(_rewrite_format(pattern))
    if patterns:
        copy["pattern"] = patterns[0]
    if len(patterns) > 1:
        copy["allOf"] = [{"pattern": patterns[1]}]
    return copy


@lru_cache(maxsize=64)
def _rewrite_format(pattern: str) -> str:
    """Return the pattern of a format, rewritten to mean the same everywhere."""
    return rewrite_pattern(pattern).pattern


def pattern_of(pattern: object, keyword: str, pointer: str) -> RewrittenPattern:
    """Return a schema's regular expression, rewritten to mean the same everywhere.

    ECMA-262, Python and this library read many patterns differently (see
    `RewrittenPattern`). Raises `GrammarError`, about `keyword` of the schema at
    `pointer`, if no pattern means the same in all of them.
    """
    if not isinstance(pattern, str):
        raise keyword_error(pointer, keyword, f"{clip_repr(pattern)}; expected a regular expression")
    try:
        return rewrite_pattern(pattern)
    except PatternError as error:
        raise keyword_error(pointer, keyword, f"{error}, in {clip_repr(pattern)}") from error


def check_constant(value: object, keyword: str, pointer: str, listed_only: list[GrammarError]) -> object:
    """Return the value if a grammar can spell it exactly, else raise an error.

    Errors are raised for numbers that JSON parsers round, strings that a grammar cannot
    contain, and values that are not JSON. The error about a whole number that only a
    list of values spells exactly is added to `listed_only`.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict) and all(isinstance(key, str) for key in one):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str):
            _check_text(one, keyword, pointer)
        elif is_number(one):
            _check_number(one, keyword, pointer, listed_only)
        elif one is not None and not isinstance(one, bool):
            raise keyword_error(pointer, keyword, f"{clip_repr(one)} is not a JSON value")
    return value


def _check_text(text: str, keyword: str, pointer: str) -> None:
    """Raise an error for a string that a grammar cannot contain."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise keyword_error(pointer, keyword, f"{clip_repr(text)} contains a lone surrogate, which is not text")
    if not is_spelled(text):
        raise keyword_error(
            pointer, keyword, f"{clip_repr(text)} contains U+007F or a character that JSON writes as a number"
        )


def _check_number(number: float, keyword: str, pointer: str, listed_only: list[GrammarError]) -> None:
    """Raise an error for a number that JSON parsers round.

    The error about a large whole number is added to `listed_only` instead.
    """
    if abs(number) > EXACT or math.isnan(number):
        error = keyword_error(
            pointer, keyword, f"{clip_repr(number)} is beyond 2**53, so readers round it; write it as a string"
        )
        if not isinstance(number, int):
            raise error
        listed_only.append(error)
    elif not float(number).is_integer() and not is_short(number):
        raise keyword_error(pointer, keyword, f"{clip_repr(number)} has more than {DIGITS} digits, so readers round it")
