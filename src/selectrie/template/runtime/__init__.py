"""Templates interpreted, step by step."""
