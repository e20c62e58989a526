"""Grammars of llguidance behind the automaton port."""
