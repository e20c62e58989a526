"""Grammars: what may be generated, as rules; compiled to a recogniser of bytes and to an automaton over tokens."""
