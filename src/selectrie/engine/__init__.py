"""From requests to model calls: one thread owns the model and batches all work."""
