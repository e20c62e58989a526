"""Evaluates the values given to templates, and checks the arguments of tags."""
