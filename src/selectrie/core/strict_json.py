"""Hooks for Python's parser of JSON, which refuse what it would read otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from selectrie.errors import of_value


def object_of_unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of an object; raise `ValueError` if a key occurs twice."""
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {of_value(twice)} occurs twice")
    return result


def refuse_constant(text: str) -> NoReturn:
    """Raise `ValueError` for NaN or an infinity, which are no JSON."""
    raise ValueError(f"{text} is not a finite number")
