"""Rewrites keywords that a grammar lacks as schemas of the keywords that it has."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import combinations, permutations
from typing import Any

from selectrie.grammar.schema.keywords import is_count, key_of
from selectrie.grammar.schema.logic import KINDS, MAX_STEPS, InexpressibleError, Logic

MAX_SEQUENCES = 400
"""Maximum number of sequences of different items, which a grammar spells out."""
MAX_DEPENDING = 6
"""Maximum number of names that others depend on: each doubles the alternatives."""
MAX_CHOSEN = 128
"""Maximum number of choices of optional properties, which a grammar spells out."""


def rewrite_keyword(key: str, schema: dict[str, Any], logic: Logic) -> list[object]:
    """Return schemas that together mean the same as one keyword of a schema.

    Raises `InexpressibleError` if supported keywords cannot express it.
    """
    value = schema[key]
    if key == "not":
        return [logic.negate(value)]
    if key == "if":
        return _rewrite_if(schema, logic)
    if key == "propertyNames":
        return [_rewrite_property_names(value)]
    if key == "uniqueItems":
        return _rewrite_unique_items(schema, logic) if value is not False else []
    return _rewrite_dependencies(key, value, logic)


def _rewrite_if(schema: dict[str, Any], logic: Logic) -> list[object]:
    """Return schemas in place of `if`, `then` and `else`.

    If `if` holds, `then` must hold, and otherwise `else`.
    """
    condition, then, other = schema["if"], schema.get("then", True), schema.get("else", True)
    if then in (True, {}) and other in (True, {}):
        return []
    if logic.draft < 7:
        raise InexpressibleError(f"draft {logic.draft} does not have this keyword, but later drafts do")
    opposite = logic.negate(condition)
    return [{"anyOf": [{"allOf": [condition, then]}, {"allOf": [opposite, other]}]}]


def _rewrite_dependencies(key: str, value: object, logic: Logic) -> list[object]:
    """Return schemas in place of a keyword for properties that depend on another one.

    The presence of a property may require other properties, or a schema.
    """
    if not isinstance(value, dict):
        raise InexpressibleError("expected an object")
    if key != "dependencies" and logic.draft < 2019:
        raise InexpressibleError(f"draft {logic.draft} does not have this keyword, but later drafts do")
    parts: list[object] = []
    for name, required in value.items():
        if required in ([], True, {}):  # this requires nothing
            continue
        if isinstance(required, list) and key != "dependentSchemas":
            there: object = {"type": "object", "required": [*required, name]}
        elif isinstance(required, dict | bool) and key != "dependentRequired":
            there = {"type": "object", "required": [name], "allOf": [required]}
        else:
            raise InexpressibleError("expected lists of names or schemas")
        # Either the property is absent, or what it requires holds.
        parts.append({"anyOf": [{"properties": {name: False}}, there]})
    if len(parts) > MAX_DEPENDING:
        raise InexpressibleError(f"{len(parts)} names have dependencies; the maximum is {MAX_DEPENDING}")
    return parts


def _rewrite_property_names(value: object) -> object:
    """Return a schema in place of `propertyNames`."""
    if value in (True, {}):
        return True
    if value is False:
        return {"properties": {}, "additionalProperties": False}
    keys = value.keys() - {"type", "description", "title", "$comment"} if isinstance(value, dict) else set()
    if isinstance(value, dict) and value.get("type", "string") == "string":
        names = [value.get("const")] if keys == {"const"} else value.get("enum") if keys == {"enum"} else None
        if isinstance(names, list):
            named = {name: True for name in names if isinstance(name, str)}
            return {"properties": named, "additionalProperties": False}
        if not keys:
            return True
        if keys == {"pattern"}:
            return {"patternProperties": {value["pattern"]: True}, "additionalProperties": False}
        counts = [value.get("minLength", 0), value.get("maxLength", "")]
        if keys <= {"minLength", "maxLength"} and all(count == "" or is_count(count) for count in counts):
            pattern = "^[\\s\\S]{" + ",".join("" if count == "" else str(int(count)) for count in counts) + "}$"
            return {"patternProperties": {pattern: True}, "additionalProperties": False}
    raise InexpressibleError("a grammar can express only a pattern of names, a list of them, or their lengths")


def _rewrite_unique_items(schema: dict[str, Any], logic: Logic) -> list[object]:
    """Return schemas in place of `uniqueItems`, for items of a short list of values.

    Each schema is a sequence of distinct values.
    """
    min_items, max_items = schema.get("minItems", 0), schema.get("maxItems", MAX_SEQUENCES)
    if not is_count(min_items) or not is_count(max_items):
        raise InexpressibleError("minItems or maxItems is not a count")
    if max_items < 2:
        return []
    items = [] if "prefixItems" in schema else logic.parts(schema.get("items"), MAX_STEPS)
    listed = next((part["enum"] for part in items if isinstance(part.get("enum"), list)), None)
    if listed is None:
        raise InexpressibleError("a grammar can express only unique items of an enum")
    values = list({key_of(value): value for value in listed}.values())
    lengths = range(int(min_items), min(int(max_items), len(values)) + 1)
    if sum(math.perm(len(values), n) for n in lengths) > MAX_SEQUENCES:
        raise InexpressibleError(f"there are more than {MAX_SEQUENCES} sequences of {len(values)} values")
    sequences = [list(one) for n in lengths for one in permutations(values, n)]
    # The keyword says nothing about values that are not arrays.
    others = {"type": [kind for kind in sorted(KINDS) if kind != "array"]}
    return [{"anyOf": [{"enum": sequences}, others]} if sequences else others]


def count_alternatives(
    optional: Sequence[str], n_required: int, min_properties: int, max_properties: float, *, is_open: bool
) -> list[dict[str, Any]]:
    """Return alternatives that limit how many properties an object has.

    An empty list means that every object satisfies the counts. llguidance counts
    properties with other names if it knows which of `properties` are present, but
    counts a repeated name twice. It can therefore tell that there is one such property,
    or that there are no more than a limit, but not that there are two. Raises
    `InexpressibleError`.

    Args:
        optional: Names of `properties` that may be missing.
        n_required: Number of required properties.
        min_properties: Minimum number of properties.
        max_properties: Maximum number of properties.
        is_open: Whether there may be properties with other names.
    """
    n, beyond, room = len(optional), max(0, min_properties - n_required), max_properties - n_required
    if beyond > (1 if is_open else n):
        if is_open:
            raise InexpressibleError(
                f"{min_properties}: only one property that the schema does not name can be counted"
            )
        raise InexpressibleError(f"{min_properties}: only {n + n_required} properties are allowed")
    if beyond and beyond > room:
        raise InexpressibleError(f"at least {min_properties} and at most {max_properties} contradict each other")
    if not is_open and room >= n:
        room = math.inf
    if room == math.inf:
        sizes = [beyond] if beyond else []
    else:
        sizes = [*range(0 if is_open else beyond, int(max(0, min(n, room))) + 1)]
    if sum(math.comb(n, size) for size in sizes) > MAX_CHOSEN:
        raise InexpressibleError(f"{n} properties are optional, which makes more than {MAX_CHOSEN} choices of them")
    ways: list[dict[str, Any]] = []
    for chosen in (set(one) for size in sizes for one in combinations(optional, size)):
        way: dict[str, Any] = {"required": [name for name in optional if name in chosen]}
        if room != math.inf:
            way |= _forbid(optional, chosen) | {"maxProperties": int(max_properties)}
            way |= {"minProperties": min_properties} if len(chosen) < beyond else {}
        ways.append(way)
    if is_open and room == math.inf and beyond:
        ways.append({"minProperties": min_properties, **_forbid(optional, ())})
    return ways


def _forbid(names: Sequence[str], but: Collection[str]) -> dict[str, Any]:
    return {"properties": {name: False for name in names if name not in but}}
