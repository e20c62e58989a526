"""JSON Schema as a grammar that accepts only valid texts, or an error.

Conversion uses llguidance, or llama-cpp-python's converter where that is correct.
"""
