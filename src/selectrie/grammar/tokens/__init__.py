"""Finds the tokens of a vocabulary that a grammar allows next."""
