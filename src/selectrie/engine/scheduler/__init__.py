"""Decide what goes into the next batch: jobs, prefill, preemption, the model thread."""
