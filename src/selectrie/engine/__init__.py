"""Turns requests into model calls: one thread owns the model and batches all work."""
