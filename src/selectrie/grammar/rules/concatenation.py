"""A grammar whose texts stand before a literal text."""

from __future__ import annotations

from types import MappingProxyType

from selectrie.grammar.rules.expressions import Reference, RuleSet, Sequence, Text


def rules_with(rules: RuleSet, following: bytes) -> RuleSet:
    """The rules under a new root: the old one, and these bytes behind it. Places in the source stay what they are."""
    root = f"{rules.root}-followed"
    while root in rules.rules:
        root += "-"
    whole = Sequence((Reference(rules.root), Text(following)))
    return RuleSet(MappingProxyType({root: whole, **rules.rules}), root, rules.text, rules.spans)
