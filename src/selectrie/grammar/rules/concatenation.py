"""Concatenates a grammar with a literal text."""

from __future__ import annotations

from types import MappingProxyType

from selectrie.grammar.rules.expressions import Reference, RuleSet, Sequence, Text


def rules_with(rules: RuleSet, following: bytes) -> RuleSet:
    """Return the rules with a new root: the old root followed by the bytes `following`.

    Positions in the source are unchanged.
    """
    root = f"{rules.root}-followed"
    while root in rules.rules:
        root += "-"
    whole = Sequence((Reference(rules.root), Text(following)))
    return RuleSet(MappingProxyType({root: whole, **rules.rules}), root, rules.text, rules.spans)
