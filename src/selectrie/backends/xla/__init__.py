"""Evaluate trees of contexts by programs that XLA compiles for fixed shapes."""
