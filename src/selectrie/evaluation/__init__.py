"""Scoring benchmarks: tasks as data, items, what was measured of each, metrics, runs that survive a crash."""
