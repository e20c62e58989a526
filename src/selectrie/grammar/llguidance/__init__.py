"""llguidance grammars behind the automaton port."""
