"""Answers questions about the rows of a table in a file, as a run on disk."""
