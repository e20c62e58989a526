"""Traces: files of what tasks were told, from which their answers can be had again."""
