"""Adapts llguidance grammars to the automaton port."""
