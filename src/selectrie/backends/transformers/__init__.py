"""Evaluate trees of contexts by Hugging Face Transformers."""
