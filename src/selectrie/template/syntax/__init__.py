"""Parses template text into an immutable tree with source positions."""
