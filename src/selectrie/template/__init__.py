"""Parse, check and interpret templates: text with `<<tags>>`.

Templates are immutable segments with source spans. Neither a model nor the evaluation
of Python code is involved.
"""
