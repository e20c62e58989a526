"""Searches and draws among the texts of an automaton."""
