"""The costs of calls of llama.cpp, by which work is divided into calls."""

from __future__ import annotations

from selectrie.core.types import CallCost

CELLS_PER_READ = 256
"""Cells that llama.cpp's attention reads at once (`llama_kv_cache::get_n_kv`)."""

MIN_ROWS, MIN_COSTLY_ROWS = 16, 64
"""Rows below which the fixed cost of a call matters.

The first is for reading the weights, which a call does once. The second is for models
whose rows cost much more than their cells.
"""

COSTLY_ROW = 8192
"""`Limits.max_idle_rows` from which few rows cost much more than their cells."""

PREFILL_ROWS = 128
"""Rows of prompts in a call that other tasks wait for.

A model of 0.5B in q8_0 on 2 cores takes 6.8 ms a row in calls of 32 rows and 6.4 ms in
calls of 128: more rows would only make the other tasks wait.
"""


def call_cost(max_idle_rows: int) -> CallCost:
    """Return the `CallCost` of a model with this `Limits.max_idle_rows`."""
    if max_idle_rows < COSTLY_ROW:
        return CallCost(CELLS_PER_READ, MIN_ROWS, min_short_rows=1, prefill_rows=PREFILL_ROWS)
    return CallCost(CELLS_PER_READ, MIN_COSTLY_ROWS, min_short_rows=MIN_COSTLY_ROWS, prefill_rows=PREFILL_ROWS)
