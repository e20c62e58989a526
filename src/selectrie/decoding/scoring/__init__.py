"""Turns rows into scores.

The modules say which rows of a trie are needed, and compute terminators, rules, priors,
probabilities, tolerances and bounds.
"""
