"""Searches and exact sampling among the texts that an automaton accepts."""
