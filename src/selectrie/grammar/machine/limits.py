"""Limits that make a grammar fail with an error instead of hanging."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Bounds on one compiled grammar.

    Exceeding any of them raises a `GrammarError` that names it. The defaults keep any
    source of up to 1 MB within 2 s and 256 MB, and any text read by it within the same
    memory.

    Attributes:
        most_rules: Rules reachable from the root.
        most_states: States of all rules together, with repetitions unrolled.
        most_work: Elementary steps spent on making rules deterministic. One rule may
            use a quarter of what is left; a rule that needs more stays
            nondeterministic, which is slower to read.
        most_edges: Edges of rules that stay nondeterministic, and edges of
            left-recursive rules together with their copies.
        most_inlined: States copied in place of calls, in total; beyond that, calls stay
            calls.
        most_alternatives: Ways to read one text that are followed at once.
        most_at_once: Elementary steps, of about 0.4 µs, between two calls of
            `Machine.begin`.
        most_configurations: Different configurations in a machine's life.
        most_stacks: Different sets of open rules in a machine's life.
        most_bytes: Memory of configurations and stacks together.
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
