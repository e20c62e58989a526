"""Decides which rows the next model call evaluates: jobs, prefill, preemption."""
