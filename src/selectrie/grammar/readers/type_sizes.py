"""How large a type is that may name one type in many places."""

from __future__ import annotations

from typing import Any, get_args

from selectrie.errors import GrammarError

MOST_TYPES = 100_000
"""Types inside of a type, each counted as often as it stands there."""
_MOST_FOLLOWED = 200
"""Types inside types that are looked into; readers stop before."""


def check_size(kind: Any) -> None:
    """Refuse a type that is too large to be written out, before anything compares it: even its hash would take for ever."""
    if _n_types(kind, {}, 0) > MOST_TYPES:
        raise GrammarError(
            f"the type has more than {MOST_TYPES} types inside of it, each counted as often as it stands there; make those that "
            "stand in several places classes"
        )


def _n_types(kind: Any, known: dict[int, tuple[Any, int]], depth: int) -> int:
    """known: types looked at, by identity, and their sizes; it holds them, so that no other one gets their identity."""
    parts = get_args(kind)
    if not parts or depth > _MOST_FOLLOWED:
        return 1
    if id(kind) not in known:
        known[id(kind)] = kind, 1 + sum(_n_types(part, known, depth + 1) for part in parts)
    return known[id(kind)][1]
