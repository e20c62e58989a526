"""Converts JSON Schema to a grammar that accepts only valid texts, or raises an error.

A schema that allows few values becomes a list of texts. llguidance converts all others.
"""
