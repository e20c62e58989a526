"""Prepares and answers each kind of request of an engine."""
