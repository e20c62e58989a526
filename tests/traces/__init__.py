"""Tests of traces: the format, what is written, and what is read back."""
