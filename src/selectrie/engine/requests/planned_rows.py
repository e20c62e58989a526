"""How many rows of the model selections plan, counted before the first call."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from selectrie.core.types import IntArray
from selectrie.engine.requests.selection import PreparedSelect


def planned_rows(selects: Iterable[PreparedSelect]) -> int:
    """Return the rows that exhaustive selections take together, with nothing cached.

    What their contexts begin with in common is counted once, and so are equal
    baselines. Rows of a second scoring of near ties are not planned.
    """
    contexts: list[IntArray] = []
    baselines: set[tuple[bytes, ...]] = set()
    n_inner = 0
    for select in selects:
        contexts.append(select.encoded.context)
        n_inner += select.needs.n_rows - 1  # the root's row is that of the context's end
        for premise in select.premises:
            key = select.baseline_key(premise)
            if key not in baselines:
                baselines.add(key)
                contexts.append(premise)
                n_inner += select.plain_needs.n_rows - 1
    return _distinct(contexts) + n_inner


def _distinct(paths: list[IntArray]) -> int:
    """Return the number of nodes of the tree that the paths make, without its root."""
    # Big-endian bytes sort as the ids do: each path shares most with the one before it.
    ordered = sorted({path.astype(">i4").tobytes() for path in paths})
    total, before = 0, np.empty(0, dtype=">i4")
    for data in ordered:
        path = np.frombuffer(data, dtype=">i4")
        n = min(len(path), len(before))
        differs = np.flatnonzero(path[:n] != before[:n])
        total += len(path) - (int(differs[0]) if len(differs) else n)
        before = path
    return total
