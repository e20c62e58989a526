"""Interprets templates step by step."""
