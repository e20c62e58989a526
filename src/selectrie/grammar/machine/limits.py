"""Limits that make a grammar fail with an error instead of hanging."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """Bounds on one compiled grammar.

    Exceeding any of them raises a `GrammarError` that says so. The defaults keep any
    source of up to 1 MB within 2 s and 256 MB, and any text read by it within the same
    memory.

    Attributes:
        max_rules: Rules reachable from the root.
        max_states: States of all rules together, with repetitions unrolled.
        max_work: Elementary steps spent on making rules deterministic. One rule may
            use a quarter of what is left; a rule that needs more stays
            nondeterministic, which is slower to read.
        max_edges: Edges of rules that stay nondeterministic, and edges of
            left-recursive rules together with their copies.
        max_inlined: States copied in place of calls, in total; beyond that, calls stay
            calls.
        max_alternatives: Ways to read one text that are followed at once.
        max_steps: Elementary steps, of about 0.4 µs, between two calls of
            `Machine.begin`.
        max_configurations: Different configurations in a machine's life.
        max_stacks: Different sets of open rules in a machine's life.
        max_bytes: Memory of configurations and stacks together.
    """

    max_rules: int = 20_000
    max_states: int = 150_000
    max_work: int = 240_000
    max_edges: int = 400_000
    max_inlined: int = 30_000
    max_alternatives: int = 5_000
    max_steps: int = 2_000_000
    max_configurations: int = 400_000
    max_stacks: int = 400_000
    max_bytes: int = 160 << 20


DEFAULT_LIMITS = GrammarLimits()
