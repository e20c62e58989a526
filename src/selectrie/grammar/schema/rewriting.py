"""Keywords that say what others can say, rewritten into those."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

from selectrie.grammar.schema.logic import KINDS, MOST_STEPS, InexpressibleError, Logic, spelled

REWRITTEN = ("not", "if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "uniqueItems")
MOST_SEQUENCES = 400
"""Sequences of different items: a grammar spells them out."""
MOST_DEPENDING = 6
"""Names that others depend on: each of them doubles the ways."""


def rewritten(key: str, schema: dict[str, Any], logic: Logic) -> list[object]:
    """Schemas that together say what one keyword of a schema says. Raises `InexpressibleError`."""
    value = schema[key]
    if key == "not":
        return [logic.opposite(value)]
    if key == "if":
        return _conditional(schema, logic)
    if key == "propertyNames":
        return [_named(value)]
    if key == "uniqueItems":
        return _different(schema, logic) if value is not False else []
    return _depending(key, value, logic)


def _conditional(schema: dict[str, Any], logic: Logic) -> list[object]:
    """`if`: where it holds `then` must, and where it does not `else`."""
    condition, then, other = schema["if"], schema.get("then", True), schema.get("else", True)
    if then in (True, {}) and other in (True, {}):
        return []
    if logic.draft < 7:
        raise InexpressibleError(f"no keyword of draft {logic.draft}, and of later ones")
    opposite = logic.opposite(condition)
    return [{"anyOf": [{"allOf": [condition, then]}, {"allOf": [opposite, other]}]}]


def _depending(key: str, value: object, logic: Logic) -> list[object]:
    """What must hold where a property is there: that other ones are, or a schema."""
    if not isinstance(value, dict):
        raise InexpressibleError("expected an object")
    if key != "dependencies" and logic.draft < 2019:
        raise InexpressibleError(f"no keyword of draft {logic.draft}, and of later ones")
    parts: list[object] = []
    for name, needed in value.items():
        if needed in ([], True, {}):
            continue
        if isinstance(needed, list) and key != "dependentSchemas":
            there: object = {"type": "object", "required": [*needed, name]}
        elif isinstance(needed, dict | bool) and key != "dependentRequired":
            there = {"type": "object", "required": [name], "allOf": [needed]}
        else:
            raise InexpressibleError("expected lists of names or schemas")
        parts.append({"anyOf": [{"properties": {name: False}}, there]})
    if len(parts) > MOST_DEPENDING:
        raise InexpressibleError(f"{len(parts)} names that others depend on; at most {MOST_DEPENDING}")
    return parts


def _named(value: object) -> object:
    """Which names properties may have."""
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
        if keys <= {"minLength", "maxLength"} and all(count == "" or _is_count(count) for count in counts):
            pattern = "^[\\s\\S]{" + ",".join("" if count == "" else str(int(count)) for count in counts) + "}$"
            return {"patternProperties": {pattern: True}, "additionalProperties": False}
    raise InexpressibleError("a grammar holds a pattern of names, a list of them, or lengths")


def _different(schema: dict[str, Any], logic: Logic) -> list[object]:
    """Items no two of which are equal, of a short list of values: every sequence of them."""
    least, most = schema.get("minItems", 0), schema.get("maxItems", MOST_SEQUENCES)
    if not _is_count(least) or not _is_count(most):
        raise InexpressibleError("beside counts that are none")
    if most < 2:
        return []
    items = [] if "prefixItems" in schema else logic.parts(schema.get("items"), MOST_STEPS)
    listed = next((part["enum"] for part in items if isinstance(part.get("enum"), list)), None)
    if listed is None:
        raise InexpressibleError("a grammar cannot hold it")
    values = list({spelled(value): value for value in listed}.values())
    lengths = range(int(least), min(int(most), len(values)) + 1)
    if sum(math.perm(len(values), n) for n in lengths) > MOST_SEQUENCES:
        raise InexpressibleError(f"more than {MOST_SEQUENCES} sequences of {len(values)} values")
    sequences = [list(one) for n in lengths for one in permutations(values, n)]
    others = {"type": [kind for kind in sorted(KINDS) if kind != "array"]}
    return [{"anyOf": [{"enum": sequences}, others]} if sequences else others]


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == int(value)
