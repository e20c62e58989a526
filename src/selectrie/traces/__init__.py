"""Traces: files of the values that tasks read, from which their results can be had."""
