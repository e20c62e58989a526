"""Serves our own calls, each a method of `Engine`, and the tokenizer."""
