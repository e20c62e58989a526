"""The recogniser: rules compiled to a pushdown automaton over bytes.

The automaton is made deterministic while it reads a text.
"""
