"""Typed decisions: questions about a state, the prompts that ask them, the answers.

Nothing here calls a model. The engine scores what this room prepares, by the same code
as `select`, and gives back the selections, from which this room makes the answers.
"""
