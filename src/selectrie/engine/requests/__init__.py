"""Prepare and answer each kind of request of an engine."""
