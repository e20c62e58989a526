"""Decisions about the rows of a table in a file, with a run on disk."""
