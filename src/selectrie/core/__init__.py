"""Definitions that every room may use: types, numerics, vocabulary, tries, ports."""
