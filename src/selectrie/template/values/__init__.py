"""Evaluate the values given to templates, and check the arguments of tags."""
