"""Measures the size of types, in which one type may occur in many places."""

from __future__ import annotations

from typing import Any, get_args

from selectrie.errors import GrammarError

MAX_TYPES = 100_000
"""Maximum number of types inside a type; each occurrence counts."""
_MAX_DEPTH = 200
"""Maximum depth that is inspected; readers stop before."""


def check_size(kind: Any) -> None:
    """Raise `GrammarError` for a type that is too large to be written out.

    It must be called before the type is compared: even hashing it would not finish.
    """
    if _n_types(kind, {}, 0) > MAX_TYPES:
        raise GrammarError(
            f"the type contains more than {MAX_TYPES} types, counting each occurrence; make classes "
            "of those that occur several times"
        )


def _n_types(kind: Any, known: dict[int, tuple[Any, int]], depth: int) -> int:
    """Return the number of types inside a type, counting every occurrence.

    `known` maps the identity of each type seen to the type and its size. It holds the
    types, so that identities are not reused.
    """
    parts = get_args(kind)
    if not parts or depth > _MAX_DEPTH:
        return 1
    if id(kind) not in known:
        known[id(kind)] = kind, 1 + sum(_n_types(part, known, depth + 1) for part in parts)
    return known[id(kind)][1]
