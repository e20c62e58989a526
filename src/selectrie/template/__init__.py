"""Parses, checks and interprets templates: text with `<<tags>>`.

A slot is a tag whose value a model decides; a page is the rendered text. Templates are
trees of immutable segments with source positions. Neither a model nor the evaluation of
Python code is involved.
"""
