"""JSON Schema as a grammar that accepts only valid texts, or an error.

Conversion uses llguidance; the texts of a schema of few values are listed.
"""
