"""Machines of rules, as most tests of grammars need them."""

from __future__ import annotations

from selectrie.grammar.machine import compiling
from selectrie.grammar.machine.machine import Machine
from selectrie.grammar.machine.nfa import DEFAULT_LIMITS, GrammarLimits
from selectrie.grammar.rules import RuleSet


def compile_rules(rules: RuleSet, limits: GrammarLimits = DEFAULT_LIMITS) -> Machine:
    """Return the recogniser of a rule set."""
    return Machine(compiling.compile_rules(rules, limits), limits)
