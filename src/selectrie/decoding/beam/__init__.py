"""Beam search among the texts that an automaton accepts."""
