"""Implement the model port of `selectrie.core.model`, one package per back end."""
