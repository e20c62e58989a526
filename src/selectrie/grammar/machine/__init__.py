"""The recogniser: rules compiled to a pushdown automaton over bytes, made deterministic while it reads."""
