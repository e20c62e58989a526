"""Interpret templates step by step."""
