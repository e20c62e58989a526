"""What ends a grammar with an error instead of a hang."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Bounds on one compiled grammar; over any of them is a `GrammarError` that names it.

    The defaults keep any source of up to 1 MB within 2 s and 256 MB, and any text read by it within the same memory.

    most_rules: rules that the root leads to.
    most_states: states of all rules together, repetitions unrolled.
    most_work: elementary steps spent on making rules deterministic, a quarter of what is left on one rule; a rule that would
        take more stays as it is, which is slower to read by.
    most_edges: edges of rules that stay as they are, and edges of left recursive rules together with their copies.
    most_inlined: states copied into the place of a call, in all; above it calls stay calls.
    most_alternatives: ways to read one text that are followed at once.
    most_at_once: elementary steps from one look at what may follow (`Machine.begin`) to the next, about 0.4 µs each.
    most_configurations: different situations a text has led to in a machine's life.
    most_stacks: different sets of open rules in a machine's life.
    most_bytes: memory of both.
    """

    most_rules: int = 20_000
    most_states: int = 150_000
    most_work: int = 240_000
    most_edges: int = 400_000
    most_inlined: int = 30_000
    most_alternatives: int = 5_000
    most_at_once: int = 2_000_000
    most_configurations: int = 400_000
    most_stacks: int = 400_000
    most_bytes: int = 160 << 20


DEFAULT_LIMITS = GrammarLimits()
