"""Grammars: rules for the texts that may be generated.

They are compiled to a recogniser of bytes and to an automaton over tokens.
"""

from __future__ import annotations

from selectrie.grammar.grammar import Grammar, installed_names, read_grammar

__all__ = ["Grammar", "installed_names", "read_grammar"]
